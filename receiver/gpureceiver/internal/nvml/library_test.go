// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package nvml_test

import (
	"encoding/binary"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// stub is the path of a library that was compiled with NVIDIA's header, which comes with the binding of DCGM.
func stub(t *testing.T) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc to build the stub of NVML")
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm").Output()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	out, err := exec.Command(gcc, "-shared", "-fPIC", "-fvisibility=hidden", "-O1", "-w",
		"-I"+filepath.Join(strings.TrimSpace(string(module)), "pkg", "dcgm"), "-o", path,
		filepath.Join("testdata", "stub.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// number takes the two results of a call.
func number[T any](v T, ret nvml.Return) any {
	if ret != nvml.Success {
		return ret
	}
	return v
}

func TestEveryCallMeansWhatTheHeaderSays(t *testing.T) {
	l := nvml.New(stub(t))
	require.Equal(t, nvml.Success, l.Init())
	require.True(t, l.Has("nvmlDeviceGetUUID"))
	require.False(t, l.Has("nvmlDeviceGetFanSpeed"))
	board, ret := l.DeviceGetHandleByIndex(0)
	require.Equal(t, nvml.Success, ret)
	_, ret = l.DeviceGetHandleByIndex(1)
	require.Equal(t, nvml.ErrorInvalidArgument, ret)
	mig, ret := board.GetMigDeviceHandleByIndex(3)
	require.Equal(t, nvml.Success, ret)
	for i, c := range []struct{ want, got any }{
		{"580.95.05", number(l.SystemGetDriverVersion())},
		{1, number(l.DeviceGetCount())},
		{"GPU-5", number(board.GetUUID())},
		{"MIG-5", number(mig.GetUUID())},
		{strings.Repeat("x", 95), number(board.GetName())},
		{nvml.Memory{Total: 1, Free: 2, Used: 3}, number(board.GetMemoryInfo())},
		{uint32(8), number(board.GetEnforcedPowerLimit())},
		{9, number(board.GetMaxPcieLinkGeneration())},
		{10, number(board.GetMaxPcieLinkWidth())},
		{12, number(board.GetMaxMigDeviceCount())},
		{13, number(mig.GetGpuInstanceID())},
		{14, number(mig.GetComputeInstanceID())},
		{uint64(1 << 40), number(board.GetTotalEnergyConsumption())},
		{uint32(20), number(board.GetPowerUsage())},
		{nvml.Utilization{Gpu: 21, Memory: 22}, number(board.GetUtilizationRates())},
		{uint64(1 << 41), number(board.GetCurrentClocksThrottleReasons())},
		{uint32(23), number(board.GetClockInfo(nvml.ClockGraphics))},
		{uint32(24), number(board.GetClockInfo(nvml.ClockSM))},
		{uint32(25), number(board.GetClockInfo(nvml.ClockMem))},
		{uint32(26), number(board.GetClockInfo(nvml.ClockVideo))},
		{uint32(27), number(board.GetTemperature())},
		{uint32(28), number(board.GetEncoderUtilization())},
		{uint32(29), number(board.GetDecoderUtilization())},
		{uint64(30), number(board.GetTotalEccErrors(nvml.MemoryErrorTypeCorrected))},
		{uint64(31), number(board.GetTotalEccErrors(nvml.MemoryErrorTypeUncorrected))},
		{32, number(board.GetPcieReplayCounter())},
		{35, number(board.GetRetiredPages(nvml.PageRetirementCauseMultipleSingleBitECCErrors))},
		{36, number(board.GetRetiredPages(nvml.PageRetirementCauseDoubleBitECCError))},
		{nvml.GpmSupport{Version: 1, IsSupportedDevice: 1}, number(board.GpmQueryDeviceSupport())},
	} {
		assert.Equal(t, c.want, c.got, i)
	}
	pci, ret := board.GetPciInfo()
	assert.Equal(t, nvml.Success, ret)
	assert.Equal(t, "00000000:A1:00.0", nvml.Text(pci.BusID[:]))
	memory, ret := board.GetMemoryInfoV2()
	assert.Equal(t, nvml.Success, ret)
	assert.Equal(t, [4]uint64{4, 5, 6, 7}, [4]uint64{memory.Total, memory.Reserved, memory.Free, memory.Used})
	current, pending, ret := board.GetMigMode()
	assert.Equal(t, [3]int{nvml.DeviceMIGEnable, 11, 0}, [3]int{current, pending, int(ret)})
	a, ret := board.GetAttributes()
	assert.Equal(t, nvml.Success, ret)
	assert.Equal(t, [4]uint64{15, 16, 17, 18}, [4]uint64{
		uint64(a.MultiprocessorCount), uint64(a.GpuInstanceSliceCount), uint64(a.ComputeInstanceSliceCount), a.MemorySizeMB,
	})
	field := []nvml.FieldValue{{FieldID: nvml.FIDevPowerInstant}}
	assert.Equal(t, nvml.Success, board.GetFieldValues(field))
	assert.Equal(t, uint32(nvml.ErrorNotFound), field[0].NvmlReturn)
	assert.Equal(t, uint32(19), binary.NativeEndian.Uint32(field[0].Value[:]))
	corrected, uncorrected, waits, failed, ret := board.GetRemappedRows()
	assert.Equal(t, []any{33, 34, true, false, nvml.Success}, []any{corrected, uncorrected, waits, failed, ret})

	list, ret := board.GetComputeRunningProcesses()
	assert.Equal(t, nvml.Success, ret)
	require.Len(t, list, 20)
	assert.Equal(t, uint32(1007), list[7].Pid)
	assert.Equal(t, ^uint64(0), list[7].UsedGpuMemory)
	assert.Equal(t, uint64(1<<33), list[19].UsedGpuMemory)

	set, ret := l.EventSetCreate()
	assert.Equal(t, nvml.Success, ret)
	assert.Equal(t, nvml.Success, board.RegisterEvents(nvml.EventTypeXidCriticalError, set))
	e, ret := l.EventSetWait(set, 0)
	assert.Equal(t, nvml.Success, ret)
	assert.Equal(t, [2]uint64{nvml.EventTypeXidCriticalError, 79}, [2]uint64{e.EventType, e.EventData})
	assert.Equal(t, "GPU-5", number(e.Device.GetUUID()))
	assert.Equal(t, nvml.Success, l.EventSetFree(set))

	one, _ := l.GpmSampleAlloc()
	two, ret := l.GpmSampleAlloc()
	assert.Equal(t, nvml.Success, ret)
	assert.Equal(t, nvml.Success, board.GpmSampleGet(one))
	assert.Equal(t, nvml.Success, board.GpmMigSampleGet(13, two))
	g := &nvml.GpmMetricsGetType{NumMetrics: 3, Sample1: one, Sample2: two}
	for i, id := range []nvml.GpmMetricID{
		nvml.GPMMetricSMUtil, nvml.GPMMetricFP64Util,
		nvml.GPMMetricNVLinkTotalTXPerSec,
	} {
		g.Metrics[i].MetricID = uint32(id)
	}
	assert.Equal(t, nvml.Success, l.GpmMetricsGet(g))
	assert.Equal(t, [2]float64{2.5, 61.5}, [2]float64{g.Metrics[0].Value, g.Metrics[2].Value})
	assert.Equal(t, uint32(nvml.ErrorNotSupported), g.Metrics[1].NvmlReturn)
	assert.Equal(t, nvml.Success, l.GpmSampleFree(one))
	assert.Equal(t, "in use", l.ErrorString(l.Shutdown()))
	assert.Equal(t, nvml.Success, l.Init())
	assert.Equal(t, nvml.Success, l.GpmSampleFree(two))
	assert.Equal(t, nvml.Success, l.Shutdown())
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	l := nvml.New(filepath.Join(t.TempDir(), "libnvidia-ml.so.1"))
	assert.Equal(t, nvml.ErrorLibraryNotFound, l.Init())
	assert.Equal(t, nvml.ErrorFunctionNotFound, l.Shutdown())
	assert.Equal(t, "NVML error 13", l.ErrorString(nvml.ErrorFunctionNotFound))
	assert.False(t, l.Has("nvmlInit_v2"))
}
