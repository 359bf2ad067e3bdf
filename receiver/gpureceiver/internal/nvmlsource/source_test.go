// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package nvmlsource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a driver with boards.
type machine struct {
	boards  []*board
	missing map[string]bool // C functions that the driver lacks
	events  []nvml.EventData
	inits   int
	samples int // GPM samples allocated
}

type board struct {
	mock.Device
	uuid   string
	energy uint64 // mJ
	lost   bool
	gpm    bool
	mig    []*mock.Device
}

const ok = nvml.SUCCESS

// sample is a GPM sample; the ratio that two of them give is that of the newer.
type sample struct {
	mock.GpmSample
	ratio float64 // percent
}

func newMachine(n int) *machine {
	m := &machine{missing: map[string]bool{}}
	for i := range n {
		m.boards = append(m.boards, newBoard(i))
	}
	return m
}

func newBoard(i int) *board {
	b := &board{uuid: fmt.Sprintf("GPU-%d", i), energy: 5_000_000, gpm: true}
	d := &b.Device
	lost := func(ret nvml.Return) nvml.Return {
		if b.lost {
			return nvml.ERROR_GPU_IS_LOST
		}
		return ret
	}
	d.GetUUIDFunc = func() (string, nvml.Return) { return b.uuid, ok }
	d.GetNameFunc = func() (string, nvml.Return) { return "NVIDIA H200", ok }
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		var p nvml.PciInfo
		for k, c := range []byte(fmt.Sprintf("00000000:%02X:00.0", 0xa0+i)) {
			p.BusId[k] = int8(c)
		}
		return p, ok
	}
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: 150754820096, Used: 2000, Free: 1}, lost(ok)
	}
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 150754820096, Used: 1000, Reserved: 600}, lost(ok)
	}
	d.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) { return 700_000, ok }
	d.GetMaxPcieLinkGenerationFunc = func() (int, nvml.Return) { return 5, ok }
	d.GetMaxPcieLinkWidthFunc = func() (int, nvml.Return) { return 16, ok }
	d.GetMigModeFunc = func() (int, int, nvml.Return) {
		if b.mig != nil {
			return nvml.DEVICE_MIG_ENABLE, 0, ok
		}
		return nvml.DEVICE_MIG_DISABLE, 0, ok
	}
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, ok }
	d.GetMigDeviceHandleByIndexFunc = func(k int) (nvml.Device, nvml.Return) {
		if k >= len(b.mig) {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return b.mig[k], ok
	}
	d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { b.energy += 31_000; return b.energy, lost(ok) }
	d.GetFieldValuesFunc = func(v []nvml.FieldValue) nvml.Return {
		binary.NativeEndian.PutUint32(v[0].Value[:], 310_500)
		return lost(ok)
	}
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 290_000, lost(ok) }
	d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 97, Memory: 40}, lost(ok) }
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 0x45, lost(ok) }
	d.GetClockInfoFunc = func(k nvml.ClockType) (uint32, nvml.Return) { return 1000 + uint32(k), lost(ok) }
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, lost(ok) }
	d.GetEncoderUtilizationFunc = func() (uint32, uint32, nvml.Return) { return 5, 1, lost(ok) }
	d.GetDecoderUtilizationFunc = func() (uint32, uint32, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED }
	d.GetTotalEccErrorsFunc = func(k nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
		return 7 + uint64(k), lost(ok)
	}
	d.GetPcieReplayCounterFunc = func() (int, nvml.Return) { return 2, lost(ok) }
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 3, 1, false, false, lost(ok) }
	d.GetRetiredPagesFunc = func(nvml.PageRetirementCause) ([]uint64, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return ok }
	d.GpmQueryDeviceSupportFunc = func() (nvml.GpmSupport, nvml.Return) {
		if b.gpm {
			return nvml.GpmSupport{IsSupportedDevice: 1}, ok
		}
		return nvml.GpmSupport{}, ok
	}
	d.GpmSampleGetFunc = func(s nvml.GpmSample) nvml.Return { s.(*sample).ratio = 50; return lost(ok) }
	d.GpmMigSampleGetFunc = func(gi int, s nvml.GpmSample) nvml.Return { s.(*sample).ratio = float64(gi); return lost(ok) }
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 42, UsedGpuMemory: 123 << 20}, {Pid: 43, UsedGpuMemory: ^uint64(0)}}, ok
	}
	return b
}

// instance is a MIG device.
func instance(k int) *mock.Device {
	d := &mock.Device{}
	d.GetUUIDFunc = func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d", k), ok }
	d.GetGpuInstanceIdFunc = func() (int, nvml.Return) { return 7 + k, ok }
	d.GetComputeInstanceIdFunc = func() (int, nvml.Return) { return 0, ok }
	d.GetAttributesFunc = func() (nvml.DeviceAttributes, nvml.Return) {
		return nvml.DeviceAttributes{MultiprocessorCount: 16, GpuInstanceSliceCount: 1, ComputeInstanceSliceCount: 1, MemorySizeMB: 17920}, ok
	}
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{Total: 17920 << 20, Used: 10 << 20}, ok }
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, ok }
	return d
}

func (m *machine) lib() nvml.Interface {
	l := &mock.Interface{}
	l.InitFunc = func() nvml.Return { m.inits++; return ok }
	l.ShutdownFunc = func() nvml.Return { m.inits--; return ok }
	l.ErrorStringFunc = func(r nvml.Return) string { return fmt.Sprintf("nvml error %d", int(r)) }
	l.SystemGetDriverVersionFunc = func() (string, nvml.Return) { return "580.65.06", ok }
	l.DeviceGetCountFunc = func() (int, nvml.Return) { return len(m.boards), ok }
	l.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) { return &m.boards[i].Device, ok }
	l.GpmSampleAllocFunc = func() (nvml.GpmSample, nvml.Return) { m.samples++; return &sample{}, ok }
	l.GpmSampleFreeFunc = func(nvml.GpmSample) nvml.Return { m.samples--; return ok }
	l.GpmMetricsGetFunc = func(g *nvml.GpmMetricsGetType) nvml.Return {
		for i := range g.NumMetrics {
			x := &g.Metrics[i]
			x.Value, x.NvmlReturn = g.Sample2.(*sample).ratio, uint32(ok)
			if nvml.GpmMetricId(x.MetricId) == nvml.GPM_METRIC_FP64_UTIL {
				x.NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
			}
		}
		return ok
	}
	set := &mock.EventSet{}
	set.FreeFunc = func() nvml.Return { return ok }
	set.WaitFunc = func(ms uint32) (nvml.EventData, nvml.Return) {
		if ms != 0 {
			panic("the source must not wait")
		}
		if len(m.events) == 0 {
			return nvml.EventData{}, nvml.ERROR_TIMEOUT
		}
		e := m.events[0]
		m.events = m.events[1:]
		return e, ok
	}
	l.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return set, ok }
	ext := &mock.ExtendedInterface{}
	ext.LookupSymbolFunc = func(name string) error {
		if m.missing[name] {
			return errors.New("undefined symbol")
		}
		return nil
	}
	l.ExtensionsFunc = func() nvml.ExtendedInterface { return ext }
	return l
}

func open(t *testing.T, m *machine) *Source {
	t.Helper()
	s := newSource(Settings{Sampling: 10 * time.Millisecond, Slow: time.Hour, GPM: true, Processes: true}, m.lib())
	require.NoError(t, s.Open())
	t.Cleanup(func() {
		if m.inits > 0 {
			require.NoError(t, s.Close())
		}
		assert.Zero(t, m.inits)
		assert.Zero(t, m.samples, "GPM samples are freed")
	})
	return s
}

func read(t *testing.T, s *Source) *gpudata.Batch {
	t.Helper()
	b := &gpudata.Batch{}
	require.NoError(t, s.Read(b))
	return b
}

func value(b *gpudata.Batch, device int, q gpudata.Quantity) (v gpudata.Value, ok bool) {
	for _, x := range b.Values {
		if int(x.Device) == device && x.Quantity == q {
			return x, true
		}
	}
	return v, false
}

func TestValuesAreInBaseUnits(t *testing.T) {
	m := newMachine(2)
	s := open(t, m)
	d := s.Devices()[1]
	assert.Equal(t, "GPU-1", d.ID)
	assert.Equal(t, "00000000:A1:00.0", d.PCIBDF)
	assert.Equal(t, "gpm", d.Source)
	assert.Equal(t, 700.0, d.Limits.Power)
	before := time.Now().UnixNano()
	b := read(t, s)
	_, has := value(b, 0, gpudata.SMUtilization)
	assert.False(t, has, "a ratio needs two samples")
	for q, want := range map[gpudata.Quantity]float64{
		gpudata.Energy: 5031, gpudata.Power: 310.5, gpudata.Utilization: 0.97, gpudata.Throttle: 0x44,
		gpudata.ClockSM: 1001e6, gpudata.ClockMemory: 1002e6, gpudata.Temperature: 61,
		gpudata.MemoryUsed: 1000, gpudata.MemoryLimit: 150754820096, gpudata.MemoryReserved: 600,
		gpudata.EncoderUtilization: 0.05, gpudata.ECCCorrected: 7, gpudata.ECCUncorrected: 8, gpudata.PCIeReplays: 2,
		gpudata.RemappedCorrected: 3, gpudata.RemappedUncorrected: 1, gpudata.RemapFailed: 0,
	} {
		v, ok := value(b, 1, q)
		require.True(t, ok, q.String())
		assert.InDelta(t, want, v.V, 1e-9*want+1e-12, q.String())
		assert.GreaterOrEqual(t, v.Time, before)
		assert.LessOrEqual(t, v.Time, time.Now().UnixNano())
	}
	_, has = value(b, 1, gpudata.DecoderUtilization)
	assert.False(t, has)
	assert.Equal(t, []gpudata.Process{{Time: b.Processes[0].Time, Device: 0, PID: 42, Bytes: 123 << 20}}, b.Processes[:1])
	require.Len(t, b.Processes, 4)
	assert.Equal(t, gpudata.Process{Time: b.Processes[1].Time, Device: 0, PID: 43, Bytes: gpudata.BytesUnknown}, b.Processes[1], "it is there")
	assert.True(t, b.Listed)

	time.Sleep(5 * time.Millisecond)
	b = read(t, s)
	v, has := value(b, 1, gpudata.SMUtilization)
	require.True(t, has)
	assert.Equal(t, 0.5, v.V)
	_, has = value(b, 1, gpudata.PipeFP64)
	assert.False(t, has)
	_, has = value(b, 1, gpudata.ECCCorrected)
	assert.False(t, has, "slow readings come with the slow round")
	first, _ := value(b, 1, gpudata.PCIeTransmit)
	time.Sleep(5 * time.Millisecond)
	second, _ := value(read(t, s), 1, gpudata.PCIeTransmit)
	assert.InDelta(t, 50*(1<<20)*float64(second.Time-first.Time)*1e-9, second.V-first.V, 1, "MiB/s, integrated")
}

func TestFunctionsThatTheDriverLacksAreNotCalled(t *testing.T) {
	m := newMachine(1)
	m.missing = map[string]bool{"nvmlGpmQueryDeviceSupport": true, "nvmlDeviceGetMemoryInfo_v2": true, "nvmlDeviceGetTotalEnergyConsumption": true, "nvmlDeviceGetMigMode": true}
	d := &m.boards[0].Device
	d.GpmQueryDeviceSupportFunc, d.GetMemoryInfo_v2Func, d.GetTotalEnergyConsumptionFunc, d.GetMigModeFunc = nil, nil, nil, nil // panic when called
	s := open(t, m)
	b := read(t, s)
	v, _ := value(b, 0, gpudata.MemoryUsed)
	assert.Equal(t, 2000.0, v.V)
	_, has := value(b, 0, gpudata.Energy)
	assert.False(t, has)
	assert.Equal(t, "nvml", s.Devices()[0].Source)
}

func TestWhatIsNotSupportedIsAskedOnce(t *testing.T) {
	m := newMachine(1)
	d := &m.boards[0].Device
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	d.GetFieldValuesFunc = func(v []nvml.FieldValue) nvml.Return {
		v[0].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		return ok
	}
	s := open(t, m)
	for range 5 {
		v, _ := value(read(t, s), 0, gpudata.Power)
		assert.Equal(t, 290.0, v.V, "the average stands in for the instant")
	}
	assert.Len(t, d.GetTemperatureCalls(), 1)
}

func TestALostBoardFailsAndComesBack(t *testing.T) {
	m := newMachine(2)
	s := open(t, m)
	read(t, s)
	m.boards[0].lost = true
	b := read(t, s)
	assert.Equal(t, []gpudata.Health{gpudata.HealthFailed, gpudata.HealthOK}, b.Health)
	_, has := value(b, 0, gpudata.Power)
	assert.False(t, has)
	_, has = value(b, 1, gpudata.Power)
	assert.True(t, has)
	m.boards[0].lost = false
	assert.Equal(t, gpudata.HealthOK, read(t, s).Health[0])
}

func TestInstancesHaveTheirOwnRatios(t *testing.T) {
	m := newMachine(1)
	m.boards[0].mig = []*mock.Device{instance(0), instance(1)}
	s := open(t, m)
	require.Len(t, s.Devices(), 3)
	d := s.Devices()[2]
	assert.Equal(t, "MIG-1", d.ID)
	assert.Equal(t, "GPU-0", d.Parent)
	assert.Equal(t, "1g.18gb", d.MIG.Profile)
	assert.Equal(t, 16, d.MIG.SMs)
	read(t, s)
	b := read(t, s)
	v, has := value(b, 2, gpudata.SMUtilization)
	require.True(t, has)
	assert.InDelta(t, 0.08, v.V, 1e-12, "of GPU instance 8")
	v, _ = value(b, 2, gpudata.Utilization)
	assert.InDelta(t, 0.08, v.V, 1e-12)
	v, _ = value(b, 0, gpudata.Utilization)
	assert.InDelta(t, 0.97, v.V, 1e-12)
	_, has = value(b, 2, gpudata.Energy)
	assert.False(t, has)

	m.boards[0].mig = m.boards[0].mig[:1] // taken apart while running
	s.slow = time.Time{}
	b = read(t, s)
	assert.True(t, b.Changed)
	assert.Len(t, s.Devices(), 2)
}

func TestXIDsAreEvents(t *testing.T) {
	m := newMachine(2)
	s := open(t, m)
	read(t, s)
	for range 2 {
		m.events = append(m.events, nvml.EventData{Device: &m.boards[1].Device, EventType: nvml.EventTypeXidCriticalError, EventData: 79})
	}
	b := read(t, s)
	require.Len(t, b.Events, 2)
	assert.Equal(t, uint16(1), b.Events[0].Device)
	assert.Equal(t, int64(79), b.Events[0].Code)
	v, _ := value(b, 1, gpudata.XIDs)
	assert.Equal(t, 2.0, v.V)
	assert.Empty(t, read(t, s).Events)
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	for ret, want := range map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND: "NVML library not found (install the NVIDIA driver): not available",
		nvml.ERROR_DRIVER_NOT_LOADED: "NVIDIA driver not loaded: not available",
		nvml.ERROR_UNKNOWN:           "nvmlInit: nvml error 999",
	} {
		l := newMachine(0).lib().(*mock.Interface)
		l.InitFunc = func() nvml.Return { return ret }
		require.EqualError(t, newSource(Settings{}, l).Open(), want)
	}
	m := newMachine(0)
	require.ErrorIs(t, newSource(Settings{}, m.lib()).Open(), gpudata.ErrUnavailable)
	assert.Zero(t, m.inits)
}
