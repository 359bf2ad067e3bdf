// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package countersum makes one counter of what a device gives for it: a rate, a counter of its own, or deltas.
package countersum

import "time"

// Sum is a counter that begins at 0 and goes on when the device begins to give it in another form. The zero value is
// ready. Times are unix ns.
type Sum struct {
	time  int64 // of the newest value
	gap   int64 // between the last two
	total float64
	raw   float64 // the device's own counter
	known bool    // raw is
}

// AddRate integrates a mean rate per second over the time since the value before. Over a gap of more than three
// intervals (the asked one or the last one, whichever is longer) nothing is known and nothing is added.
func (s *Sum) AddRate(t int64, rate float64, interval time.Duration) float64 {
	if s.time != 0 && t > s.time {
		gap := t - s.time
		if gap <= 3*max(s.gap, int64(interval)) {
			s.total += rate * float64(gap) * 1e-9
		}
		s.gap = gap
	}
	s.time = max(s.time, t)
	return s.total
}

// AddCounter adds what the device's counter grew by. A decrease is a reset: what was counted across it is unknown.
func (s *Sum) AddCounter(t int64, raw float64) float64 {
	if s.known && raw > s.raw {
		s.total += raw - s.raw
	}
	s.raw, s.known = raw, true
	s.time = max(s.time, t)
	return s.total
}

// AddDelta adds a part that was counted for its own. Parts that are not newer than the last are not added again.
func (s *Sum) AddDelta(t int64, delta float64) float64 {
	if t > s.time {
		s.total += delta
		s.time = t
	}
	return s.total
}
