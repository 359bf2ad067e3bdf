// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package nvml calls the NVIDIA Management Library without a C compiler: the library is loaded at run time, and a
// function that the installed driver lacks answers [ErrorFunctionNotFound]. Names, numbers and layouts are those of
// NVIDIA's nvml.h (CUDA 13); tests hold them against it.
package nvml

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

// ClockType is nvmlClockType_t.
type ClockType uint32

// Values of ClockType.
const (
	ClockGraphics ClockType = iota
	ClockSM
	ClockMem
	ClockVideo
)

// MemoryErrorType is nvmlMemoryErrorType_t.
type MemoryErrorType uint32

// Values of MemoryErrorType.
const (
	MemoryErrorTypeCorrected MemoryErrorType = iota
	MemoryErrorTypeUncorrected
)

// PageRetirementCause is nvmlPageRetirementCause_t.
type PageRetirementCause uint32

// Values of PageRetirementCause.
const (
	PageRetirementCauseMultipleSingleBitECCErrors PageRetirementCause = iota
	PageRetirementCauseDoubleBitECCError
)

// GpmMetricID is nvmlGpmMetricId_t.
type GpmMetricID uint32

// Values of GpmMetricID.
const (
	GPMMetricGraphicsUtil        GpmMetricID = 1
	GPMMetricSMUtil              GpmMetricID = 2
	GPMMetricSMOccupancy         GpmMetricID = 3
	GPMMetricIntegerUtil         GpmMetricID = 4
	GPMMetricAnyTensorUtil       GpmMetricID = 5
	GPMMetricDFMATensorUtil      GpmMetricID = 6
	GPMMetricHMMATensorUtil      GpmMetricID = 7
	GPMMetricIMMATensorUtil      GpmMetricID = 9
	GPMMetricDRAMBWUtil          GpmMetricID = 10
	GPMMetricFP64Util            GpmMetricID = 11
	GPMMetricFP32Util            GpmMetricID = 12
	GPMMetricFP16Util            GpmMetricID = 13
	GPMMetricPCIeTXPerSec        GpmMetricID = 20
	GPMMetricPCIeRXPerSec        GpmMetricID = 21
	GPMMetricNVLinkTotalRXPerSec GpmMetricID = 60
	GPMMetricNVLinkTotalTXPerSec GpmMetricID = 61
)

// Other numbers.
const (
	DeviceMIGEnable           = 1
	FIDevPowerInstant         = 186
	EventTypeXidCriticalError = 8
)

// PciInfo is nvmlPciInfo_t.
type PciInfo struct {
	BusIDLegacy                                      [16]byte
	Domain, Bus, Device, PciDeviceID, PciSubSystemID uint32
	BusID                                            [32]byte
}

// Memory is nvmlMemory_t, in bytes.
type Memory struct{ Total, Free, Used uint64 }

// MemoryV2 is nvmlMemory_v2_t, in bytes.
type MemoryV2 struct {
	Version                     uint32
	Total, Reserved, Free, Used uint64
}

// Utilization is nvmlUtilization_t, in percent.
type Utilization struct{ Gpu, Memory uint32 }

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
	SharedOfaCount uint32
	GpuInstanceSliceCount,
	ComputeInstanceSliceCount uint32
	MemorySizeMB uint64
}

// ProcessInfo is nvmlProcessInfo_t.
type ProcessInfo struct {
	Pid                              uint32
	UsedGpuMemory                    uint64
	GpuInstanceID, ComputeInstanceID uint32
}

// GpmSample is nvmlGpmSample_t, a handle.
type GpmSample uintptr

// GpmSupport is nvmlGpmSupport_t.
type GpmSupport struct{ Version, IsSupportedDevice uint32 }

// GpmMetric is nvmlGpmMetric_t.
type GpmMetric struct {
	MetricID, NvmlReturn uint32
	Value                float64
	Info                 [3]uintptr // texts of the library
}

// GpmMetricsGetType is nvmlGpmMetricsGet_t.
type GpmMetricsGetType struct {
	Version, NumMetrics uint32
	Sample1, Sample2    GpmSample
	Metrics             [333]GpmMetric
}

// EventSet is nvmlEventSet_t, a handle; 0 is none.
type EventSet uintptr

// EventData is what is used of nvmlEventData_t.
type EventData struct {
	Device               Device
	EventType, EventData uint64
}

// Interface is the library, or a stand-in of tests.
type Interface interface {
	Init() Return
	Shutdown() Return
	Has(symbol string) bool
	ErrorString(Return) string
	SystemGetDriverVersion() (string, Return)
	DeviceGetCount() (int, Return)
	DeviceGetHandleByIndex(int) (Device, Return)
	EventSetCreate() (EventSet, Return)
	EventSetWait(set EventSet, ms uint32) (EventData, Return)
	EventSetFree(EventSet) Return
	GpmSampleAlloc() (GpmSample, Return)
	GpmSampleFree(GpmSample) Return
	GpmMetricsGet(*GpmMetricsGetType) Return
}

// Device is a board or a MIG device.
type Device interface {
	GetUUID() (string, Return)
	GetName() (string, Return)
	GetPciInfo() (PciInfo, Return)
	GetMemoryInfo() (Memory, Return)
	GetMemoryInfoV2() (MemoryV2, Return)
	GetEnforcedPowerLimit() (uint32, Return)
	GetMaxPcieLinkGeneration() (int, Return)
	GetMaxPcieLinkWidth() (int, Return)
	GetMigMode() (current, pending int, ret Return)
	GetMaxMigDeviceCount() (int, Return)
	GetMigDeviceHandleByIndex(int) (Device, Return)
	GetGpuInstanceID() (int, Return)
	GetComputeInstanceID() (int, Return)
	GetAttributes() (DeviceAttributes, Return)
	GetTotalEnergyConsumption() (uint64, Return)
	GetFieldValues([]FieldValue) Return
	GetPowerUsage() (uint32, Return)
	GetUtilizationRates() (Utilization, Return)
	GetCurrentClocksThrottleReasons() (uint64, Return)
	GetClockInfo(ClockType) (uint32, Return)
	GetTemperature() (uint32, Return)
	GetEncoderUtilization() (uint32, Return)
	GetDecoderUtilization() (uint32, Return)
	GetTotalEccErrors(MemoryErrorType) (uint64, Return)
	GetPcieReplayCounter() (int, Return)
	GetRemappedRows() (corrected, uncorrected int, pending, failed bool, ret Return)
	GetRetiredPages(PageRetirementCause) (int, Return)
	RegisterEvents(types uint64, set EventSet) Return
	GpmQueryDeviceSupport() (GpmSupport, Return)
	GpmSampleGet(GpmSample) Return
	GpmMigSampleGet(instance int, sample GpmSample) Return
	GetComputeRunningProcesses() ([]ProcessInfo, Return)
}
