// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package dcgmsource

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

func TestTheLibraryIsAbsent(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "LD_LIBRARY_PATH=") || strings.HasPrefix(e, envControl)
	})
	cmd.Env = append(cmd.Env, envAbsent+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "no call but Init may be made: %s", out)
	if strings.Contains(string(out), "<nil>\n0") {
		t.Skip("this machine has a DCGM library")
	}
	assert.Equal(t, strings.Repeat("cannot reach DCGM at \"localhost:5555\": libdcgm.so.4 not found (install datacenter-gpu-manager-4-core)\n0 <nil>\n", 3), string(out))
}

func TestDevicesAreDescribed(t *testing.T) {
	for _, n := range []int{1, 8, 32} {
		s := open(t, machine{"gpus": n, "now": baseTime}, settings())
		require.Len(t, s.Devices(), n)
		d := s.Devices()[n-1]
		assert.Equal(t, fmt.Sprintf("GPU-00000000-0000-0000-0000-%012x", n-1), d.ID)
		assert.Equal(t, fmt.Sprintf("gpu%d", n-1), d.Name)
		assert.Equal(t, "NVIDIA H100 80GB HBM3", d.Model)
		assert.Equal(t, "580.65.06", d.DriverVersion)
		assert.Equal(t, int64(81559)<<20, d.Limits.Memory)
		assert.Equal(t, 700.0, d.Limits.Power)
		assert.InDelta(t, 63e9, d.Limits.PCIeBandwidth, 0.1e9, "generation 5, 16 lanes")
		require.NoError(t, s.Close())
		require.NoError(t, s.Open())
	}
}

func TestEmbeddedAndUnixSocket(t *testing.T) {
	for _, target := range []string{Embedded, "unix:///run/dcgm.sock"} {
		m := machine{"gpus": 1, "now": baseTime}
		set := settings()
		set.Target = target
		s := open(t, m, set)
		m.advance(t, time.Second)
		assert.NotEmpty(t, of(read(t, s), 0, gpudata.Power), target)
		require.NoError(t, s.Close())
		m.set(t, "gpus", 0)
		err := s.Open()
		if target == Embedded {
			require.ErrorIs(t, err, gpudata.ErrUnavailable, "no driver in this process: auto goes on")
			m.set(t, "gpus", 1)
			require.NoError(t, s.Open())
			continue
		}
		require.NoError(t, err, "a host engine without GPUs is there: they may come")
		m.set(t, "gpus", 1)
		assert.True(t, read(t, s).Changed)
	}
}

func TestValuesAreInBaseUnits(t *testing.T) {
	m := machine{"gpus": 1, "gpm": 1, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, time.Second)
	b := read(t, s)
	for q, want := range map[gpudata.Quantity]float64{
		gpudata.ClockSM: 1.98e9, gpudata.ClockMemory: 2.619e9, gpudata.ClockVideo: 1.545e9,
		gpudata.Temperature: 45, gpudata.Power: 310, gpudata.Utilization: 0.97,
		gpudata.MemoryUsed: 40000 << 20, gpudata.MemoryLimit: 81559 << 20, gpudata.MemoryReserved: 551 << 20,
		gpudata.SMUtilization: 0.5, gpudata.SMOccupancy: 0.5, gpudata.TensorUtilization: 0.5, gpudata.DRAMUtilization: 0.5,
		gpudata.Throttle: 4, // sw_power_cap; idle is not throttling
	} {
		got := of(b, 0, q)
		require.Equal(t, 10, len(got), q.String())
		assert.InDelta(t, want, got[9].V, 1e-9*want, q.String())
		for i, v := range got {
			assert.Equal(t, (baseTime+int64(i+1)*100_000)*1000, v.Time, "each sample has its own time")
		}
	}
	energy := of(b, 0, gpudata.Energy)
	assert.InDelta(t, 310*0.9, energy[9].V-energy[0].V, 2e-3, "J, from mJ")
}

func TestPCIeIsACounterOfTheDeviceOrTheIntegralOfItsRate(t *testing.T) {
	for _, tc := range []struct {
		name        string
		unsupported string
	}{{"counter", "0"}, {"rate", "1091,1092"}} {
		t.Run(tc.name, func(t *testing.T) {
			m := machine{"gpus": 1, "gpm": 1, "now": baseTime, "unsupported": tc.unsupported}
			s := open(t, m, settings())
			read(t, s)
			m.advance(t, time.Second)
			first := of(read(t, s), 0, gpudata.PCIeTransmit)
			m.advance(t, 10*time.Second)
			last := of(read(t, s), 0, gpudata.PCIeTransmit)
			require.Equal(t, 100, len(last))
			assert.InDelta(t, 10e9, last[99].V-first[9].V, 1, "1 GB/s for 10 s")
			assert.Less(t, last[99].V, 12e9, "it begins at 0")
		})
	}
}

func TestBlanksOfEveryKindAreNoValues(t *testing.T) {
	m := machine{"gpus": 2, "gpm": 3, "now": baseTime, "unsupported": "157,156,1611,310", "noperm": "150"}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, time.Second)
	b := read(t, s)
	for _, q := range []gpudata.Quantity{gpudata.Energy, gpudata.ECCCorrected, gpudata.Temperature} {
		assert.Empty(t, of(b, 0, q), q.String())
	}
	power := of(b, 1, gpudata.Power)
	require.Equal(t, 10, len(power))
	assert.Equal(t, 300.0, power[0].V, "field 155 stands in for 157")
	assert.Positive(t, b.Dropped[gpudata.DropBlank])
	for _, v := range b.Values {
		require.Less(t, v.V, 1e13)
	}
}

func TestTheFirstSampleOfAProfilingFieldIsBlank(t *testing.T) {
	m := machine{"gpus": 1, "gpm": 1, "now": baseTime}
	s := open(t, m, settings())
	b := read(t, s)
	assert.Empty(t, of(b, 0, gpudata.SMUtilization))
	assert.Equal(t, 1, len(of(b, 0, gpudata.Temperature)))
}

// TestBlankBoundaries checks the test for blanks at its edges, by type.
func TestBlankBoundaries(t *testing.T) {
	for _, tc := range []struct {
		v  rawValue
		ok bool
	}{
		{rawValue{typ: 'i', i: 0x7fffffffffffffef}, true},
		{rawValue{typ: 'i', i: 0x7ffffffffffffff0}, false},
		{rawValue{typ: 'i', i: 0x7ffffffffffffff3}, false},
		{rawValue{typ: 'i', i: -1}, true},
		{rawValue{typ: 'd', f: 140737488355327}, true},
		{rawValue{typ: 'd', f: 140737488355328}, false},
		{rawValue{typ: 'd', f: 140737488355331}, false},
		{rawValue{typ: 'd', f: math.NaN()}, false},
		{rawValue{typ: 'b'}, false},
		{rawValue{typ: 's', s: "7"}, false},
	} {
		_, ok := tc.v.number()
		assert.Equal(t, tc.ok, ok, "%+v", tc.v)
	}
	for _, s := range []string{"<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>", ""} {
		_, ok := (&rawValue{typ: 's', s: s}).text()
		assert.False(t, ok, s)
	}
}

func TestBoardsWithoutProfilingLoseOnlyProfiling(t *testing.T) {
	m := machine{"gpus": 3, "gpm": 0b101, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, time.Second)
	b := read(t, s)
	for i := range 3 {
		assert.Equal(t, 10, len(of(b, i, gpudata.Power)))
		want := 10
		if i == 1 {
			want = 0
		}
		assert.Equal(t, want, len(of(b, i, gpudata.SMUtilization)), "board %d", i)
	}
}

func TestAnOlderHostEngineGetsOnlyFieldsItKnows(t *testing.T) {
	m := machine{"gpus": 1, "gpm": 1, "old": 1, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, time.Second)
	b := read(t, s)
	assert.Equal(t, 10, len(of(b, 0, gpudata.Power)))
	assert.Equal(t, 10, len(of(b, 0, gpudata.SMUtilization)))
	assert.Equal(t, 10, len(of(b, 0, gpudata.PCIeTransmit)), "from the rate")
}

// TestNoSampleIsLostOrRepeated reads about a million samples at each of three intervals, in reads of random length.
func TestNoSampleIsLostOrRepeated(t *testing.T) {
	for _, every := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
		t.Run(every.String(), func(t *testing.T) {
			m := machine{"gpus": 2, "now": baseTime}
			set := settings()
			set.Sampling, set.Slow, set.KeepAge = every, 1000*time.Hour, 10*time.Hour
			s := open(t, m, set)
			read(t, s)
			const perRead = 1000
			total := int64(1_000_000)
			if testing.Short() {
				total = 50_000
			}
			last := [2]int64{baseTime * 1000, baseTime * 1000}
			var samples int64
			for i := int64(0); samples < total; i++ {
				m.advance(t, every*time.Duration(perRead/2+(i*7919)%perRead)+time.Duration(i%3)*every/3)
				b := read(t, s)
				for _, v := range b.Values {
					if v.Quantity != gpudata.Power {
						samples++
						continue
					}
					require.Equal(t, last[v.Device]+int64(every), v.Time)
					last[v.Device] = v.Time
					samples++
				}
			}
			assert.Equal(t, last[0], last[1])
		})
	}
}

func TestAnotherClientWatchesFaster(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime, "fastest": 10_000}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, time.Second)
	assert.Equal(t, 100, len(of(read(t, s), 0, gpudata.Power)), "all of them, with their times")
}

func TestAnXIDIsCountedOnce(t *testing.T) {
	xid := func(after time.Duration, code int) string {
		return fmt.Sprintf("%d:0:%d", baseTime+after.Microseconds(), code)
	}
	m := machine{"gpus": 1, "now": baseTime, "xid": []string{xid(-10*time.Second, 13)}}
	s := open(t, m, settings())
	b := read(t, s)
	assert.Empty(t, b.Events, "it happened before anybody counted")
	assert.Zero(t, of(b, 0, gpudata.XIDs)[0].V)

	m["xid"] = []string{xid(-10*time.Second, 13), xid(1*time.Second, 79), xid(2*time.Second, 79)}
	m.advance(t, 5*time.Second)
	b = read(t, s)
	require.Len(t, b.Events, 2, "two equal numbers are two events")
	assert.Equal(t, (baseTime+1_000_000)*1000, b.Events[0].Time)
	assert.Equal(t, int64(79), b.Events[0].Code)
	assert.Equal(t, 2.0, of(b, 0, gpudata.XIDs)[0].V)

	m["xid"] = append(m["xid"].([]string), xid(3*time.Second, 31)) // from the kernel log, late
	m.advance(t, 5*time.Second)
	b = read(t, s)
	require.Len(t, b.Events, 1)
	assert.Equal(t, int64(31), b.Events[0].Code)

	require.NoError(t, s.Close())
	m.advance(t, time.Second)
	require.NoError(t, s.Open())
	assert.Empty(t, read(t, s).Events, "a new session does not count them again")
}

func TestALostBoardFailsAndTheOthersGoOn(t *testing.T) {
	m := machine{"gpus": 2, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m["lost"] = 0b10
	m.advance(t, time.Second)
	b := read(t, s)
	assert.Equal(t, []gpudata.Health{gpudata.HealthOK, gpudata.HealthFailed}, b.Health)
	assert.Equal(t, 10, len(of(b, 0, gpudata.Power)))
	assert.Empty(t, of(b, 1, gpudata.Power))
}

func TestTheDriverIsDetachedAndAttached(t *testing.T) {
	m := machine{"gpus": 2, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m["detached"] = 1
	m.advance(t, time.Second)
	b := read(t, s)
	assert.True(t, b.Changed)
	assert.Empty(t, s.Devices())
	m.advance(t, time.Second)
	b = read(t, s)
	assert.False(t, b.Changed)
	m["detached"] = 0
	m.advance(t, time.Second)
	b = read(t, s)
	assert.True(t, b.Changed)
	require.Len(t, s.Devices(), 2)
	m.advance(t, time.Second)
	assert.Equal(t, 10, len(of(read(t, s), 1, gpudata.Power)))
}

func TestTheHostEngineIsRestarted(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.set(t, "epoch", 2)
	err := s.Read(&gpudata.Batch{})
	require.ErrorContains(t, err, `DCGM at "localhost:5555": error getting entity count: Host engine connection invalid/disconnected`)
	require.NoError(t, s.Close())
	require.NoError(t, s.Open())
	m.advance(t, time.Second)
	assert.NotEmpty(t, of(read(t, s), 0, gpudata.Power))
}

func TestTheHostEngineIsAbsentAndComes(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime, "down": 1}
	m.write(t)
	s := newSource(settings(), newConnection(library{}))
	for range 3 {
		require.EqualError(t, s.Open(), `cannot reach DCGM at "localhost:5555": error connecting to nv-hostengine: Host engine connection invalid/disconnected`)
	}
	m.set(t, "down", 0)
	require.NoError(t, s.Open())
	require.NoError(t, s.Close())
}

func TestNothingIsLeftInTheHostEngine(t *testing.T) {
	m := machine{"gpus": 4, "gpm": 0b1111, "mig": 2, "now": baseTime}
	conn := newConnection(library{})
	m.write(t)
	keeper := newSource(settings(), conn) // holds the connection open
	require.NoError(t, keeper.Open())
	before := left(t)
	for range 20 {
		s := newSource(settings(), conn)
		require.NoError(t, s.Open())
		read(t, s)
		require.NoError(t, s.Close())
	}
	assert.Equal(t, before, left(t))
	require.NoError(t, keeper.Close())
	assert.Equal(t, "groups 0 fields 0 watches 0", left(t))
}

func TestOneConnectionIsSharedOrRefused(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime}
	m.write(t)
	conn := newConnection(library{})
	a, b := newSource(settings(), conn), newSource(settings(), conn)
	require.NoError(t, a.Open())
	require.NoError(t, b.Open())
	other := settings()
	other.Target = "unix:///run/dcgm.sock"
	c := newSource(other, conn)
	require.EqualError(t, c.Open(), `cannot reach DCGM at "unix:///run/dcgm.sock": this process is connected to DCGM at "localhost:5555", refused "unix:///run/dcgm.sock" (its library has one connection for each process: use one endpoint in all gpu receivers, or a second Collector)`)
	require.NoError(t, c.Close())
	m.advance(t, time.Second)
	assert.NotEmpty(t, of(read(t, a), 0, gpudata.Power))
	assert.NotEmpty(t, of(read(t, b), 0, gpudata.Power))

	// The host engine is restarted: the first to notice lets go, the other one too, then both connect anew.
	m.set(t, "epoch", 2)
	require.Error(t, a.Read(&gpudata.Batch{}))
	require.NoError(t, a.Close())
	require.ErrorContains(t, a.Open(), "another gpu receiver has not let go of it yet")
	require.Error(t, b.Read(&gpudata.Batch{}))
	require.NoError(t, b.Close())
	require.NoError(t, b.Open())
	require.NoError(t, a.Open())
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.NoError(t, c.Open(), "another endpoint is possible once nobody uses the first")
	require.NoError(t, c.Close())
}

func TestAHungHostEngineAnswersLateAndLosesNothing(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.set(t, "hang", 1)
	done := make(chan *gpudata.Batch, 1)
	go func() {
		b := &gpudata.Batch{}
		assert.NoError(t, s.Read(b))
		done <- b
	}()
	select {
	case <-done:
		t.Fatal("the call blocks while the host engine hangs")
	case <-time.After(100 * time.Millisecond):
	}
	m["hang"] = 0
	m.advance(t, 70*time.Second)
	b := <-done
	b2 := read(t, s)
	assert.Equal(t, 700, len(of(b, 0, gpudata.Power))+len(of(b2, 0, gpudata.Power)), "70 s at 10 Hz")
}

func TestAHungHostEngineEndsInATimeout(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime, "hangms": 50}
	s := open(t, m, settings())
	read(t, s)
	m.set(t, "hang", 1)
	require.ErrorContains(t, s.Read(&gpudata.Batch{}), "Timeout")
	m.set(t, "hang", 0)
	require.NoError(t, s.Close())
	require.NoError(t, s.Open())
}

func TestConnectingToAHungHostEngineHoldsNobodyElse(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime, "hang": 1}
	m.write(t)
	conn := newConnection(library{})
	a, b := newSource(settings(), conn), newSource(settings(), conn)
	opened := make(chan error, 1)
	go func() { opened <- a.Open() }()
	require.Eventually(t, func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return conn.busy != ""
	}, 5*time.Second, time.Millisecond)
	require.ErrorContains(t, b.Open(), "DCGM's library is still busy connecting to localhost:5555 since")
	m.set(t, "hang", 0)
	require.NoError(t, <-opened)
	require.NoError(t, a.Close())
}

func TestABacklogThatIsTooLargeIsGivenUpInPart(t *testing.T) {
	// The backlog is measured with this machine's clock.
	m := machine{"gpus": 2, "now": time.Now().Add(-100 * time.Second).UnixMicro()}
	s := open(t, m, settings())
	read(t, s)
	delete(m, "now")
	m.set(t, "limit", 5000) // 100 s are 1000 values of each of 8 fields of 2 boards
	now := time.Now()
	b := read(t, s)
	assert.Positive(t, b.Dropped[gpudata.DropOverrun])
	power := of(b, 0, gpudata.Power)
	assert.Greater(t, len(power), 100)
	assert.Less(t, now.Sub(time.Unix(0, power[len(power)-1].Time)), time.Second, "the newest are there")
}

func TestInstancesHaveTheirOwnRatiosAndTheBoardItsCounters(t *testing.T) {
	m := machine{"gpus": 2, "gpm": 3, "mig": 2, "now": baseTime}
	s := open(t, m, settings())
	require.Len(t, s.Devices(), 4)
	d := s.Devices()[3]
	assert.Equal(t, "MIG-00000000-0000-0000-0000-000000000031", d.ID)
	assert.Equal(t, s.Devices()[0].ID, d.Parent)
	assert.Equal(t, "gpu0:8/0", d.Name)
	assert.Equal(t, "1g.10gb", d.MIG.Profile)
	assert.Equal(t, int64(9984)<<20, d.Limits.Memory)
	read(t, s)
	m.advance(t, time.Second)
	b := read(t, s)
	for q, want := range map[gpudata.Quantity]float64{
		gpudata.Utilization: 0.25, gpudata.SMUtilization: 0.25, gpudata.DRAMUtilization: 0.25, gpudata.MemoryUsed: 1000 << 20,
	} {
		got := of(b, 3, q)
		require.Equal(t, 10, len(got), q.String())
		assert.Equal(t, want, got[9].V, q.String())
	}
	assert.Empty(t, of(b, 3, gpudata.Energy))
	assert.Empty(t, of(b, 3, gpudata.Power))
	assert.Equal(t, 10, len(of(b, 0, gpudata.Energy)))

	m["mig"] = 1 // taken apart while running
	m.advance(t, time.Second)
	b = read(t, s)
	assert.True(t, b.Changed)
	assert.Len(t, s.Devices(), 3)
}

func TestFieldGroupNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		n := unique("fast")
		require.False(t, seen[n])
		require.Less(t, len(n), 200)
		seen[n] = true
	}
}

// TestModelsOfTheFieldLists opens each model with the fields that it was recorded to support.
func TestModelsOfTheFieldLists(t *testing.T) {
	dir := recorded.Path(t, "dcgm/field-support")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 7)
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".yaml")
		t.Run(name, func(t *testing.T) {
			unsupported := unsupportedIDs(t, f)
			m := machine{"gpus": 1, "now": baseTime, "gpm": 1}
			var list []string
			profiling := false
			for _, id := range unsupported {
				list = append(list, fmt.Sprint(id))
				profiling = profiling || id == 1002
			}
			if profiling {
				m["gpm"] = 0 // no profiling at all
			}
			list = append(list, "1091", "1092", "1611", "0")
			m["unsupported"] = strings.Join(list, ",")
			s := open(t, m, settings())
			read(t, s)
			m.advance(t, time.Second)
			b := read(t, s)
			var got []string
			for q := range gpudata.NumQuantities {
				if len(of(b, 0, gpudata.Quantity(q))) > 0 {
					got = append(got, gpudata.Quantity(q).String())
				}
			}
			golden(t, name, strings.Join(got, "\n")+"\n")
		})
	}
}

// fieldIDs are the fields of the lists that the source watches.
var fieldIDs = map[string]uint16{
	"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 156, "DCGM_FI_DEV_POWER_USAGE": 155, "DCGM_FI_DEV_GPU_UTIL": 203, "DCGM_FI_DEV_FB_USED": 252,
	"DCGM_FI_PROF_SM_ACTIVE": 1002, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 1004, "DCGM_FI_PROF_DRAM_ACTIVE": 1005,
	"DCGM_FI_PROF_PIPE_FP64_ACTIVE": 1006, "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 1007, "DCGM_FI_PROF_PIPE_FP16_ACTIVE": 1008,
	"DCGM_FI_PROF_PCIE_TX_BYTES": 1009, "DCGM_FI_PROF_PCIE_RX_BYTES": 1010,
	"DCGM_FI_PROF_NVLINK_TX_BYTES": 1011, "DCGM_FI_PROF_NVLINK_RX_BYTES": 1012,
}

func unsupportedIDs(t *testing.T, path string) (ids []uint16) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	in := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		in = in || strings.HasPrefix(lines.Text(), "unsupported_fields")
		if id, ok := fieldIDs[strings.TrimPrefix(strings.TrimSpace(lines.Text()), "- ")]; in && ok {
			ids = append(ids, id)
		}
	}
	return ids
}
