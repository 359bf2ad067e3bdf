// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package plausibility

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// feed adds a change each second for some minutes; power alternates between 100 and 500 W every 7
// s.
func feed(c *Counter, minutes int, counter func(power float64) float64) (reasons []Reason) {
	p, k := 0.0, 0.0
	for i := range 60 * minutes {
		w := 100.0
		if i/7%2 == 1 {
			w = 500
		}
		p, k = p+w, k+counter(w)
		r := Reading{
			Time: int64(time.Duration(i+1) * time.Second), Counter: k, Power: p, Gap: 100 * time.Millisecond,
			Period: 100 * time.Millisecond,
		}
		if found, is := c.Add(r); is {
			reasons = append(reasons, found.Reason)
		}
	}
	return reasons
}

func TestACounterIsComparedWithPower(t *testing.T) {
	for name, tt := range map[string]struct {
		counter func(w float64) float64
		want    Reason
		wrong   bool
	}{
		"ten times": {func(w float64) float64 { return 10 * w }, CounterFactor, true},
		"a tenth":   {func(w float64) float64 { return w / 10 }, CounterFactor, true},
		"half":      {func(w float64) float64 { return w / 2 }, CounterFactor, true},
		"module":    {func(w float64) float64 { return w + 150 }, CounterModule, true},
		"20 % more": {func(w float64) float64 { return 1.2 * w }, CounterDeviates, false},
	} {
		t.Run(name, func(t *testing.T) {
			var c Counter
			got := feed(&c, 5, tt.counter)
			require.NotEmpty(t, got)
			require.Equal(t, tt.want, got[len(got)-1])
			require.Equal(t, tt.wrong, c.Wrong)
		})
	}
	var c Counter
	require.Empty(t, feed(&c, 30, func(w float64) float64 { return 1.05 * w }))
	require.Equal(t, State{}, c.State)
}

func TestAFrozenCounterIsReportedOnceUntilItCountsAgain(t *testing.T) {
	var c Counter
	_, is := c.Still(900*time.Millisecond, 270, 100*time.Millisecond)
	require.False(t, is)
	_, is = c.Still(80*time.Second, 24_000, 0)
	require.False(t, is, "a counter can be refreshed every 30 s")
	found, is := c.Still(2*time.Second, 600, 100*time.Millisecond)
	require.True(t, is)
	require.Equal(t, CounterFrozen, found.Reason)
	require.True(t, c.Wrong)
	_, is = c.Still(3*time.Second, 900, 100*time.Millisecond)
	require.False(t, is)
	c.Add(Reading{Time: 1, Counter: 1, Power: 1})
	require.False(t, c.Wrong)
}

func TestAnOffsetClockIsToldFromLateSamples(t *testing.T) {
	for _, offset := range []time.Duration{-10 * time.Second, -time.Second, 0, time.Second, 3 * time.Second} {
		var c Clock
		got := time.Duration(0)
		for i := range 30 {
			now := time.Duration(i) * time.Second
			late := time.Duration(i%3) * 700 * time.Millisecond // some samples arrive late
			got, _ = c.Add(int64(now), int64(now+offset-late), 100*time.Millisecond)
		}
		require.Equal(t, offset, got)
	}
}

// After both agreed, the one that leaves their range is wrong.
func TestTheOneThatLeavesTheRangeIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		counter, power float64 // factors
		want           Reason
		wrong          bool
		deviates       func(share float64) bool
	}{
		"counter":             {10, 1, CounterFactor, true, func(share float64) bool { return share == 0 }},
		"counter falls":       {1e-3, 1, CounterFactor, true, func(share float64) bool { return share == 0 }},
		"power":               {1, 10, PowerFactor, false, func(share float64) bool { return share == hopeless }},
		"power falls":         {1, 1e-3, PowerFactor, false, func(share float64) bool { return share == hopeless }},
		"either, as is usual": {1, 1.8, CounterFactor, true, func(share float64) bool { return share > .4 && share < .5 }},
	} {
		t.Run(name, func(t *testing.T) {
			var c Counter
			at, p, k, last := int64(0), 0.0, 0.0, NumReasons
			run := func(seconds int, counter, power float64) {
				for i := range seconds {
					w := 100 + 400*float64(i/7%2)
					p, k = p+power*w, k+counter*w
					at += int64(time.Second)
					found, is := c.Add(Reading{
						Time: at, Counter: k, Power: p, Gap: 100 * time.Millisecond, Period: 100 * time.Millisecond,
					})
					if is {
						last = int(found.Reason)
					}
				}
			}
			run(180, 1, 1)
			require.Equal(t, NumReasons, last)
			run(240, tt.counter, tt.power)
			require.Equal(t, int(tt.want), last)
			require.Equal(t, tt.wrong, c.Wrong)
			require.True(t, tt.deviates(c.Deviation), c.Deviation)
			run(180, 1, 1)
			require.Equal(t, State{}, c.State)
		})
	}
}
