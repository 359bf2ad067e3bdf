// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"math"
	"slices"
)

// reading is how many ns a clock is ahead at a time on it.
type reading struct {
	at    int64
	ahead float64
}

// clock is a line through readings: ahead at a time, with its change per ns.
type clock struct {
	at    int64
	ahead float64
	rate  float64
}

// aheadAt returns how many ns the clock is ahead when it shows t.
func (c clock) aheadAt(t int64) float64 { return c.ahead + c.rate*float64(t-c.at) }

// Limits of a drift: crystals drift by 100 ppm at most, and a line through few or noisy readings
// follows the noise.
const (
	maxRate       = 1e-3
	driftReadings = 8
	driftGain     = 0.7 // of the spread around a constant that the spread around a line may have
	driftSample   = 256 // readings for fitting a line
)

// clockOf fits a clock to readings, which it reorders. Medians keep a collective that did not end
// on all ranks at once from moving the clock. The clock drifts only if that explains the readings
// clearly better than a constant.
func clockOf(readings []reading) clock {
	slices.SortStableFunc(readings, func(x, y reading) int { return cmp.Compare(x.at, y.at) })
	values := make([]float64, len(readings))
	for i, r := range readings {
		values[i] = r.ahead
	}
	c := clock{at: readings[len(readings)/2].at, ahead: median(values)}
	if len(readings) < driftReadings {
		return c
	}
	sample := readings
	if n := len(readings); n > driftSample {
		sample = make([]reading, 0, driftSample)
		for i := range driftSample {
			sample = append(sample, readings[i*(n-1)/(driftSample-1)])
		}
	}
	line := clock{at: c.at, rate: slope(sample)}
	if line.rate == 0 || math.Abs(line.rate) > maxRate {
		return c
	}
	for i, r := range readings {
		values[i] = r.ahead - line.rate*float64(r.at-line.at)
	}
	line.ahead = median(values)
	if line.spread(readings) > driftGain*c.spread(readings) {
		return c
	}
	return line
}

// slope returns the median slope between readings of the first half and of the second.
func slope(list []reading) float64 {
	half := len(list) / 2
	slopes := make([]float64, 0, half)
	for i := range half {
		a, b := list[i], list[i+len(list)-half]
		if b.at > a.at {
			slopes = append(slopes, (b.ahead-a.ahead)/float64(b.at-a.at))
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	return median(slopes)
}

// spread returns the median distance of readings from the clock, in ns.
func (c clock) spread(readings []reading) float64 {
	values := make([]float64, len(readings))
	for i, r := range readings {
		values[i] = math.Abs(r.ahead - c.aheadAt(r.at))
	}
	return median(values)
}
