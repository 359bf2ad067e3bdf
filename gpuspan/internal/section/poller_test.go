// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section_test

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
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
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
		behind int           // sections that were still running at the last pass
		wakes  func(ended int) bool
	}{
		"it has just looked":              {time.Hour, 0, func(n int) bool { return n == slots/2 }},
		"and the device was behind":       {time.Hour, 40, func(n int) bool { return n == 40+12 }},
		"by nearly all slots":             {time.Hour, 60, func(int) bool { return false }},
		"it has not looked for a while":   {-time.Hour, 0, func(n int) bool { return n >= slots/2 }},
		"for a while, and all slots wait": {-time.Hour, 60, func(n int) bool { return n >= slots/2 }},
	} {
		enginetest.Paused(p, func() {
			p.Idle().Store(false) // it is between two passes
			p.Passed().Store(p.Clock.Now() + int64(c.passed))
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

// asleep returns a profiler whose polling thread has just polled and sleeps, as between two passes,
// but for an hour and without being marked as idle.
func asleep(t *testing.T, slots int) (*engine.Profiler, *section.Stream) {
	p, err := engine.New(nil, enginetest.WithSlots(slots)) // no anchors that would wake it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	s := p.Stream(3, "main")
	enginetest.Paused(p, func() {
		(*p.Poller.Sleep()), (*p.Poller.Longest()) = time.Hour, time.Hour
		p.Idle().Store(false)
		enginetest.Op.Start(context.Background(), s).End()
	})
	waitForRead(t, s, 1)
	return p, s
}

func waitForRead(t *testing.T, s *section.Stream, n uint64) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		return (*s.Read()) >= n
	}, time.Minute, time.Millisecond)
}

// Slots are freed in the middle of a burst, long before the polling thread would have polled.
func TestABurstIsReadWhileThePollingThreadSleeps(t *testing.T) {
	p, s := asleep(t, 256)
	for range 20 {
		// A stream is not read while thousands of its sections wait for the exporter, which does
		// not wake the thread.
		require.Eventually(t, func() bool { return s.InFlight.Load() == 0 }, time.Minute, time.Millisecond)
		slots, _, _ := s.Filled() // the stream gets more if a pass finds half of them pending
		for range slots/2 + 1 {
			enginetest.Op.Start(context.Background(), s).End()
		}
		// Records after the last poll that use less than half of the then free slots wait for one
		// more.
		require.Eventually(t, func() bool {
			slots, used, _ := s.Filled()
			if used >= slots/2 && used < slots*3/4 {
				enginetest.Op.Start(context.Background(), s).End()
			}
			return used < slots/2
		}, time.Minute, time.Millisecond)
	}
	require.Zero(t, p.Drops()["pool_full"])
}

// Without a free slot no section ends, so the section without a slot must wake the thread.
func TestASectionWithoutASlotWakesThePollingThread(t *testing.T) {
	const slots = 16
	p, s := asleep(t, slots)
	var open []section.Section
	for range slots {
		open = append(open, enginetest.Op.Start(context.Background(), s))
	}
	s.Mu.Lock()
	(*s.Crowd()) = 1 << 30 // already woken since the last pass, without effect
	s.Mu.Unlock()
	p.Passed().Store(p.Clock.Now() + int64(time.Hour)) // as on a machine on which all this takes less than wakeEvery
	for _, x := range open {
		x.End()
	}
	p.Passed().Store(p.Clock.Now())
	require.Eventually(t, func() bool {
		x := enginetest.Op.Start(context.Background(), s)
		defer x.End()
		return x.Timed()
	}, time.Minute, time.Millisecond)
	require.Positive(t, p.Drops()["pool_full"])
}

// A stream with more sections than the exporter can process does not delay others. Each span takes
// 200 µs here, so 100 ms are 500 of them.
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
	op, other := section.NewOperation("hot"), section.NewOperation("calm")
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
	// the hot stream's queue is full, and further sections are counted as dropped
	for hot.Load() < 2*limit || p.Drops()["pool_full"] == 0 {
		time.Sleep(time.Millisecond)
	}
	anchors := func() (n int) {
		require.NoError(t, p.Poller.Call(context.Background(), func() { n = p.TimedDevices()[0].Anchorer.Made() }))
		return n
	}
	before, spans := anchors(), hot.Load()
	for range 5 {
		other.Start(context.Background(), calm).End()
		at := hot.Load() // read here, because a goroutine that loses its CPU would count too many
		require.LessOrEqual(t, <-others-at, int64(limit), "spans of the hot stream before the other's")
	}
	for hot.Load() < spans+4*limit {
		time.Sleep(time.Millisecond)
	}
	require.GreaterOrEqual(t, anchors()-before, 4, "400 ms and more of spans: clocks keep their rhythm")
	require.True(t, p.Stream(5, "new").DeviceTimed(), "streams are registered")
	enginetest.Flush(t, p) // flushes what had ended by then
	close(stop)
	wg.Wait()
	// As many spans are pending again. Shutdown would abandon them in time, but they would be
	// created during the next test.
	enginetest.Flush(t, p)
}

// A stream that always has more sections to read yields to calling goroutines after each turn.
func TestCallersAreServedWhileAStreamHasMore(t *testing.T) {
	set := settings.Default()
	set.Slots = settings.MaxSlots
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set))
	p := f.P
	s := p.Stream(3, "hot")
	read := func() uint64 {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		return (*s.Read())
	}
	// The scheduler decides whether the second call arrives before everything is read, so the test
	// retries.
	require.Eventually(t, func() bool {
		f.Flush(t)
		var between uint64
		total := read() + section.MaxInFlight
		second := make(chan error, 1)
		require.NoError(t, p.Poller.Call(context.Background(), func() {
			for range section.MaxInFlight {
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

// A panic in every pass, as from an application's clock, leaves the thread callable and able to
// stop.
func TestPanickingThreadStillServesCallsAndStops(t *testing.T) {
	p, err := engine.New(enginetest.NewBackend(), enginetest.WithErrorHandler(func(error) {}))
	require.NoError(t, err)
	require.NoError(t, p.Poller.Call(context.Background(), func() { (*p.Poller.Waiting()) = []*section.Slot{nil} }))
	for range 3 {
		require.NoError(t, p.Poller.Call(context.Background(), func() {}))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.Error(t, p.Shutdown(ctx))
	<-p.Poller.Done
}
