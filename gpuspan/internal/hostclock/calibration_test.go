// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hostclock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = int64(time.Millisecond)

// passes observes a counter of 3 GHz every 60 ms.
func passes(c *calibration, from, to int64) {
	for ns := from; ns <= to; ns += 60 * ms {
		c.observe(reading{uint64(3 * ns), ns})
	}
}

func TestCounterIsCalibratedByTheMonotonicClock(t *testing.T) {
	var c calibration
	c.observe(reading{3e9, 1e9})
	require.Nil(t, c.line.Load(), "no rate is known")
	c.observe(reading{3e9 + uint64(3*shortest) - 3, 1e9 + int64(shortest) - 1})
	require.Nil(t, c.line.Load(), "the baseline is too short")
	c.observe(reading{3e9 + uint64(3*shortest), 1e9 + int64(shortest)})
	l := c.line.Load()
	require.InDelta(t, float64(2*int64(shortest)*3), float64(l.limit), 10, "twice the baseline")
	passes(&c, 2e9, 5e9)
	l = c.line.Load()
	require.InDelta(t, float64(3*int64(farthest)), float64(l.limit), 10)
	for _, ahead := range []int64{0, 1000, 60 * ms, int64(farthest)} {
		require.InDelta(t, float64(l.ns+ahead), float64(l.at(l.count+uint64(3*ahead))), 10)
	}
}

// A change of rate moves the line gradually, so that time never steps back.
func TestLineContinuesWhereItWas(t *testing.T) {
	var c calibration
	passes(&c, 0, 3e9)
	before := c.line.Load()
	last := before.ns
	for i := int64(1); i <= 10; i++ { // 10 ppm slower from now on
		ns := last + i*60*ms
		count := before.count + uint64(3*float64(i*60*ms)*(1-10e-6))
		was := c.line.Load()
		c.observe(reading{count, ns})
		require.Equal(t, was.at(count), c.line.Load().at(count))
		require.InDelta(t, float64(ns), float64(c.line.Load().ns), 1000)
	}
}

// After a sleep of the machine, or on a processor whose counter differs, nothing of the calibration
// holds.
func TestImpossibleDriftEndsTheCalibration(t *testing.T) {
	var c calibration
	passes(&c, 0, 3e9)
	l := c.line.Load()
	c.observe(reading{l.count + uint64(3*60*ms), l.ns + 61*ms})
	require.Nil(t, c.line.Load())
	passes(&c, 4e9, 8e9)
	require.NotNil(t, c.line.Load())

	c.observe(reading{0, 9e9}) // a counter that starts again

	passes(&c, 20e9, 25e9)
	require.NotNil(t, c.line.Load())
}

// The clock reads the same time either way, within what a comparison of two clocks can say on a
// busy machine.
func TestCounterAndMonotonicClockAgree(t *testing.T) {
	if !steady() {
		t.Skip("the processor's counter is not steady")
	}
	c := New(time.Now)
	for c.counted.line.Load() == nil {
		c.Observe()
	}
	agree := false
	for range 1000 {
		before := c.monotonic()
		ns, ok := c.counted.now()
		after := c.monotonic()
		agree = agree || ok && ns >= before-100 && ns <= after+100 // otherwise this thread may have been interrupted
		c.Observe()
	}
	require.True(t, agree)
}
