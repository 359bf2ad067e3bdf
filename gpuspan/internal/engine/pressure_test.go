// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
)

func TestHalfOfTheFreeSlotsWakeThePollingThreadOnceBetweenTwoPasses(t *testing.T) {
	const slots = 64
	p, err := New(newScripted(), WithSlots(slots))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Shutdown(context.Background())) }()
	s := p.Stream(3, "main")
	awake := func() bool {
		select {
		case <-p.poller.Wakeups:
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
		paused(p, func() {
			p.Polling.Idle.Store(false) // it is between two passes
			p.Polling.Passed.Store(p.Clock.Now() + int64(c.passed))
			s.Mu.Lock()
			s.Looked()
			s.Mu.Unlock()
			awake()
			for i := 1; i <= slots; i++ {
				testOp.Start(context.Background(), s).End()
				if i == c.behind {
					s.Mu.Lock()
					s.Looked()
					s.Mu.Unlock()
					awake()
				} else if i > c.behind {
					require.Equal(t, c.wakes(i), awake(), "%s: section %d", name, i)
				}
			}
			require.False(t, testOp.Start(context.Background(), s).Timed(), name)
			require.Equal(t, c.passed < 0, awake(), "%s: a section without a slot", name)
		})
		flush(t, p)
	}
}

// asleep is a profiler whose polling thread has just looked and sleeps until woken, as it does between two passes, but
// for an hour, and is not marked as idle.
func asleep(t *testing.T, slots int) (*Profiler, *record.Stream) {
	p, err := New(nil, WithSlots(slots)) // no anchors that it would wake for
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	s := p.Stream(3, "main")
	paused(p, func() {
		p.poller.Sleep, p.poller.Longest = time.Hour, time.Hour
		p.Polling.Idle.Store(false)
		testOp.Start(context.Background(), s).End()
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
			testOp.Start(context.Background(), s).End()
		}
		// Records after the thread's last look, and is less than half of what was free then, waits for one more.
		require.Eventually(t, func() bool {
			used, _ := s.Filled()
			if used >= slots/2 && used < slots*3/4 {
				testOp.Start(context.Background(), s).End()
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
		open = append(open, testOp.Start(context.Background(), s))
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
		x := testOp.Start(context.Background(), s)
		defer x.End()
		return x.Timed()
	}, time.Minute, time.Millisecond)
	require.Positive(t, p.Drops[record.DropPoolFull].Load())
}
