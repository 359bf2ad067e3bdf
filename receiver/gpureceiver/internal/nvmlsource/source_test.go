// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDevice implements functions by name, with the arguments after the device. Unexpected calls
// panic.
type fakeDevice map[string]func(args []any) nvml.Return

// machine is a driver with boards.
type machine struct {
	boards  []*board
	handles []fakeDevice    // by handle - 1
	missing map[string]bool // C functions that the driver lacks
	events  []nvml.EventData
	// operational are the events of a driver that has operational ones, with the XIDs of their contexts.
	operational []operationalEvent
	contexts    []uint32
	config      []nvml.OperationalEventConfig
	inits       int
	samples     int // GPM samples allocated
	made        int
	ratios      map[nvml.Handle]float64 // percent; the ratio of two samples belongs to the newer one
}

type board struct {
	fakeDevice
	uuid   string
	energy uint64 // mJ
	lost   bool
	gpm    bool
	mig    []fakeDevice
}

const ok = nvml.Success

func newMachine(n int) *machine {
	m := &machine{missing: map[string]bool{}, ratios: map[nvml.Handle]float64{}}
	for i := range n {
		m.boards = append(m.boards, newBoard(m, i))
	}
	return m
}

// handle returns the handle of a device.
func (m *machine) handle(d fakeDevice) uint64 {
	for i := range m.handles {
		if reflect.ValueOf(m.handles[i]).Pointer() == reflect.ValueOf(d).Pointer() {
			return uint64(i + 1)
		}
	}
	m.handles = append(m.handles, d)
	return uint64(len(m.handles))
}

// numbers returns a function that writes results to the arguments of a call.
func numbers(ret nvml.Return, v ...uint64) func([]any) nvml.Return {
	return func(args []any) nvml.Return {
		for i := range v {
			*args[len(args)-len(v)+i].(*uint64) = v[i]
		}
		return ret
	}
}

func name(s string) func([]any) nvml.Return {
	return func(args []any) nvml.Return {
		copy(args[0].(*[96]byte)[:], s)
		return ok
	}
}

func newBoard(m *machine, i int) *board {
	b := &board{fakeDevice: fakeDevice{}, uuid: fmt.Sprintf("GPU-%d", i), energy: 5_000_000, gpm: true}
	// alive calls fn unless the board is lost.
	alive := func(fn func(args []any) nvml.Return) func([]any) nvml.Return {
		return func(args []any) nvml.Return {
			if ret := fn(args); !b.lost || ret != ok {
				return ret
			}
			return nvml.ErrorGPUIsLost
		}
	}
	const lower = 1 << 32 // garbage after a 32-bit number
	maps.Copy(b.fakeDevice, map[string]func([]any) nvml.Return{
		"nvmlDeviceGetUUID":                  name(b.uuid),
		"nvmlDeviceGetName":                  name("NVIDIA H200"),
		"nvmlDeviceGetMinorNumber":           numbers(ok, uint64(i+2)), // minor numbers need not be indexes
		"nvmlDeviceGetNumGpuCores":           numbers(ok, 132*128),
		"nvmlDeviceGetCudaComputeCapability": numbers(ok, 9, 0),
		"nvmlDeviceGetPciInfo_v3": func(args []any) nvml.Return {
			copy(args[0].(*nvml.PciInfo).BusID[:], fmt.Sprintf("00000000:%02X:00.0", 0xa0+i))
			return ok
		},
		"nvmlDeviceGetMemoryInfo_v2": alive(func(args []any) nvml.Return {
			*args[0].(*nvml.MemoryV2) = nvml.MemoryV2{Total: 150754820096, Used: 1000, Reserved: 600}
			return ok
		}),
		"nvmlDeviceGetEnforcedPowerLimit":    numbers(ok, 700_000),
		"nvmlDeviceGetMaxPcieLinkGeneration": numbers(ok, 5),
		"nvmlDeviceGetMaxPcieLinkWidth":      numbers(ok, 16),
		"nvmlDeviceGetMigMode": func(args []any) nvml.Return {
			if b.mig != nil {
				return numbers(ok, nvml.DeviceMIGEnable, 0)(args)
			}
			return numbers(ok, 0, 0)(args)
		},
		"nvmlDeviceGetMaxMigDeviceCount": numbers(ok, 7),
		"nvmlDeviceGetMigDeviceHandleByIndex": func(args []any) nvml.Return {
			if k := args[0].(int); k < len(b.mig) {
				return numbers(ok, m.handle(b.mig[k]))(args)
			}
			return nvml.ErrorNotFound
		},
		"nvmlDeviceGetTotalEnergyConsumption": alive(func(args []any) nvml.Return {
			b.energy += 31_000
			return numbers(ok, b.energy)(args)
		}),
		"nvmlDeviceGetFieldValues": alive(func(args []any) nvml.Return {
			binary.NativeEndian.PutUint32(args[1].(*nvml.FieldValue).Value[:], 310_500)
			return ok
		}),
		"nvmlDeviceGetPowerUsage":                   alive(numbers(ok, 290_000)),
		"nvmlDeviceGetUtilizationRates":             alive(numbers(ok, 97+40*lower)),
		"nvmlDeviceGetFanSpeed":                     alive(numbers(ok, 30)),
		"nvmlDeviceGetCurrentClocksThrottleReasons": alive(numbers(ok, 0x45)),
		"nvmlDeviceGetClockInfo": alive(func(args []any) nvml.Return {
			return numbers(ok, 1000+uint64(args[0].(int)))(args)
		}),
		"nvmlDeviceGetTemperature":        alive(numbers(ok, 61)),
		"nvmlDeviceGetEncoderUtilization": alive(numbers(ok, 5, 1)),
		"nvmlDeviceGetDecoderUtilization": numbers(nvml.ErrorNotSupported, 0, 0),
		"nvmlDeviceGetTotalEccErrors": alive(func(args []any) nvml.Return {
			return numbers(ok, 7+uint64(args[0].(int)))(args)
		}),
		"nvmlDeviceGetPcieReplayCounter": alive(numbers(ok, 2)),
		"nvmlDeviceGetRemappedRows":      alive(numbers(ok, 3, 1, 0, 0)),
		"nvmlDeviceGetRetiredPages":      func([]any) nvml.Return { return nvml.ErrorNotSupported },
		"nvmlDeviceRegisterEvents":       func([]any) nvml.Return { return ok },
		"nvmlGpmQueryDeviceSupport": func(args []any) nvml.Return {
			if b.gpm {
				args[0].(*nvml.GpmSupport).IsSupportedDevice = 1
			}
			return ok
		},
		"nvmlGpmSampleGet": alive(func(args []any) nvml.Return {
			m.ratios[args[0].(nvml.Handle)] = 50
			return ok
		}),
		"nvmlGpmMigSampleGet": alive(func(args []any) nvml.Return {
			m.ratios[args[1].(nvml.Handle)] = float64(args[0].(int))
			return ok
		}),
		"nvmlDeviceGetComputeRunningProcesses_v3": running(
			nvml.ProcessInfo{Pid: 42, UsedGpuMemory: 123 << 20}, nvml.ProcessInfo{Pid: 43, UsedGpuMemory: ^uint64(0)}),
	})
	return b
}

func running(list ...nvml.ProcessInfo) func([]any) nvml.Return {
	return func(args []any) nvml.Return {
		copy(unsafe.Slice(args[1].(*nvml.ProcessInfo), *args[0].(*uint64)), list)
		*args[0].(*uint64) = uint64(len(list))
		return ok
	}
}

// instance returns a MIG device.
func instance(k int) fakeDevice {
	return fakeDevice{
		"nvmlDeviceGetUUID":              name(fmt.Sprintf("MIG-%d", k)),
		"nvmlDeviceGetGpuInstanceId":     numbers(ok, uint64(7+k)),
		"nvmlDeviceGetComputeInstanceId": numbers(ok, 0),
		"nvmlDeviceGetAttributes_v2": func(args []any) nvml.Return {
			*args[0].(*nvml.DeviceAttributes) = nvml.DeviceAttributes{
				MultiprocessorCount: 16, GpuInstanceSliceCount: 1, ComputeInstanceSliceCount: 1, MemorySizeMB: 17920,
			}
			return ok
		},
		"nvmlDeviceGetMemoryInfo_v2": func(args []any) nvml.Return {
			*args[0].(*nvml.MemoryV2) = nvml.MemoryV2{Total: 17920 << 20, Used: 10 << 20}
			return ok
		},
		"nvmlDeviceGetComputeRunningProcesses_v3": running(),
	}
}

// lib returns the machine's library.
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

func (l *fakeLibrary) Has(function string) bool         { return !l.missing[function] }
func (l *fakeLibrary) ErrorString(r nvml.Return) string { return fmt.Sprintf("nvml error %d", int(r)) }

func (l *fakeLibrary) Call(function string, args ...any) nvml.Return {
	switch function {
	case "nvmlShutdown":
		l.inits--
		return ok
	case "nvmlSystemGetDriverVersion":
		return name("580.65.06")(args)
	case "nvmlDeviceGetCount_v2":
		return numbers(ok, uint64(len(l.boards)))(args)
	case "nvmlDeviceGetHandleByIndex_v2":
		return numbers(ok, l.handle(l.boards[args[0].(int)].fakeDevice))(args)
	case "nvmlEventSetCreate":
		return numbers(ok, 1)(args)
	case "nvmlEventSetFree":
		return ok
	case "nvmlGpmSampleAlloc":
		l.samples++
		l.made++
		return numbers(ok, uint64(l.made))(args)
	case "nvmlGpmSampleFree":
		l.samples--
		return ok
	case "nvmlGpmMetricsGet":
		g := args[0].(*nvml.GpmMetricsGetType)
		for i := range g.NumMetrics {
			x := &g.Metrics[i]
			x.Value, x.NvmlReturn = l.ratios[g.Samples[1]], uint32(ok)
			if x.MetricID == gpuquantity.PipeFP64.Info().GPM.ID {
				x.NvmlReturn = uint32(nvml.ErrorNotSupported)
			}
		}
		return ok
	case "nvmlEventSetRegisterGpuOperationalEvents_v1":
		if l.operational == nil {
			return nvml.ErrorNotSupported
		}
		l.config = append(l.config, *args[1].(*nvml.OperationalEventConfig))
		return ok
	case "nvmlEventSetWait_v3":
		e := args[1].(*nvml.EventWait)
		if e.TimeoutMs != 0 {
			panic("the source must not wait")
		}
		if len(l.operational) == 0 {
			return nvml.ErrorTimeout
		}
		*e, l.contexts = l.operational[0].EventWait, l.operational[0].xids
		l.operational = l.operational[1:]
		return ok
	case "nvmlEventSetGetContextCount_v1":
		args[1].(*nvml.EventContextCount).Count = uint32(len(l.contexts))
		return ok
	case "nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1":
		x := args[1].(*nvml.EventContextLegacyXID)
		if x.XIDCode = l.contexts[x.Index]; x.XIDCode == 0 {
			return nvml.ErrorNotFound // the context is of another type
		}
		return ok
	case "nvmlEventSetWait_v2":
		if args[2] != 0 {
			panic("the source must not wait")
		}
		if len(l.events) == 0 {
			return nvml.ErrorTimeout
		}
		*args[1].(*nvml.EventData) = l.events[0]
		l.events = l.events[1:]
		return ok
	}
	if l.missing[function] {
		return nvml.ErrorFunctionNotFound
	}
	return l.handles[args[0].(nvml.Handle)-1][function](args[1:])
}

func open(t *testing.T, m *machine) *source {
	t.Helper()
	s := newSource(Settings{Sampling: time.Minute, Slow: time.Hour, GPM: true, Processes: true}, m.lib())
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

func read(t *testing.T, s *source) *gpudata.Batch {
	t.Helper()
	b := &gpudata.Batch{}
	require.NoError(t, s.Read(b))
	return b
}

func value(b *gpudata.Batch, device int, q gpuquantity.Quantity) (v gpudata.Value, ok bool) {
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
	_, has := value(b, 0, gpuquantity.SMUtilization)
	assert.False(t, has, "a ratio needs two samples")
	for q, want := range map[gpuquantity.Quantity]float64{
		gpuquantity.Energy: 5031, gpuquantity.Power: 310.5, gpuquantity.Utilization: 0.97, gpuquantity.Throttle: 0x44,
		gpuquantity.ClockSM: 1001e6, gpuquantity.ClockMemory: 1002e6, gpuquantity.Temperature: 61,
		gpuquantity.MemoryUsed: 1000, gpuquantity.MemoryLimit: 150754820096, gpuquantity.MemoryReserved: 600,
		gpuquantity.MemoryActivity: 0.4, gpuquantity.FanSpeed: 0.3, // the second number of the utilization
		gpuquantity.EncoderUtilization: 0.05, gpuquantity.ECCCorrected: 7, gpuquantity.ECCUncorrected: 8, gpuquantity.PCIeReplays: 2,
		gpuquantity.RemappedCorrected: 3, gpuquantity.RemappedUncorrected: 1, gpuquantity.RemapFailed: 0,
	} {
		v, ok := value(b, 1, q)
		require.True(t, ok, q.String())
		assert.InDelta(t, want, v.V, 1e-9*want+1e-12, q.String())
		assert.GreaterOrEqual(t, v.Time, before)
		assert.LessOrEqual(t, v.Time, time.Now().UnixNano())
	}
	_, has = value(b, 1, gpuquantity.DecoderUtilization)
	assert.False(t, has)
	assert.Equal(t, []gpudata.ProcessMemory{{Device: s.Devices()[0].ID, PID: 42, Bytes: 123 << 20}}, b.Processes[:1])
	require.Len(t, b.Processes, 4)
	assert.Equal(t, gpudata.ProcessMemory{Device: s.Devices()[0].ID, PID: 43, Bytes: gpudata.BytesUnknown},
		b.Processes[1], "it is there")
	assert.NotZero(t, b.Listed)

	time.Sleep(5 * time.Millisecond)
	b = read(t, s)
	v, has := value(b, 1, gpuquantity.SMUtilization)
	require.True(t, has)
	assert.Equal(t, 0.5, v.V)
	_, has = value(b, 1, gpuquantity.PipeFP64)
	assert.False(t, has)
	_, has = value(b, 1, gpuquantity.ECCCorrected)
	assert.False(t, has, "slow readings come with the slow round")
	first, _ := value(b, 1, gpuquantity.PCIeTransmit)
	time.Sleep(5 * time.Millisecond)
	second, _ := value(read(t, s), 1, gpuquantity.PCIeTransmit)
	assert.InDelta(t, 50*(1<<20)*float64(second.Time-first.Time)*1e-9, second.V-first.V, 1, "MiB/s, integrated")
}

func TestFunctionsThatTheDriverLacksAreNotCalled(t *testing.T) {
	m := newMachine(1)
	m.missing = map[string]bool{
		"nvmlGpmQueryDeviceSupport": true, "nvmlDeviceGetMemoryInfo_v2": true,
		"nvmlDeviceGetTotalEnergyConsumption": true, "nvmlDeviceGetMigMode": true,
	}
	s := open(t, m)
	b := read(t, s)
	for _, q := range []gpuquantity.Quantity{gpuquantity.MemoryUsed, gpuquantity.Energy} {
		_, has := value(b, 0, q)
		assert.False(t, has, q)
	}
	assert.Equal(t, "nvml", s.Devices()[0].Source)
	assert.Zero(t, s.Devices()[0].PowerWindow)
}

func TestUnsupportedCallsAreMadeOnce(t *testing.T) {
	m := newMachine(1)
	d := m.boards[0].fakeDevice
	asked := 0
	d["nvmlDeviceGetTemperature"] = func([]any) nvml.Return { asked++; return nvml.ErrorNotSupported }
	d["nvmlDeviceGetFieldValues"] = func(args []any) nvml.Return {
		args[1].(*nvml.FieldValue).NvmlReturn = uint32(nvml.ErrorNotSupported)
		return ok
	}
	s := open(t, m)
	assert.Equal(t, time.Second, s.Devices()[0].PowerWindow)
	for range 5 {
		v, _ := value(read(t, s), 0, gpuquantity.Power)
		assert.Equal(t, 290.0, v.V, "the average replaces the instant")
	}
	assert.Equal(t, 1, asked)
}

// While a driver reconfigures a board, it returns "not supported" for supported calls.
func TestFormerlySupportedCallsAreRepeated(t *testing.T) {
	m := newMachine(1)
	d := m.boards[0].fakeDevice
	energy, asked := d["nvmlDeviceGetTotalEnergyConsumption"], 0
	s := open(t, m)
	_, has := value(read(t, s), 0, gpuquantity.Energy)
	require.True(t, has)
	d["nvmlDeviceGetTotalEnergyConsumption"] = func([]any) nvml.Return { asked++; return nvml.ErrorNotSupported }
	for range 5 {
		_, has = value(read(t, s), 0, gpuquantity.Energy)
		require.False(t, has)
	}
	require.Equal(t, 1, asked)
	d["nvmlDeviceGetTotalEnergyConsumption"] = energy
	s.slow = time.Time{}
	_, has = value(read(t, s), 0, gpuquantity.Energy)
	require.True(t, has, "with the next slow readings")
}

// The library lists the devices at its initialization, so it is initialized again when none is
// left. A quantity that loses its permission is named for as long as it is denied; one that never
// had it is not.
func TestDeniedQuantitiesAreReported(t *testing.T) {
	m := newMachine(1)
	b := m.boards[0]
	power := b.fakeDevice["nvmlDeviceGetTotalEnergyConsumption"]
	b.fakeDevice["nvmlDeviceGetTemperature"] = func([]any) nvml.Return { return nvml.ErrorNoPermission }
	s := open(t, m)
	s.set.Slow = 0
	assert.Empty(t, read(t, s).Notices)
	b.fakeDevice["nvmlDeviceGetTotalEnergyConsumption"] = func([]any) nvml.Return { return nvml.ErrorNoPermission }
	for range 2 {
		notices := read(t, s).Notices
		require.Len(t, notices, 1)
		assert.Equal(t, gpudata.NoticePermission, notices[0].Kind)
		assert.Equal(t, []string{"gpu0"}, notices[0].Devices)
		assert.ErrorContains(t, notices[0].Err, "NVML denies energy ")
	}
	b.fakeDevice["nvmlDeviceGetTotalEnergyConsumption"] = power
	assert.Empty(t, read(t, s).Notices)
}

func TestASourceWithoutABoardIsOpenedAgain(t *testing.T) {
	m := newMachine(1)
	s := open(t, m)
	read(t, s)
	boards := m.boards
	m.boards, s.slow = nil, time.Time{}
	require.True(t, read(t, s).Changed, "so that the board counts as failed")
	require.Empty(t, s.Devices())
	s.slow = time.Time{}
	require.ErrorIs(t, s.Read(&gpudata.Batch{}), gpudata.ErrUnavailable)
	require.NoError(t, s.Close())
	m.boards = boards
	require.NoError(t, s.Open())
	_, has := value(read(t, s), 0, gpuquantity.Energy)
	require.True(t, has)
}

func TestALostBoardFailsAndReturns(t *testing.T) {
	m := newMachine(2)
	s := open(t, m)
	read(t, s)
	m.boards[0].lost = true
	b := read(t, s)
	assert.Equal(t, []gpudata.Health{gpudata.HealthFailed, gpudata.HealthOK}, b.Health)
	_, has := value(b, 0, gpuquantity.Power)
	assert.False(t, has)
	_, has = value(b, 1, gpuquantity.Power)
	assert.True(t, has)
	m.boards[0].lost = false
	assert.Equal(t, gpudata.HealthOK, read(t, s).Health[0])
}

func TestInstancesOfALostBoardFail(t *testing.T) {
	m := newMachine(2)
	m.boards[0].mig, m.boards[1].mig = []fakeDevice{instance(0)}, []fakeDevice{instance(1)}
	s := open(t, m)
	read(t, s)
	m.boards[0].lost = true
	failed, well := gpudata.HealthFailed, gpudata.HealthOK
	assert.Equal(t, []gpudata.Health{failed, failed, well, well}, read(t, s).Health)
	m.boards[0].lost = false
	assert.Equal(t, []gpudata.Health{well, well, well, well}, read(t, s).Health)
}

// A busy driver can take seconds for a call. A value must not have a time from before the call that
// read it.
func TestValuesOfSlowCallsHaveTheirOwnTimes(t *testing.T) {
	m := newMachine(1)
	s := open(t, m)
	s.set.Sampling = 100 * time.Millisecond
	var before [2]time.Time
	for i, function := range []string{"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetTemperature"} {
		fast := m.boards[0].fakeDevice[function]
		m.boards[0].fakeDevice[function] = func(args []any) nvml.Return {
			before[i] = time.Now() // the only call of a read
			time.Sleep(30 * time.Millisecond)
			return fast(args)
		}
	}
	b := read(t, s)
	for i, q := range []gpuquantity.Quantity{gpuquantity.Energy, gpuquantity.Temperature} {
		v, has := value(b, 0, q)
		require.True(t, has)
		assert.GreaterOrEqual(t, v.Time, before[i].UnixNano(), q.String())
	}
}

// Firmware that does not work gives boards neither a UUID nor any value.
func TestABoardThatSupportsNothingIsOmittedOrFails(t *testing.T) {
	m := newMachine(3)
	m.boards[0].fakeDevice["nvmlDeviceGetUUID"] = name("")
	for function := range m.boards[1].fakeDevice {
		if function != "nvmlDeviceGetUUID" {
			m.boards[1].fakeDevice[function] = func([]any) nvml.Return { return nvml.ErrorNotSupported }
		}
	}
	s := open(t, m)
	require.Len(t, s.Devices(), 2)
	b := read(t, s)
	for _, v := range b.Values {
		assert.True(t, v.Device == 1 || v.Quantity == gpuquantity.XIDs, "%v", v)
	}
	assert.Empty(t, s.Devices()[0].Model)
	assert.Zero(t, s.Devices()[0].Power, "an unknown limit is no limit of 0 W")
}

func TestInstancesHaveTheirOwnRatios(t *testing.T) {
	m := newMachine(1)
	m.boards[0].mig = []fakeDevice{instance(0), instance(1)}
	s := open(t, m)
	require.Len(t, s.Devices(), 3)
	d := s.Devices()[2]
	assert.Equal(t, "MIG-1", d.ID)
	assert.Equal(t, "GPU-0", d.Parent)
	assert.Equal(t, devicesamples.MIG{Profile: "1g.18gb", SMs: 16, BoardSMs: 132, Slices: 1, AllSlices: 8}, d.MIG)
	assert.Equal(t, "nvidia2/gi8", d.DeviceFile)
	assert.Equal(t, "nvidia2", s.Devices()[0].DeviceFile)
	assert.Equal(t, 16, d.MIG.SMs)
	read(t, s)
	b := read(t, s)
	v, has := value(b, 2, gpuquantity.SMUtilization)
	require.True(t, has)
	assert.InDelta(t, 0.08, v.V, 1e-12, "of GPU instance 8")
	v, _ = value(b, 2, gpuquantity.Utilization)
	assert.InDelta(t, 0.08, v.V, 1e-12)
	v, _ = value(b, 0, gpuquantity.Utilization)
	assert.InDelta(t, 0.97, v.V, 1e-12)
	_, has = value(b, 2, gpuquantity.Energy)
	assert.False(t, has)

	m.boards[0].mig = m.boards[0].mig[:1] // removed while running
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
			Device: nvml.Handle(m.handle(m.boards[1].fakeDevice)), EventType: nvml.EventTypeXidCriticalError, EventData: 79,
		})
	}
	b := read(t, s)
	require.Len(t, b.Events, 2)
	assert.Equal(t, uint16(1), b.Events[0].Device)
	assert.Equal(t, int64(79), b.Events[0].Code)
	v, _ := value(b, 1, gpuquantity.XIDs)
	assert.Equal(t, 2.0, v.V)
	assert.Empty(t, read(t, s).Events)
}

func TestOpenReportsMissingParts(t *testing.T) {
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

func TestNamesFollowTheUUIDWhenBoardsVanish(t *testing.T) {
	m := newMachine(3)
	s := open(t, m)
	// names rereads the list of devices and returns name and ordinal by ID.
	names := func() map[string]string {
		s.slow = time.Time{}
		read(t, s)
		list := map[string]string{}
		for _, d := range s.Devices() {
			list[d.ID] = fmt.Sprint(d.Name, " ", d.Ordinal)
		}
		return list
	}
	all := map[string]string{"GPU-0": "gpu0 0", "GPU-1": "gpu1 1", "GPU-2": "gpu2 2"}
	require.Equal(t, all, names())
	boards := m.boards
	m.boards = boards[1:]
	assert.Equal(t, map[string]string{"GPU-1": "gpu1 1", "GPU-2": "gpu2 2"}, names())
	m.boards = boards
	assert.Equal(t, all, names(), "it is back")
	m.boards = append(boards[1:3:3], newBoard(m, 7))
	assert.Equal(t, map[string]string{"GPU-1": "gpu1 1", "GPU-2": "gpu2 2", "GPU-7": "gpu3 3"}, names(),
		"a new board has a new number")
	require.NoError(t, s.Close())
	m.boards = boards[2:]
	require.NoError(t, s.Open())
	assert.Equal(t, map[string]string{"GPU-2": "gpu2 2"}, names(), "the driver was loaded again")
}
