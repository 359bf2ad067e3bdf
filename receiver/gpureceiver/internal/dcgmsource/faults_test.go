// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

func TestALostBoardFailsAndTheOthersContinue(t *testing.T) {
	m := machine{"gpus": 2, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m["lost"] = 0b10
	m.advance(t, time.Second)
	b := read(t, s)
	assert.Equal(t, []gpudata.Health{gpudata.HealthOK, gpudata.HealthFailed}, b.Health)
	assert.Equal(t, 10, len(of(b, 0, gpuquantity.Power)))
	assert.Empty(t, of(b, 1, gpuquantity.Power))
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
	assert.Equal(t, 10, len(of(read(t, s), 1, gpuquantity.Power)))
}

func TestTheHostEngineIsRestarted(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.set(t, "epoch", 2)
	err := s.Read(&gpudata.Batch{})
	require.ErrorContains(t, err, "Host engine connection invalid/disconnected")
	require.NoError(t, s.Close())
	require.NoError(t, s.Open())
	m.advance(t, time.Second)
	assert.NotEmpty(t, of(read(t, s), 0, gpuquantity.Power))
}

func TestHostEngineThatStartsLaterIsUsed(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime, "down": 1}
	m.write(t)
	s := newSource(settings(), newClient())
	for range 3 {
		require.EqualError(t, s.Open(),
			`cannot reach DCGM at "localhost:5555": dcgmConnect_v2: Host engine connection invalid/disconnected`)
	}
	m.set(t, "down", 0)
	require.NoError(t, s.Open())
	require.NoError(t, s.Close())
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
	assert.Equal(t, 700, len(of(b, 0, gpuquantity.Power))+len(of(b2, 0, gpuquantity.Power)), "70 s at 10 Hz")
}

// unwatches counts calls that remove watches.
type unwatches struct {
	api
	n int
}

func (u *unwatches) unwatch(group, fields uintptr) error {
	u.n++
	return u.api.unwatch(group, fields)
}

func TestAHungHostEngineEndsInATimeout(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime, "hangms": 50}
	s := open(t, m, settings())
	read(t, s)
	m.set(t, "hang", 1)
	require.ErrorContains(t, s.Read(&gpudata.Batch{}), "Timeout")
	asked := &unwatches{api: s.session.api}
	s.session.api = asked
	require.NoError(t, s.Close())
	assert.Zero(t, asked.n, "no further calls: each would take as long")
	m.set(t, "hang", 0)
	require.NoError(t, s.Open())
}

func TestHungHostEngineDelaysNoOtherSource(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime, "hang": 1}
	m.write(t)
	a, same := newSource(settings(), newClient()), newSource(settings(), newClient())
	opened := make(chan error, 2)
	go func() { opened <- a.Open() }()
	go func() { opened <- same.Open() }()
	select {
	case err := <-opened:
		t.Fatal("a hung host engine accepts no connection", err)
	case <-time.After(100 * time.Millisecond):
	}
	m.set(t, "hang", 0)
	require.NoError(t, <-opened)
	require.NoError(t, <-opened)
	require.NoError(t, a.Close())
	require.NoError(t, same.Close())
}

func TestABacklogThatIsTooLargeIsDroppedInPart(t *testing.T) {
	// The backlog is measured with this machine's clock.
	m := machine{"gpus": 2, "now": time.Now().Add(-100 * time.Second).UnixMicro()}
	s := open(t, m, settings())
	read(t, s)
	delete(m, "now")
	s.session.now = time.Now
	m.set(t, "limit", 5000) // 100 s are 1000 values of each of 6 fields of 2 boards
	now := time.Now()
	b := read(t, s)
	assert.Positive(t, b.Dropped[gpudata.DropOverrun])
	power := of(b, 0, gpuquantity.Power)
	assert.Greater(t, len(power), 100)
	assert.Less(t, now.Sub(time.Unix(0, power[len(power)-1].Time)), time.Second, "the newest are there")
}

func TestAPowerThatTheDriverDoesNotSupportIsNotZeroWatts(t *testing.T) {
	for _, sampling := range []time.Duration{100 * time.Millisecond, time.Second} {
		m := machine{"gpus": 1, "now": baseTime, "unsupported": "157"}
		set := settings()
		set.Sampling = sampling
		s := open(t, m, set)
		assert.Equal(t, time.Second, s.Devices()[0].PowerWindow, "field 155 is a mean")
		read(t, s)
		for range 3 {
			m.advance(t, time.Second)
			power := of(read(t, s), 0, gpuquantity.Power)
			require.NotEmpty(t, power)
			for _, v := range power {
				require.Equal(t, 300.0, v.V, "what field 155 says")
			}
		}
		m["unsupported"] = "155,157"
		m.advance(t, time.Second)
		assert.Empty(t, of(read(t, s), 0, gpuquantity.Power), "unknown is absent")
	}
}

func TestABoardThatGivesOnlyBlanksIsNotOK(t *testing.T) {
	m := machine{"gpus": 2, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, time.Second)
	assert.Equal(t, []gpudata.Health{gpudata.HealthOK, gpudata.HealthOK}, read(t, s).Health)
	m["gsp"] = 0b10 // the driver returns no values of it, with status ok
	var states []gpudata.Health
	for range 8 {
		m.advance(t, time.Second)
		states = append(states, read(t, s).Health[1])
	}
	assert.Equal(t, gpudata.HealthSilent, states[7])
	assert.NotContains(t, states[6:], gpudata.HealthOK)
	delete(m, "gsp")
	m.advance(t, time.Second)
	assert.Equal(t, []gpudata.Health{gpudata.HealthOK, gpudata.HealthOK}, read(t, s).Health)
}

func TestNothingIsKnownOfABoardWhileTheDriverHangs(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m["frozen"] = m["now"]
	for range 15 {
		m.advance(t, time.Second)
		b := read(t, s)
		for _, v := range b.Values {
			require.Equal(t, gpuquantity.XIDs, v.Quantity, "nothing is measured")
			require.Equal(t, baseTime*1000, v.Time, "and what was counted was counted until then")
		}
	}
	assert.Equal(t, []gpudata.Health{gpudata.HealthUnknown}, read(t, s).Health)
	delete(m, "frozen")
	m.advance(t, time.Second)
	b := read(t, s)
	assert.Equal(t, []gpudata.Health{gpudata.HealthOK}, b.Health)
}

func TestAHostEngineThatStartsAgainReadsTheKernelsLogAgain(t *testing.T) {
	xid := func(after time.Duration, code int) string {
		return fmt.Sprintf("%d:0:%d", baseTime+after.Microseconds(), code)
	}
	m := machine{
		"gpus": 1, "now": baseTime, "xid": []string{xid(-time.Hour, 13), xid(-time.Second, 13)},
		"jitter": 700_000,
	}
	s := open(t, m, settings())
	read(t, s)
	m["xid"] = append(m["xid"].([]string), xid(time.Second, 79), xid(1500*time.Millisecond, 79))
	m.advance(t, 2*time.Second)
	require.Len(t, read(t, s).Events, 2)

	m["xid"] = append(m["xid"].([]string), xid(150*time.Second, 79)) // while it is lost
	m["now"] = baseTime + (200 * time.Second).Microseconds()
	m.set(t, "epoch", 2)
	require.Error(t, s.Read(&gpudata.Batch{}))
	require.NoError(t, s.Close())
	require.NoError(t, s.Open())
	b := read(t, s)
	require.Len(t, b.Events, 1, "the others were counted before")
	assert.Equal(t, (baseTime+150_700_000)*1000, b.Events[0].Time)
	assert.Equal(t, 3.0, of(b, 0, gpuquantity.XIDs)[0].V, "the count goes on")
}

func TestANewSessionBeginsWhereTheLastOneStopped(t *testing.T) {
	m := machine{"gpus": 8, "gpm": 0xff, "now": baseTime}
	m.write(t)
	keeper := newSource(settings(), newClient()) // another client, which keeps the host engine sampling
	require.NoError(t, keeper.Open())
	m.advance(t, 2*time.Minute)
	s := newSource(settings(), newClient())
	s.now = func() time.Time { return time.UnixMicro(m["now"].(int64)) }
	require.NoError(t, s.Open())
	b := read(t, s)
	assert.Less(t, len(b.Values), 8*50, "one sample of each field, and not two minutes of them")
	assert.Zero(t, b.Dropped[gpudata.DropStale])
	m.advance(t, time.Second)
	before := of(read(t, s), 0, gpuquantity.Power)
	require.NoError(t, s.Close())
	m.advance(t, 10*time.Second)
	require.NoError(t, s.Open())
	after := of(read(t, s), 0, gpuquantity.Power)
	require.Len(t, after, 100, "the host engine has kept them")
	assert.Equal(t, before[len(before)-1].Time+int64(100*time.Millisecond), after[0].Time)
	require.NoError(t, s.Close())
	require.NoError(t, keeper.Close())
}

// TestABacklogTakesLittleMemory reads two minutes of 8 boards, for which go-dcgm would allocate 1.1
// GB.
func TestABacklogTakesLittleMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes additional memory for what is read")
	}
	m := machine{"gpus": 8, "gpm": 0xff, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m.advance(t, 2*time.Minute)
	resident := func() (kb int) {
		b, err := os.ReadFile("/proc/self/status")
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); err == nil {
				return kb
			}
		}
		return 0
	}
	before := resident()
	b := read(t, s)
	assert.Greater(t, len(b.Values), 8*1199*15)
	assert.Less(t, resident()-before, 128<<10, "kB, at the peak")
}

func TestNoSampleIsLostInAStallOfMaxKeepAge(t *testing.T) {
	for _, stall := range []time.Duration{30 * time.Second, 70 * time.Second, 95 * time.Second, 119 * time.Second} {
		m := machine{"gpus": 2, "gpm": 3, "now": baseTime}
		set := settings()
		set.MaxStaleness = time.Minute
		s := open(t, m, set)
		read(t, s)
		m.advance(t, stall)
		b := read(t, s)
		for _, q := range []gpuquantity.Quantity{gpuquantity.Power, gpuquantity.Energy, gpuquantity.SMUtilization} {
			assert.Len(t, of(b, 1, q), int(stall.Seconds()*10), "%s %s", stall, q)
		}
		assert.Zero(t, b.Dropped[gpudata.DropStale]+b.Dropped[gpudata.DropOverrun])
	}
}

// Neither calls that time out nor calls that fail temporarily are a backlog that is too large.
func TestAFailedReadDropsNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		failing string
		calls   int
		before  int // values of the failing read
	}{
		"timeouts, all but the last call": {"late", maxFails - 1, 650},
		"a moment of refusal":             {"broken", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine{"gpus": 1, "now": baseTime}
			s := open(t, m, settings())
			read(t, s)
			m[tt.failing] = tt.calls
			m.advance(t, 65*time.Second)
			b := read(t, s)
			assert.Len(t, of(b, 0, gpuquantity.Power), tt.before)
			assert.Zero(t, b.Dropped[gpudata.DropOverrun])
			delete(m, tt.failing)
			m.advance(t, time.Second)
			b = read(t, s)
			assert.Len(t, of(b, 0, gpuquantity.Power), 660-tt.before)
			assert.Zero(t, b.Dropped[gpudata.DropOverrun])
		})
	}
}

func TestAStallOfCoarseSamplesIsReadAsHistory(t *testing.T) {
	m := machine{"gpus": 2, "gpm": 3, "now": baseTime}
	set := settings()
	set.Sampling, set.Slow = time.Second, 10*time.Second
	s := open(t, m, set)
	var power []gpudata.Value
	for i := range 60 {
		step := 500 * time.Millisecond
		if i == 30 {
			step = 40 * time.Second
		}
		m.advance(t, step)
		b := &gpudata.Batch{}
		require.NoError(t, s.Read(b))
		power = append(power, of(b, 1, gpuquantity.Power)...)
	}
	for i := 1; i < len(power); i++ {
		require.InDelta(t, time.Second, power[i].Time-power[i-1].Time, reading)
	}
	assert.Len(t, power, 70, "59 half seconds and 40 s")
}

func TestALibraryThatCutsHistoriesShortIsQueriedAgain(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime}
	set := settings()
	set.Sampling, set.KeepAge = time.Millisecond, 10*time.Minute
	s := open(t, m, set)
	read(t, s)
	m.advance(t, 150*time.Second) // 150,000 values of a field, of which a buffer holds 130,816
	b := read(t, s)
	power := of(b, 0, gpuquantity.Power)
	require.Len(t, power, 150_000)
	assert.Equal(t, int64(time.Millisecond)*149_999, power[149_999].Time-power[0].Time)
}

func TestATemporaryErrorKeepsTheConnection(t *testing.T) {
	m := machine{"gpus": 1, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m["transient"] = 1 // returned while a driver is being detached
	m.advance(t, time.Second)
	read(t, s)
	assert.False(t, s.session.dead)
	delete(m, "transient")
	m.advance(t, time.Second)
	assert.Len(t, of(read(t, s), 0, gpuquantity.Power), 20)
}

func TestALostBoardIsNotReadUntilItIsBack(t *testing.T) {
	m := machine{"gpus": 2, "gpm": 3, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	m["lost"] = 0b10
	m.advance(t, time.Second)
	assert.Positive(t, read(t, s).Dropped[gpudata.DropBlank])
	for range 3 {
		m.advance(t, time.Second)
		b := read(t, s)
		assert.Zero(t, b.Dropped[gpudata.DropBlank], "thousands a second otherwise")
		assert.Equal(t, []gpudata.Health{gpudata.HealthOK, gpudata.HealthFailed}, b.Health)
		// A watch that starts reads at once.
		assert.InDelta(t, 10, len(of(b, 0, gpuquantity.Power)), 1)
		assert.InDelta(t, 10, len(of(b, 0, gpuquantity.SMUtilization)), 1)
	}
	m["lost"] = 0
	m.advance(t, time.Second)
	read(t, s)
	m.advance(t, time.Second)
	b := read(t, s)
	assert.Equal(t, []gpudata.Health{gpudata.HealthOK, gpudata.HealthOK}, b.Health)
	assert.Len(t, of(b, 1, gpuquantity.Power), 10)
}

// The engine samples by the wall clock: after a step back it takes no sample until the clock has
// caught up, and after a step forward it continues immediately. None of its samples is lost or
// repeated.
func TestSamplesContinueAfterStepsOfTheWallClock(t *testing.T) {
	m := machine{"gpus": 2, "gpm": 0b11, "now": baseTime}
	s := open(t, m, settings())
	read(t, s)
	last := map[gpuquantity.Quantity][2]int64{}
	// second reads after one second and returns the numbers of power and SM utilization samples of
	// a board.
	second := func(step time.Duration) (power, busy int) {
		m.advance(t, time.Second+step)
		b := read(t, s)
		for _, q := range []gpuquantity.Quantity{gpuquantity.Power, gpuquantity.SMUtilization} {
			times := last[q]
			for _, v := range b.Values {
				if v.Quantity == q {
					require.Greater(t, v.Time, times[v.Device], "%v of %d", q, v.Device)
					times[v.Device] = v.Time
				}
			}
			last[q] = times
		}
		assert.Equal(t, []gpudata.Health{gpudata.HealthOK, gpudata.HealthOK}, b.Health)
		return len(of(b, 0, gpuquantity.Power)), len(of(b, 0, gpuquantity.SMUtilization))
	}
	for range 3 {
		second(0)
	}
	for range 4 {
		_, _ = second(-10 * time.Second) // each time, one second passes and the clock is set back
		for range 8 {
			power, busy := second(0)
			assert.Zero(t, power)
			assert.Zero(t, busy)
		}
		second(0) // the clock has caught up
		for range 3 {
			power, busy := second(0)
			assert.Equal(t, 10, power)
			assert.Equal(t, 10, busy)
		}
		power, _ := second(time.Hour)
		assert.LessOrEqual(t, power, int((2*time.Minute)/(100*time.Millisecond))+1, "what the engine keeps")
		for range 3 {
			power, busy := second(0)
			assert.Equal(t, 10, power)
			assert.Equal(t, 10, busy)
		}
	}
}

func TestABoardWhoseProfilingIsBlankIsReported(t *testing.T) {
	m := machine{"gpus": 2, "gpm": 0b11, "now": baseTime}
	s := open(t, m, settings())
	// after reads once a second and returns the devices of the notices.
	after := func(seconds int) (devices [][]string) {
		var b *gpudata.Batch
		for range seconds {
			m.advance(t, time.Second)
			b = read(t, s)
		}
		assert.NotEmpty(t, of(b, 1, gpuquantity.Power), "everything else goes on")
		for _, n := range b.Notices {
			assert.Equal(t, gpudata.NoticeProfiling, n.Kind)
			require.ErrorIs(t, n.Err, errBlankProfiling)
			assert.False(t, n.Normal)
			devices = append(devices, n.Devices)
		}
		return devices
	}
	assert.Empty(t, after(20))
	m["blankprof"] = 0b10
	assert.Empty(t, after(4), "it can recover")
	assert.Equal(t, [][]string{{"gpu1"}}, after(6))
	m["blankprof"] = 0
	assert.Empty(t, after(2))
	m.advance(t, time.Second)
	assert.Len(t, of(read(t, s), 1, gpuquantity.SMUtilization), 10, "it goes on when the other profiler has finished")
}
