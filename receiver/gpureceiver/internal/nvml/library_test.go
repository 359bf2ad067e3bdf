// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvml_test

import (
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml/nvmltest"
)

// Values of enumerations, which the stub compares with the header.
const (
	clockGraphics                                 = 0
	clockSM                                       = 1
	clockMem                                      = 2
	clockVideo                                    = 3
	fiDevPowerInstant                             = 186
	memoryErrorTypeCorrected                      = 0
	memoryErrorTypeUncorrected                    = 1
	volatileECC                                   = 0
	temperatureGPU                                = 0
	pageRetirementCauseMultipleSingleBitECCErrors = 0
	pageRetirementCauseDoubleBitECCError          = 1
	gpmMetricSMUtil                               = 2
	gpmMetricFP64Util                             = 11
	gpmMetricNVLinkTotalTXPerSec                  = 61
)

func TestEveryCallMatchesTheHeader(t *testing.T) {
	l := nvml.New(nvmltest.Build(t))
	require.Equal(t, nvml.Success, l.Init())
	require.True(t, l.Has("nvmlDeviceGetUUID"))
	require.False(t, l.Has("nvmlDeviceGetFanSpeed"))
	require.Equal(t, nvml.ErrorFunctionNotFound, l.Call("nvmlDeviceGetFanSpeed"))
	number := func(function string, args ...any) any {
		var v uint64
		if ret := l.Call(function, append(args, &v)...); ret != nvml.Success {
			return ret
		}
		return v
	}
	text := func(function string, args ...any) any {
		var b [96]byte
		if ret := l.Call(function, append(args, &b, len(b))...); ret != nvml.Success {
			return ret
		}
		return nvml.Text(b[:])
	}
	board := nvml.Handle(number("nvmlDeviceGetHandleByIndex_v2", 0).(uint64))
	require.Equal(t, nvml.ErrorInvalidArgument, number("nvmlDeviceGetHandleByIndex_v2", 1))
	mig := nvml.Handle(number("nvmlDeviceGetMigDeviceHandleByIndex", board, 3).(uint64))
	var second, third, fourth uint64
	n := func(v uint64) uint64 { return v }
	for i, c := range []struct{ want, got any }{
		{"580.95.05", text("nvmlSystemGetDriverVersion")},
		{n(1), number("nvmlDeviceGetCount_v2")},
		{"GPU-5", text("nvmlDeviceGetUUID", board)},
		{"MIG-5", text("nvmlDeviceGetUUID", mig)},
		{strings.Repeat("x", 95), text("nvmlDeviceGetName", board)},
		{n(8), number("nvmlDeviceGetEnforcedPowerLimit", board)},
		{n(9), number("nvmlDeviceGetMaxPcieLinkGeneration", board)},
		{n(10), number("nvmlDeviceGetMaxPcieLinkWidth", board)},
		{n(12), number("nvmlDeviceGetMaxMigDeviceCount", board)},
		{n(13), number("nvmlDeviceGetGpuInstanceId", mig)},
		{n(14), number("nvmlDeviceGetComputeInstanceId", mig)},
		{n(1 << 40), number("nvmlDeviceGetTotalEnergyConsumption", board)},
		{n(20), number("nvmlDeviceGetPowerUsage", board)},
		{21 | n(22)<<32, number("nvmlDeviceGetUtilizationRates", board)},
		{n(1 << 41), number("nvmlDeviceGetCurrentClocksThrottleReasons", board)},
		{n(23), number("nvmlDeviceGetClockInfo", board, clockGraphics)},
		{n(24), number("nvmlDeviceGetClockInfo", board, clockSM)},
		{n(25), number("nvmlDeviceGetClockInfo", board, clockMem)},
		{n(26), number("nvmlDeviceGetClockInfo", board, clockVideo)},
		{n(27), number("nvmlDeviceGetTemperature", board, temperatureGPU)},
		{n(1), number("nvmlDeviceGetEncoderUtilization", board, &second)},
		{n(1), number("nvmlDeviceGetDecoderUtilization", board, &third)},
		{[2]uint64{28, 29}, [2]uint64{second, third}},
		{n(30), number("nvmlDeviceGetTotalEccErrors", board, memoryErrorTypeCorrected, volatileECC)},
		{n(31), number("nvmlDeviceGetTotalEccErrors", board, memoryErrorTypeUncorrected, volatileECC)},
		{n(32), number("nvmlDeviceGetPcieReplayCounter", board)},
	} {
		assert.Equal(t, c.want, c.got, i)
	}
	for cause, want := range map[int]uint64{
		pageRetirementCauseMultipleSingleBitECCErrors: 35, pageRetirementCauseDoubleBitECCError: 36,
	} {
		assert.Equal(t, nvml.ErrorInsufficientSize, l.Call("nvmlDeviceGetRetiredPages", board, cause, &second, 0))
		assert.Equal(t, want, second)
	}
	var pci nvml.PciInfo
	assert.Equal(t, nvml.Success, l.Call("nvmlDeviceGetPciInfo_v3", board, &pci))
	assert.Equal(t, "00000000:A1:00.0", nvml.Text(pci.BusID[:]))
	memory := nvml.MemoryV2{Version: nvml.MemoryVersion2}
	assert.Equal(t, nvml.Success, l.Call("nvmlDeviceGetMemoryInfo_v2", board, &memory))
	assert.Equal(t, [4]uint64{4, 5, 6, 7}, [4]uint64{memory.Total, memory.Reserved, memory.Free, memory.Used})
	assert.Equal(t, n(11), number("nvmlDeviceGetMigMode", board, &third))
	assert.Equal(t, n(nvml.DeviceMIGEnable), third)
	var a nvml.DeviceAttributes
	assert.Equal(t, nvml.Success, l.Call("nvmlDeviceGetAttributes_v2", board, &a))
	assert.Equal(t, [4]uint64{15, 16, 17, 18}, [4]uint64{
		uint64(a.MultiprocessorCount), uint64(a.GpuInstanceSliceCount), uint64(a.ComputeInstanceSliceCount), a.MemorySizeMB,
	})
	field := nvml.FieldValue{FieldID: fiDevPowerInstant}
	assert.Equal(t, nvml.Success, l.Call("nvmlDeviceGetFieldValues", board, 1, &field))
	assert.Equal(t, uint32(nvml.ErrorNotFound), field.NvmlReturn)
	assert.Equal(t, uint32(19), binary.NativeEndian.Uint32(field.Value[:]))
	var corrected uint64
	second, third, fourth = 0, 0, 7
	assert.Equal(t, nvml.Success, l.Call("nvmlDeviceGetRemappedRows", board, &corrected, &second, &third, &fourth))
	assert.Equal(t, [4]uint64{33, 34, 1, 0}, [4]uint64{corrected, second, third, fourth})

	count, list := n(16), make([]nvml.ProcessInfo, 32)
	const running = "nvmlDeviceGetComputeRunningProcesses_v3"
	assert.Equal(t, nvml.ErrorInsufficientSize, l.Call(running, board, &count, &list[0]))
	count = 32
	assert.Equal(t, nvml.Success, l.Call(running, board, &count, &list[0]))
	require.Equal(t, n(20), count)
	assert.Equal(t, uint32(1007), list[7].Pid)
	assert.Equal(t, ^uint64(0), list[7].UsedGpuMemory)
	assert.Equal(t, uint64(1<<33), list[19].UsedGpuMemory)

	set := nvml.Handle(number("nvmlEventSetCreate").(uint64))
	assert.Equal(t, nvml.Success, l.Call("nvmlDeviceRegisterEvents", board, nvml.EventTypeXidCriticalError, set))
	var e nvml.EventData
	assert.Equal(t, nvml.Success, l.Call("nvmlEventSetWait_v2", set, &e, 0))
	assert.Equal(t, [2]uint64{nvml.EventTypeXidCriticalError, 79}, [2]uint64{e.EventType, e.EventData})
	assert.Equal(t, "GPU-5", text("nvmlDeviceGetUUID", e.Device))
	assert.Equal(t, nvml.Success, l.Call("nvmlEventSetFree", set))

	support := nvml.GpmSupport{Version: 1}
	assert.Equal(t, nvml.Success, l.Call("nvmlGpmQueryDeviceSupport", board, &support))
	assert.Equal(t, uint32(1), support.IsSupportedDevice)
	one := nvml.Handle(number("nvmlGpmSampleAlloc").(uint64))
	two := nvml.Handle(number("nvmlGpmSampleAlloc").(uint64))
	assert.Equal(t, nvml.Success, l.Call("nvmlGpmSampleGet", board, one))
	assert.Equal(t, nvml.Success, l.Call("nvmlGpmMigSampleGet", board, 13, two))
	g := &nvml.GpmMetricsGetType{Version: 1, NumMetrics: 3, Samples: [2]nvml.Handle{one, two}}
	for i, id := range []uint32{gpmMetricSMUtil, gpmMetricFP64Util, gpmMetricNVLinkTotalTXPerSec} {
		g.Metrics[i].MetricID = id
	}
	assert.Equal(t, nvml.Success, l.Call("nvmlGpmMetricsGet", g))
	assert.Equal(t, [2]float64{2.5, 61.5}, [2]float64{g.Metrics[0].Value, g.Metrics[2].Value})
	assert.Equal(t, uint32(nvml.ErrorNotSupported), g.Metrics[1].NvmlReturn)
	assert.Equal(t, nvml.Success, l.Call("nvmlGpmSampleFree", one))
	assert.Equal(t, "in use", l.ErrorString(l.Call("nvmlShutdown")))
	assert.Equal(t, "unknown", l.ErrorString(nvml.ErrorUnknown))
	assert.Equal(t, nvml.Success, l.Init())
	assert.Equal(t, nvml.Success, l.Call("nvmlGpmSampleFree", two))
	assert.Equal(t, nvml.Success, l.Call("nvmlShutdown"))
}

func TestMissingLibraryAndFunctionAreReported(t *testing.T) {
	l := nvml.New(filepath.Join(t.TempDir(), "libnvidia-ml.so.1"))
	assert.Equal(t, nvml.ErrorLibraryNotFound, l.Init())
	assert.Equal(t, nvml.ErrorFunctionNotFound, l.Call("nvmlShutdown"))
	assert.Equal(t, "NVML error 13", l.ErrorString(nvml.ErrorFunctionNotFound))
	assert.False(t, l.Has("nvmlInit_v2"))
}
