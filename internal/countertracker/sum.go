// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package countertracker makes one counter of what a device gives for it: a rate, a counter of its own, or deltas.
package countertracker

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

// Newer says whether a time is after that of the newest value. What is not is in no sum.
func (s *Sum) Newer(t int64) bool { return s.time == 0 || t > s.time }

// AddRate integrates a mean rate per second over the time since the value before. Over a gap of more than three
// intervals (the asked one or the last one, whichever is longer) nothing is known and nothing is added.
func (s *Sum) AddRate(t int64, rate float64, interval time.Duration) float64 {
	if s.time != 0 && t > s.time {
		gap := t - s.time
		if usual := max(s.gap, int64(interval)); usual == 0 || gap <= 3*usual {
			s.total += rate * float64(gap) * 1e-9
		}
		s.gap = gap
	}
	s.time = max(s.time, t)
	return s.total
}

// AddCounter adds what the device's counter grew by. A value that is not newer than the last is not looked at. start is
// when the counter began at 0, 0 where that is not known: one after the newest value is a reset, and everything that
// the counter holds came after it. A start that is the value's own time says only that somebody saw the counter for the
// first time (a scraper that was restarted). A decrease without a start is a reset too, at an unknown time: what was
// counted across it is unknown.
func (s *Sum) AddCounter(t, start int64, raw float64) float64 {
	if !s.Newer(t) {
		return s.total
	}
	switch {
	case s.known && start > s.time && start < t:
		s.total += raw
	case s.known && raw > s.raw:
		s.total += raw - s.raw
	}
	s.raw, s.known = raw, true
	s.time = t
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
