// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package nvmlsource

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a driver with boards.
type machine struct {
	boards  []*board
	missing map[string]bool // C functions that the driver lacks
	events  []nvml.EventData
	inits   int
	samples int // GPM samples allocated
	made    int
	ratios  map[nvml.GpmSample]float64 // percent; the ratio that two samples give is that of the newer
}

type board struct {
	fakeDevice
	uuid   string
	energy uint64 // mJ
	lost   bool
	gpm    bool
	mig    []*fakeDevice
}

const ok = nvml.Success

func newMachine(n int) *machine {
	m := &machine{missing: map[string]bool{}, ratios: map[nvml.GpmSample]float64{}}
	for i := range n {
		m.boards = append(m.boards, newBoard(m, i))
	}
	return m
}

func newBoard(m *machine, i int) *board {
	b := &board{uuid: fmt.Sprintf("GPU-%d", i), energy: 5_000_000, gpm: true}
	d := &b.fakeDevice
	lost := func(ret nvml.Return) nvml.Return {
		if b.lost {
			return nvml.ErrorGPUIsLost
		}
		return ret
	}
	d.GetUUIDFunc = func() (string, nvml.Return) { return b.uuid, ok }
	d.GetNameFunc = func() (string, nvml.Return) { return "NVIDIA H200", ok }
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		var p nvml.PciInfo
		for k, c := range []byte(fmt.Sprintf("00000000:%02X:00.0", 0xa0+i)) {
			p.BusID[k] = c
		}
		return p, ok
	}
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: 150754820096, Used: 2000, Free: 1}, lost(ok)
	}
	d.GetMemoryInfoV2Func = func() (nvml.MemoryV2, nvml.Return) {
		return nvml.MemoryV2{Total: 150754820096, Used: 1000, Reserved: 600}, lost(ok)
	}
	d.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) { return 700_000, ok }
	d.GetMaxPcieLinkGenerationFunc = func() (int, nvml.Return) { return 5, ok }
	d.GetMaxPcieLinkWidthFunc = func() (int, nvml.Return) { return 16, ok }
	d.GetMigModeFunc = func() (int, int, nvml.Return) {
		if b.mig != nil {
			return nvml.DeviceMIGEnable, 0, ok
		}
		return 0, 0, ok
	}
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, ok }
	d.GetMigDeviceHandleByIndexFunc = func(k int) (nvml.Device, nvml.Return) {
		if k >= len(b.mig) {
			return nil, nvml.ErrorNotFound
		}
		return b.mig[k], ok
	}
	d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { b.energy += 31_000; return b.energy, lost(ok) }
	d.GetFieldValuesFunc = func(v []nvml.FieldValue) nvml.Return {
		binary.NativeEndian.PutUint32(v[0].Value[:], 310_500)
		return lost(ok)
	}
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 290_000, lost(ok) }
	d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		return nvml.Utilization{Gpu: 97, Memory: 40},
			lost(ok)
	}
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 0x45, lost(ok) }
	d.GetClockInfoFunc = func(k nvml.ClockType) (uint32, nvml.Return) { return 1000 + uint32(k), lost(ok) }
	d.GetTemperatureFunc = func() (uint32, nvml.Return) { return 61, lost(ok) }
	d.GetEncoderUtilizationFunc = func() (uint32, nvml.Return) { return 5, lost(ok) }
	d.GetDecoderUtilizationFunc = func() (uint32, nvml.Return) { return 0, nvml.ErrorNotSupported }
	d.GetTotalEccErrorsFunc = func(k nvml.MemoryErrorType) (uint64, nvml.Return) {
		return 7 + uint64(k), lost(ok)
	}
	d.GetPcieReplayCounterFunc = func() (int, nvml.Return) { return 2, lost(ok) }
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 3, 1, false, false, lost(ok) }
	d.GetRetiredPagesFunc = func(nvml.PageRetirementCause) (int, nvml.Return) { return 0, nvml.ErrorNotSupported }
	d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return ok }
	d.GpmQueryDeviceSupportFunc = func() (nvml.GpmSupport, nvml.Return) {
		if b.gpm {
			return nvml.GpmSupport{IsSupportedDevice: 1}, ok
		}
		return nvml.GpmSupport{}, ok
	}
	d.GpmSampleGetFunc = func(s nvml.GpmSample) nvml.Return { m.ratios[s] = 50; return lost(ok) }
	d.GpmMigSampleGetFunc = func(gi int, s nvml.GpmSample) nvml.Return { m.ratios[s] = float64(gi); return lost(ok) }
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 42, UsedGpuMemory: 123 << 20}, {Pid: 43, UsedGpuMemory: ^uint64(0)}}, ok
	}
	return b
}

// instance is a MIG device.
func instance(k int) *fakeDevice {
	d := &fakeDevice{}
	d.GetUUIDFunc = func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d", k), ok }
	d.GetGpuInstanceIDFunc = func() (int, nvml.Return) { return 7 + k, ok }
	d.GetComputeInstanceIDFunc = func() (int, nvml.Return) { return 0, ok }
	d.GetAttributesFunc = func() (nvml.DeviceAttributes, nvml.Return) {
		return nvml.DeviceAttributes{
			MultiprocessorCount: 16, GpuInstanceSliceCount: 1, ComputeInstanceSliceCount: 1,
			MemorySizeMB: 17920,
		}, ok
	}
	d.GetMemoryInfoV2Func = func() (nvml.MemoryV2, nvml.Return) {
		return nvml.MemoryV2{Total: 17920 << 20, Used: 10 << 20},
			ok
	}
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, ok }
	return d
}

// lib is the machine's library.
func (m *machine) lib() *fakeLibrary { return &fakeLibrary{machine: m} }

type fakeLibrary struct {
	*machine
	init nvml.Return
}

func (l *fakeLibrary) Init() nvml.Return {
	if l.init == ok {
		l.inits++
	}
	return l.init
}

func (l *fakeLibrary) Shutdown() nvml.Return                         { l.inits--; return ok }
func (l *fakeLibrary) Has(symbol string) bool                        { return !l.missing[symbol] }
func (l *fakeLibrary) ErrorString(r nvml.Return) string              { return fmt.Sprintf("nvml error %d", int(r)) }
func (l *fakeLibrary) SystemGetDriverVersion() (string, nvml.Return) { return "580.65.06", ok }
func (l *fakeLibrary) DeviceGetCount() (int, nvml.Return)            { return len(l.boards), ok }
func (l *fakeLibrary) EventSetCreate() (nvml.EventSet, nvml.Return)  { return 1, ok }
func (l *fakeLibrary) EventSetFree(nvml.EventSet) nvml.Return        { return ok }
func (l *fakeLibrary) GpmSampleFree(nvml.GpmSample) nvml.Return      { l.samples--; return ok }
func (l *fakeLibrary) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	return &l.boards[i].fakeDevice, ok
}

func (l *fakeLibrary) GpmSampleAlloc() (nvml.GpmSample, nvml.Return) {
	l.samples++
	l.made++
	return nvml.GpmSample(l.made), ok
}

func (l *fakeLibrary) GpmMetricsGet(g *nvml.GpmMetricsGetType) nvml.Return {
	for i := range g.NumMetrics {
		x := &g.Metrics[i]
		x.Value, x.NvmlReturn = l.ratios[g.Sample2], uint32(ok)
		if nvml.GpmMetricID(x.MetricID) == nvml.GPMMetricFP64Util {
			x.NvmlReturn = uint32(nvml.ErrorNotSupported)
		}
	}
	return ok
}

func (l *fakeLibrary) EventSetWait(_ nvml.EventSet, ms uint32) (nvml.EventData, nvml.Return) {
	if ms != 0 {
		panic("the source must not wait")
	}
	if len(l.events) == 0 {
		return nvml.EventData{}, nvml.ErrorTimeout
	}
	e := l.events[0]
	l.events = l.events[1:]
	return e, ok
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
	assert.Equal(t, gpudata.Process{Time: b.Processes[1].Time, Device: 0, PID: 43, Bytes: gpudata.BytesUnknown},
		b.Processes[1], "it is there")
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
	m.missing = map[string]bool{
		"nvmlGpmQueryDeviceSupport": true, "nvmlDeviceGetMemoryInfo_v2": true,
		"nvmlDeviceGetTotalEnergyConsumption": true, "nvmlDeviceGetMigMode": true,
	}
	d := &m.boards[0].fakeDevice
	// panic when called
	d.GpmQueryDeviceSupportFunc, d.GetMemoryInfoV2Func, d.GetTotalEnergyConsumptionFunc, d.GetMigModeFunc = nil, nil, nil,
		nil
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
	d := &m.boards[0].fakeDevice
	asked := 0
	d.GetTemperatureFunc = func() (uint32, nvml.Return) { asked++; return 0, nvml.ErrorNotSupported }
	d.GetFieldValuesFunc = func(v []nvml.FieldValue) nvml.Return {
		v[0].NvmlReturn = uint32(nvml.ErrorNotSupported)
		return ok
	}
	s := open(t, m)
	for range 5 {
		v, _ := value(read(t, s), 0, gpudata.Power)
		assert.Equal(t, 290.0, v.V, "the average stands in for the instant")
	}
	assert.Equal(t, 1, asked)
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
	m.boards[0].mig = []*fakeDevice{instance(0), instance(1)}
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
		m.events = append(m.events, nvml.EventData{
			Device: &m.boards[1].fakeDevice, EventType: nvml.EventTypeXidCriticalError,
			EventData: 79,
		})
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
		nvml.ErrorLibraryNotFound: "NVML library not found (install the NVIDIA driver): not available",
		nvml.ErrorDriverNotLoaded: "NVIDIA driver not loaded: not available",
		nvml.ErrorUnknown:         "nvmlInit: nvml error 999",
	} {
		l := newMachine(0).lib()
		l.init = ret
		require.EqualError(t, newSource(Settings{}, l).Open(), want)
	}
	m := newMachine(0)
	require.ErrorIs(t, newSource(Settings{}, m.lib()).Open(), gpudata.ErrUnavailable)
	assert.Zero(t, m.inits)
}
