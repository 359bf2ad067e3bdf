// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package nvml calls the NVIDIA Management Library without a C compiler: the library is loaded at
// run time, and a function that the installed driver lacks answers [ErrorFunctionNotFound]. Names,
// numbers and layouts are from NVIDIA's nvml.h (CUDA 13); tests compare them with it.
package nvml

import (
	"bytes"
	"unsafe"
)

// Library is the library, or a stub in tests.
type Library interface {
	// Init loads the library and calls nvmlInit.
	Init() Return
	// Has reports whether the driver has a function.
	Has(function string) bool
	// Call calls a function. Arguments are handles, numbers (int), and pointers to what the
	// function reads or writes. A *uint64 receives results of 64 bits and, in its lower half, of
	// 32.
	Call(function string, args ...any) Return
	// ErrorString is the library's text for a value.
	ErrorString(ret Return) string
}

// Handle is a device (a physical GPU or a MIG device), a set of events or a sample; 0 is none.
type Handle uintptr

// Return is nvmlReturn_t.
type Return uint32

// Values of Return.
const (
	Success               Return = 0
	ErrorInvalidArgument  Return = 2
	ErrorNotSupported     Return = 3
	ErrorNoPermission     Return = 4
	ErrorNotFound         Return = 6
	ErrorInsufficientSize Return = 7
	ErrorDriverNotLoaded  Return = 9
	ErrorTimeout          Return = 10
	ErrorLibraryNotFound  Return = 12
	ErrorFunctionNotFound Return = 13
	ErrorGPUIsLost        Return = 15
	ErrorUnknown          Return = 999
)

// Values of other enumerations.
const (
	DeviceMIGEnable           = 1
	EventTypeXidCriticalError = 8
)

// PciInfo is nvmlPciInfo_t.
type PciInfo struct {
	BusIDLegacy                                      [16]byte
	Domain, Bus, Device, PciDeviceID, PciSubSystemID uint32
	BusID                                            [32]byte
}

// MemoryV2 is nvmlMemory_v2_t, in bytes.
type MemoryV2 struct {
	Version                     uint32
	Total, Reserved, Free, Used uint64
}

// MemoryVersion2 is the required version field of MemoryV2.
const MemoryVersion2 = uint32(unsafe.Sizeof(MemoryV2{}) | 2<<24)

// FieldValue is nvmlFieldValue_t.
type FieldValue struct {
	FieldID, ScopeID       uint32
	Timestamp, LatencyUsec int64
	ValueType, NvmlReturn  uint32
	Value                  [8]byte
}

// DeviceAttributes is nvmlDeviceAttributes_t.
type DeviceAttributes struct {
	MultiprocessorCount, SharedCopyEngineCount, SharedDecoderCount, SharedEncoderCount, SharedJpegCount,
	SharedOfaCount, GpuInstanceSliceCount, ComputeInstanceSliceCount uint32
	MemorySizeMB uint64
}

// ProcessInfo is nvmlProcessInfo_t.
type ProcessInfo struct {
	Pid                              uint32
	UsedGpuMemory                    uint64
	GpuInstanceID, ComputeInstanceID uint32
}

// ProcessUtilizationSample is nvmlProcessUtilizationSample_t: utilizations in percent, and a time in
// microseconds.
type ProcessUtilizationSample struct {
	Pid                               uint32
	TimeStamp                         uint64
	SmUtil, MemUtil, EncUtil, DecUtil uint32
}

// EventData is nvmlEventData_t.
type EventData struct {
	Device                           Handle
	EventType, EventData             uint64
	GpuInstanceID, ComputeInstanceID uint32
}

// OperationalEventConfig is nvmlGpuOperationalEventConfig_v1_t.
type OperationalEventConfig struct {
	UUID                     [96]byte
	MinLogLevel, MinSeverity uint32
}

// EventWait is nvmlEventSetWait_v3_t.
type EventWait struct {
	TimeoutMs, DataType                                                     uint32
	UUID                                                                    [96]byte
	SourceModule                                                            [16]byte // possibly without a 0 at its end
	EventType, EventData, GroupCursor, InstanceID, TimestampUsec, TraceID   uint64
	GpuInstanceID, ComputeInstanceID, Severity, CategoryID, ModuleEventCode uint32
	Scope, Originator, ModuleInstance, ChipletID, LogLevel, Attributes      uint32
	GroupCperSize, GroupAttributes                                          uint32
	GroupSize, GroupIndex                                                   uint8
}

// Values of EventWait and OperationalEventConfig.
const (
	EventDataTypeNvmlEvent = 0
	EventAttributePrimary  = 1 << 5
	EventAttributeOverflow = 1 << 6
	LogLevelWarning        = 40
)

// EventContextCount is nvmlEventSetGetContextCount_v1_t.
type EventContextCount struct{ Count uint32 }

// EventContextLegacyXID is nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t.
type EventContextLegacyXID struct{ Index, XIDCode uint32 }

// GpmSupport is nvmlGpmSupport_t, of version 1.
type GpmSupport struct{ Version, IsSupportedDevice uint32 }

// GpmMetric is nvmlGpmMetric_t.
type GpmMetric struct {
	MetricID, NvmlReturn uint32
	Value                float64
	Info                 [3]uintptr // texts of the library
}

// GpmMetricsGetType is nvmlGpmMetricsGet_t, of version 1.
type GpmMetricsGetType struct {
	Version, NumMetrics uint32
	Samples             [2]Handle
	Metrics             [333]GpmMetric
}

// Text returns a C text in a buffer.
func Text(b []byte) string {
	if n := bytes.IndexByte(b, 0); n >= 0 {
		b = b[:n]
	}
	return string(b)
}
