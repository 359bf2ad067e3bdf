// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package countertracker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const second = int64(time.Second)

func TestAddRateIntegratesOverTheTimeSinceTheLastValue(t *testing.T) {
	var s Sum
	assert.Zero(t, s.AddRate(10*second, 100, time.Second), "the rate before the first value is unknown")
	assert.Equal(t, 50.0, s.AddRate(11*second, 50, time.Second))
	assert.Equal(t, 250.0, s.AddRate(13*second, 100, time.Second))
	assert.Equal(t, 250.0, s.AddRate(13*second, 100, time.Second), "twice the same")
	assert.Equal(t, 250.0, s.AddRate(12*second, 100, time.Second), "an older one")
	assert.Equal(t, 250.0, s.AddRate(20*second, 100, time.Second), "7 s after a gap of 2 s")
	assert.Equal(t, 2150.0, s.AddRate(39*second, 100, time.Second), "19 s after a gap of 7 s")
	assert.Equal(t, 2160.0, s.AddRate(40*second, 10, time.Second))
	assert.Equal(t, 2190.0, s.AddRate(43*second, 10, time.Second), "three intervals")
	assert.Equal(t, 2190.0, s.AddRate(53*second, 10, time.Second), "a gap of 10 s after one of 3 s")

	var every Sum
	every.AddRate(second, 100, 0)
	assert.Equal(t, 9900.0, every.AddRate(100*second, 100, 0), "the first gap of an unknown interval")
}

func TestAddCounterContinuesAfterRates(t *testing.T) {
	var s Sum
	s.AddRate(second, 100, time.Second)
	s.AddRate(2*second, 100, time.Second)
	assert.Equal(t, 100.0, s.AddCounter(3*second, 0, 1e12), "the counter began earlier")
	assert.Equal(t, 105.0, s.AddCounter(4*second, 0, 1e12+5))
	assert.Equal(t, 105.0, s.AddCounter(5*second, 0, 7), "a reset")
	assert.Equal(t, 106.0, s.AddCounter(6*second, 0, 8))
}

func TestAddDeltaIgnoresRepetitions(t *testing.T) {
	var s Sum
	assert.Equal(t, 3.0, s.AddDelta(second, 3))
	assert.Equal(t, 3.0, s.AddDelta(second, 3))
	assert.Equal(t, 8.0, s.AddDelta(2*second, 5))
}

// The counter is 1000 J, 2000 J, … at 1 s, 2 s, …; a late value must not be mistaken for a reset.
func TestAddCounterIgnoresLateValues(t *testing.T) {
	var s Sum
	for _, at := range []int64{1, 2, 4, 3, 5, 2, 5} {
		s.AddCounter(at*second, 0, float64(at)*1000)
	}
	assert.Equal(t, 4000.0, s.AddCounter(5*second, 0, 5000))
}

// After a reset, if a counter already exceeds its last value, only its start time reveals the
// reset.
func TestAddCounterDetectsResetsByTheStartTime(t *testing.T) {
	var s Sum
	s.AddCounter(1*second, second/2, 100)
	assert.Equal(t, 50.0, s.AddCounter(2*second, second/2, 150))
	assert.Equal(t, 250.0, s.AddCounter(4*second, 3*second, 200), "50 before, 200 since the start")
	assert.Equal(t, 450.0, s.AddCounter(5*second, 3*second, 400))
	assert.Equal(t, 455.0, s.AddCounter(6*second, second/2, 405), "a start that decreases is not a reset")
	assert.Equal(t, 460.0, s.AddCounter(7*second, 7*second, 410), "nor is the start of a scraper that begins now")
}
