// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestHalfOfTheFreeSlotsWakeThePollingThreadOnceBetweenTwoPasses(t *testing.T) {
	const slots = 64
	p, err := engine.New(enginetest.NewBackend(), enginetest.WithSlots(slots))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Shutdown(context.Background())) }()
	s := p.Stream(3, "main")
	awake := func() bool {
		select {
		case <-p.Poller.Wakeups:
			return true
		default:
			return false
		}
	}
	for name, c := range map[string]struct {
		passed time.Duration // from now
		behind int           // sections that the last pass left to the device
		wakes  func(ended int) bool
	}{
		"it has just looked":              {time.Hour, 0, func(n int) bool { return n == slots/2 }},
		"and the device was behind":       {time.Hour, 40, func(n int) bool { return n == 40+12 }},
		"by nearly all slots":             {time.Hour, 60, func(int) bool { return false }},
		"it has not looked for a while":   {-time.Hour, 0, func(n int) bool { return n >= slots/2 }},
		"for a while, and all slots wait": {-time.Hour, 60, func(n int) bool { return n >= slots/2 }},
	} {
		enginetest.Paused(p, func() {
			p.Polling.Idle.Store(false) // it is between two passes
			p.Polling.Passed.Store(p.Clock.Now() + int64(c.passed))
			s.Mu.Lock()
			s.Looked()
			s.Mu.Unlock()
			awake()
			for i := 1; i <= slots; i++ {
				enginetest.Op.Start(context.Background(), s).End()
				if i == c.behind {
					s.Mu.Lock()
					s.Looked()
					s.Mu.Unlock()
					awake()
				} else if i > c.behind {
					require.Equal(t, c.wakes(i), awake(), "%s: section %d", name, i)
				}
			}
			require.False(t, enginetest.Op.Start(context.Background(), s).Timed(), name)
			require.Equal(t, c.passed < 0, awake(), "%s: a section without a slot", name)
		})
		enginetest.Flush(t, p)
	}
}

// asleep is a profiler whose polling thread has just looked and sleeps until woken, as it does between two passes, but
// for an hour, and is not marked as idle.
func asleep(t *testing.T, slots int) (*engine.Profiler, *record.Stream) {
	p, err := engine.New(nil, enginetest.WithSlots(slots)) // no anchors that it would wake for
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	s := p.Stream(3, "main")
	enginetest.Paused(p, func() {
		p.Poller.Sleep, p.Poller.Longest = time.Hour, time.Hour
		p.Polling.Idle.Store(false)
		enginetest.Op.Start(context.Background(), s).End()
	})
	waitForRead(t, s, 1)
	return p, s
}

func waitForRead(t *testing.T, s *record.Stream, n uint64) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		return s.Read >= n
	}, time.Minute, time.Millisecond)
}

// The slots come back in the middle of a burst, long before the polling thread would have looked by itself.
func TestABurstIsReadWhileThePollingThreadSleeps(t *testing.T) {
	const slots = 256
	p, s := asleep(t, slots)
	for range 20 {
		for range slots/2 + 1 {
			enginetest.Op.Start(context.Background(), s).End()
		}
		// Records after the thread's last look, and is less than half of what was free then, waits for one more.
		require.Eventually(t, func() bool {
			used, _ := s.Filled()
			if used >= slots/2 && used < slots*3/4 {
				enginetest.Op.Start(context.Background(), s).End()
			}
			return used < slots/2
		}, time.Minute, time.Millisecond)
	}
	require.Zero(t, p.Drops[record.DropPoolFull].Load())
}

// Nothing ends where no slot is free, so the section without one has to report it.
func TestASectionWithoutASlotWakesThePollingThread(t *testing.T) {
	const slots = 16
	p, s := asleep(t, slots)
	var open []record.Section
	for range slots {
		open = append(open, enginetest.Op.Start(context.Background(), s))
	}
	s.Mu.Lock()
	s.Crowd = 1 << 30 // woken already since the last pass, for nothing
	s.Mu.Unlock()
	p.Polling.Passed.Store(p.Clock.Now() + int64(time.Hour)) // as on a machine where all this takes less than wakeEvery
	for _, x := range open {
		x.End()
	}
	p.Polling.Passed.Store(p.Clock.Now())
	require.Eventually(t, func() bool {
		x := enginetest.Op.Start(context.Background(), s)
		defer x.End()
		return x.Timed()
	}, time.Minute, time.Millisecond)
	require.Positive(t, p.Drops[record.DropPoolFull].Load())
}

// A stream whose sections come faster than their spans can be made holds up nobody else. Each span takes 200 µs here,
// so 100 ms are 500 of them.
func TestAHotStreamDoesNotStarveOthers(t *testing.T) {
	const span, limit = 200 * time.Microsecond, 500
	var hot atomic.Int64
	others := make(chan int64, 100)
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(enginetest.Processor{Ended: func(s sdktrace.ReadOnlySpan) {
		for end := time.Now().Add(span); time.Now().Before(end); {
		}
		if s.Name() == "hot" {
			hot.Add(1)
			return
		}
		others <- hot.Load()
	}}))
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithTracerProvider(tp))
	p := f.P
	s, calm := p.Stream(3, "hot"), p.Stream(4, "calm")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	op, other := record.NewOperation("hot"), record.NewOperation("calm")
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				for range 200 {
					op.Start(context.Background(), s).End()
				}
				time.Sleep(time.Millisecond)
			}
		}
	})
	// the hot stream's queue is full, and what does not fit is counted
	for hot.Load() < 2*limit || p.Drops[record.DropPoolFull].Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	anchors := func() (n int) {
		require.NoError(t, p.Poller.Call(context.Background(), func() { n = p.DeviceList.All()[0].Anchorer.Made() }))
		return n
	}
	before, spans := anchors(), hot.Load()
	for range 5 {
		other.Start(context.Background(), calm).End()
		at := hot.Load() // not before: a goroutine that loses its CPU in between would count what passed meanwhile
		require.LessOrEqual(t, <-others-at, int64(limit), "spans of the hot stream before the other's")
	}
	for hot.Load() < spans+4*limit {
		time.Sleep(time.Millisecond)
	}
	require.GreaterOrEqual(t, anchors()-before, 4, "400 ms and more of spans: clocks keep their rhythm")
	require.True(t, p.Stream(5, "new").DeviceTimed(), "streams are registered")
	enginetest.Flush(t, p) // what had ended by then
	close(stop)
	wg.Wait()
	// As many spans wait again. Shutdown abandons in time the spans for which the test's code takes long; they would be
	// made while the next test runs.
	enginetest.Flush(t, p)
}

// A stream that always has more to be read yields to goroutines that call after each of its turns.
func TestCallersAreServedWhileAStreamHasMore(t *testing.T) {
	set := settings.Default()
	set.Slots = settings.MaxSlots
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set))
	p := f.P
	s := p.Stream(3, "hot")
	read := func() uint64 {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		return s.Read
	}
	// Whether the second caller comes before all is read is the scheduler's matter, so it has some attempts.
	require.Eventually(t, func() bool {
		f.Flush(t)
		var between uint64
		total := read() + record.MaxInFlight
		second := make(chan error, 1)
		require.NoError(t, p.Poller.Call(context.Background(), func() {
			for range record.MaxInFlight {
				enginetest.Op.Start(context.Background(), s).End()
			}
			go func() { second <- p.Poller.Call(context.Background(), func() { between = read() }) }()
			for range 1000 {
				runtime.Gosched()
			}
		}))
		require.NoError(t, <-second)
		return between < total
	}, time.Minute, time.Millisecond)
}

// What panics in every pass, as a clock of the application may, leaves the thread callable, and it ends.
func TestPanickingThreadStillServesCallsAndStops(t *testing.T) {
	p, err := engine.New(enginetest.NewBackend(), enginetest.WithErrorHandler(func(error) {}))
	require.NoError(t, err)
	require.NoError(t, p.Poller.Call(context.Background(), func() { p.Poller.Waiting = []*record.Slot{nil} }))
	for range 3 {
		require.NoError(t, p.Poller.Call(context.Background(), func() {}))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.Error(t, p.Shutdown(ctx))
	<-p.Poller.Done
}
