// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
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
	assert.Equal(t, strings.Repeat(
		"DCGM's client library is missing: libdcgm.so.4: cannot open shared object file: No such file or directory "+
			"(install datacenter-gpu-manager-4-core): not available\n0 <nil>\n", 3), string(out))
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
		assert.NotEmpty(t, of(read(t, s), 0, gpuquantity.Power), target)
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

func TestBoardsWithoutProfilingLoseOnlyProfiling(t *testing.T) {
	m := machine{"gpus": 3, "gpm": 0b101, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, time.Second)
	b := read(t, s)
	for i := range 3 {
		assert.Equal(t, 10, len(of(b, i, gpuquantity.Power)))
		want := 10
		if i == 1 {
			want = 0
		}
		assert.Equal(t, want, len(of(b, i, gpuquantity.SMUtilization)), "board %d", i)
	}
}

func TestAnOlderHostEngineGetsOnlyFieldsItKnows(t *testing.T) {
	m := machine{"gpus": 1, "gpm": 1, "old": 1, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, time.Second)
	b := read(t, s)
	assert.Equal(t, 10, len(of(b, 0, gpuquantity.Power)))
	assert.Equal(t, 10, len(of(b, 0, gpuquantity.SMUtilization)))
	assert.Equal(t, 10, len(of(b, 0, gpuquantity.PCIeTransmit)), "from the rate")
}

func TestAnotherClientWatchesFaster(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime, "fastest": 10_000}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, time.Second)
	assert.Equal(t, 100, len(of(read(t, s), 0, gpuquantity.Power)), "all of them, with their times")
}

// Reads and samples have the same interval, so a read can come just before a sample as often as
// just after one. It then moves: the history of a field costs a round trip for each device.
func TestReadsMoveAwayFromTheTimesOfSamples(t *testing.T) {
	m := machine{"gpus": 8, "gpm": 0xff, "now": baseTime}
	set := settings()
	set.Sampling, set.Slow = time.Second, time.Second
	s := open(t, m, set)
	late := rand.New(rand.NewPCG(1, 2))
	const seconds = 60
	var times []int64
	before := trips(t)
	for k := range int64(2 * seconds) {
		m.set(t, "now", baseTime+k*500_000+late.Int64N(8000)-4000)
		b := &gpudata.Batch{}
		require.NoError(t, s.Read(b))
		for _, v := range of(b, 0, gpuquantity.Power) {
			times = append(times, v.Time)
		}
	}
	require.GreaterOrEqual(t, len(times), seconds-1)
	for i := range times[1:] {
		require.InDelta(t, time.Second, times[i+1]-times[i], reading)
	}
	assert.Less(t, trips(t)-before, 5*seconds, "a few a second")
}

// noRoom is a host engine that accepts no further field group.
type noRoom struct{ api }

func (noRoom) createFieldGroup(string, []uint16) (uintptr, error) { return 0, errors.New("no room") }

func TestWatchesAreReadAloneWithoutRoomForAFieldGroup(t *testing.T) {
	set := settings()
	set.Sampling, set.Slow = time.Second, time.Second
	var together []gpudata.Value
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprint(full), func(t *testing.T) { // each has its own host engine
			s := open(t, machine{"gpus": 2, "gpm": 3, "now": baseTime}, set)
			if full {
				s.session.api = noRoom{s.session.api}
			}
			b := read(t, s)
			require.NotEmpty(t, of(b, 0, gpuquantity.Power))
			require.NotEmpty(t, of(b, 0, gpuquantity.SMUtilization))
			if full {
				assert.ElementsMatch(t, together, b.Values)
			}
			together = b.Values
		})
	}
}

func TestNothingIsLeftInTheHostEngine(t *testing.T) {
	m := machine{"gpus": 4, "gpm": 0b1111, "mig": 2, "now": baseTime}
	m.write(t)
	keeper := newSource(settings(), newClient()) // another receiver
	require.NoError(t, keeper.Open())
	before := left(t)
	for range 20 {
		s := newSource(settings(), newClient())
		require.NoError(t, s.Open())
		read(t, s)
		require.NoError(t, s.Close())
	}
	assert.Equal(t, before, left(t))
	require.NoError(t, keeper.Close())
	assert.Equal(t, "groups 0 fields 0 watches 0", left(t))
}

// Otherwise, the host engine wakes up at the shortest interval while the connection lasts.
func TestNothingIsWatchedFasterThanItIsSampled(t *testing.T) {
	m := machine{"gpus": 2, "gpm": 3, "mig": 2, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m["mig"] = 1
	m.advance(t, time.Second)
	read(t, s)
	assert.Equal(t, "fastest 100000", stats(t)[2], "us")
}

// The host engine keeps watches per connection, so receivers that shared a connection would remove
// each other's.
func TestReceiversOnOneHostEngineGetTheirOwnRates(t *testing.T) {
	m := machine{"gpus": 2, "gpm": 3, "now": baseTime}
	fast, slow := settings(), settings()
	slow.Sampling = time.Second
	a := open(t, m, fast)
	b := open(t, m, slow)
	read(t, a)
	read(t, b)
	counts := map[*source]map[gpuquantity.Quantity]int{a: {}, b: {}}
	quantities := []gpuquantity.Quantity{gpuquantity.Power, gpuquantity.Energy, gpuquantity.SMUtilization, gpuquantity.PCIeTransmit}
	for range 10 {
		m.advance(t, time.Second)
		for s, n := range counts {
			batch := read(t, s)
			for _, q := range quantities {
				n[q] += len(of(batch, 1, q))
			}
		}
	}
	for _, q := range quantities {
		assert.Equal(t, 100, counts[a][q], "%s at 100 ms", q)
		assert.GreaterOrEqual(t, counts[b][q], 10, "%s at 1 s", q)
	}
	require.NoError(t, b.Close())
	m.advance(t, time.Second)
	assert.Len(t, of(read(t, a), 1, gpuquantity.Power), 10, "the other one has gone")
	require.NoError(t, b.Open())
}

func TestReceiversHaveHostEnginesOfTheirOwn(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime}
	other := settings()
	other.Target = "unix:///run/dcgm.sock"
	a, b := open(t, m, settings()), open(t, m, other)
	m.advance(t, time.Second)
	assert.NotEmpty(t, of(read(t, a), 0, gpuquantity.Power))
	assert.NotEmpty(t, of(read(t, b), 0, gpuquantity.Power))
	m.set(t, "epoch", 2)
	for _, s := range []*source{a, b} {
		require.Error(t, s.Read(&gpudata.Batch{}))
		require.NoError(t, s.Close())
		require.NoError(t, s.Open())
	}
}

func TestAProcessHasOneEmbeddedEngine(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime}
	set := settings()
	set.Target = Embedded
	a := open(t, m, set)
	b := newSource(set, newClient())
	require.EqualError(t, b.Open(), "an embedded DCGM already runs in this process for another gpu receiver "+
		"(use one receiver, or let all of them connect to an nv-hostengine)")
	require.NoError(t, b.Close())
	require.NoError(t, a.Close())
	require.NoError(t, b.Open())
	require.NoError(t, b.Close())
	require.NoError(t, a.Open())
}

// Samples keep arriving after the PCIe rates are disabled.
func TestEverySeriesContinues(t *testing.T) {
	m := machine{"gpus": 8, "gpm": 0xff, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	for range 20 {
		m.advance(t, time.Second)
		b := read(t, s)
		for q, want := range map[gpuquantity.Quantity]int{
			gpuquantity.Power: 10, gpuquantity.SMUtilization: 10, gpuquantity.SMOccupancy: 10, gpuquantity.TensorUtilization: 10,
			gpuquantity.DRAMUtilization: 10, gpuquantity.PCIeTransmit: 10, gpuquantity.PCIeReceive: 10, gpuquantity.NVLinkTransmit: 10,
			gpuquantity.NVLinkReceive: 10,
		} {
			for i := range 8 {
				require.Len(t, of(b, i, q), want, "%s of board %d", q, i)
			}
		}
	}
}

func TestInstancesGetNoUUIDOfAnotherOne(t *testing.T) {
	m := machine{"gpus": 1, "gpm": 1, "mig": 2, "now": baseTime}
	s := open(t, m, settings())
	require.Len(t, s.Devices(), 3)
	assert.Equal(t, "MIG-00000000-0000-0000-0000-000000000030", s.Devices()[1].ID)
	m["detached"] = 1
	m.advance(t, time.Second)
	read(t, s)
	m["detached"], m["migat"] = 0, m["now"].(int64)+1
	m.advance(t, time.Second)
	read(t, s)
	require.Len(t, s.Devices(), 3)
	assert.Equal(t, "MIG-00000000-0000-0000-0000-000000000031", s.Devices()[1].ID)
	assert.Equal(t, "MIG-00000000-0000-0000-0000-000000000030", s.Devices()[2].ID)
}

func TestRefusedProfilingIsReportedAndTriedAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		cause  machine
		reason string
		normal bool
	}{
		{"another profiler", machine{"profbusy": 1}, "affected resource is in use", false},
		{
			"no group left",
			machine{"taken": 61},
			"cannot create group: dcgmGroupCreate: Max limit reached for the object",
			false,
		},
		{"no profiling module", machine{"gpm": 0}, "not currently loaded", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := machine{"gpus": 2, "gpm": 0b01, "now": baseTime}
			maps.Copy(m, tc.cause)
			s := open(t, m, settings())
			b := read(t, s)
			require.NotEmpty(t, b.Notices)
			n := b.Notices[0]
			assert.Equal(t, gpudata.NoticeProfiling, n.Kind)
			assert.Contains(t, n.Devices, "gpu0")
			assert.ErrorContains(t, n.Err, tc.reason)
			assert.Equal(t, tc.normal, n.Normal)
			assert.Zero(t, b.Refused, "not before the time to try again")
			m.advance(t, profilingRetryMin)
			b = read(t, s)
			assert.Positive(t, b.Refused)
			assert.Len(t, of(b, 0, gpuquantity.Power), 100, "everything else goes on")
			for k := range tc.cause {
				delete(m, k)
			}
			m["gpm"] = 3
			m.advance(t, 2*profilingRetryMin)
			assert.Empty(t, read(t, s).Notices)
			m.advance(t, time.Second)
			assert.Len(t, of(read(t, s), 0, gpuquantity.SMUtilization), 10)
		})
	}
}

func TestBoardsWithoutProfilingTakeNoGroups(t *testing.T) {
	s := open(t, machine{"gpus": 32, "gpm": 0, "now": baseTime}, settings())
	b := read(t, s)
	assert.Contains(t, left(t), "groups 1 fields 4 ", "of 62 for all clients")
	require.Len(t, b.Notices, 1)
	assert.Len(t, b.Notices[0].Devices, 32)
}

func TestBoardsWithoutAUUIDAreReported(t *testing.T) {
	s := open(t, machine{"gpus": 3, "nouuid": 0b10, "now": baseTime}, settings())
	require.Len(t, s.Devices(), 2)
	notices := read(t, s).Notices
	n := notices[len(notices)-1]
	assert.Equal(t, gpudata.NoticeIdentity, n.Kind)
	assert.Equal(t, []string{"gpu1"}, n.Devices)
	assert.EqualError(t, n.Err, "DCGM gives no UUID")
}

func TestProcessesAreListed(t *testing.T) {
	second := func(n int64) int64 { return baseTime + n*1_000_000 }
	m := machine{"gpus": 2, "now": baseTime, "process": []string{
		fmt.Sprintf("%d:0:4711:1073741824", second(-100)), fmt.Sprintf("%d:1:4711:9223372036854775794", second(-100)),
		fmt.Sprintf("%d:1:4712:7", second(15)),
	}}
	set := settings()
	set.Slow, set.Processes = 10*time.Second, true
	s := open(t, m, set)
	m.advance(t, 10*time.Second)
	b := read(t, s)
	assert.InDelta(t, second(10)*1000, b.Listed, reading)
	assert.Equal(t, []gpudata.ProcessMemory{
		{Device: s.Devices()[0].ID, PID: 4711, Bytes: 1 << 30},
		{Device: s.Devices()[1].ID, PID: 4711, Bytes: gpudata.BytesUnknown},
	}, b.Processes)
	m.advance(t, 10*time.Second)
	b = read(t, s)
	require.Len(t, b.Processes, 3)
	assert.Equal(t, int64(4712), b.Processes[2].PID)
	delete(m, "process")
	m.advance(t, 20*time.Second)
	b = read(t, s)
	assert.NotZero(t, b.Listed)
	assert.Empty(t, b.Processes, "all have ended")
}

// TestProcessesOfOneReadingAreListedTogether reads 1 to 64 processes on each of 3 boards, which the
// engine stamps 1 µs apart. Processes of an older reading are not listed, even if one has ended
// since.
func TestProcessesOfOneReadingAreListedTogether(t *testing.T) {
	for _, n := range []int{1, 2, 3, 64} {
		var lines []string
		for gpu := range 3 {
			for i := range n {
				lines = append(lines, fmt.Sprintf("%d:%d:%d:%d", baseTime-1_000_000, gpu, 100*gpu+i+1, 1000+i))
			}
		}
		m := machine{"gpus": 3, "now": baseTime, "process": lines}
		set := settings()
		set.Slow, set.Processes = 10*time.Second, true
		s := open(t, m, set)
		m.advance(t, 30*time.Second) // three readings at once
		b := read(t, s)
		assert.InDelta(t, (baseTime+30_000_000)*1000, b.Listed, reading)
		got := map[string]int{}
		for _, p := range b.Processes {
			got[fmt.Sprint(p.Device, " ", p.PID, " ", p.Bytes)]++
		}
		want := map[string]int{}
		for gpu := range 3 {
			for i := range n {
				want[fmt.Sprint(s.Devices()[gpu].ID, " ", 100*gpu+i+1, " ", 1000+i)] = 1
			}
		}
		assert.Equal(t, want, got, "%d processes", n)
		m["process"] = lines[1:]
		m.advance(t, 10*time.Second)
		assert.Len(t, read(t, s).Processes, 3*n-1, "one has ended")
	}
}

// TestRoundTrips counts the library's round trips. dcgm-exporter makes one call per board and
// scrape.
func TestRoundTrips(t *testing.T) {
	const seconds = 60
	for _, tc := range []struct {
		gpus           int
		sampling, slow time.Duration
		perSecond      float64
	}{
		{8, time.Second, time.Second, 3.5},
		{32, time.Second, time.Second, 7},
		{8, 100 * time.Millisecond, 10 * time.Second, 75},
		{32, 100 * time.Millisecond, 10 * time.Second, 300},
	} {
		m := machine{"gpus": tc.gpus, "gpm": uint32(0xffffffff), "now": baseTime}
		set := settings()
		set.Sampling, set.Slow, set.Processes, set.Without = tc.sampling, tc.slow, true, pipes // the receiver's default
		s := open(t, m, set)
		b := &gpudata.Batch{}
		require.NoError(t, s.Read(b))
		before := trips(t)
		for range int(seconds * time.Second / s.Pace()) {
			m.advance(t, s.Pace())
			b.Reset()
			require.NoError(t, s.Read(b))
		}
		got := float64(trips(t)-before) / seconds
		t.Logf("%d boards, sampling %s, collection %s: %.1f round trips a second", tc.gpus, tc.sampling, tc.slow, got)
		assert.LessOrEqual(t, got, tc.perSecond)
		require.NoError(t, s.Close())
		require.NoError(t, s.Open())
	}
}

func TestEveryCollectionHasSlowFields(t *testing.T) {
	for _, slow := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
		m := machine{"gpus": 1, "now": baseTime}
		set := settings()
		set.Slow = slow
		s := open(t, m, set)
		next := baseTime + slow.Microseconds() + 123_456
		seen, collections, with := false, 0, 0
		for m["now"].(int64) < baseTime+40*slow.Microseconds() {
			b := &gpudata.Batch{}
			require.NoError(t, s.Read(b))
			seen = seen || len(of(b, 0, gpuquantity.ECCCorrected)) > 0
			m.advance(t, s.Pace())
			if m["now"].(int64) > next {
				collections++
				if seen {
					with++
				}
				seen, next = false, next+slow.Microseconds()
			}
		}
		assert.Equal(t, collections, with, "collection_interval %s", slow)
		assert.Greater(t, collections, 30)
	}
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
