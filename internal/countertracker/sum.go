// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package countertracker combines a device's readings into one counter: of a rate, a counter, or
// deltas.
package countertracker

import "time"

// Sum is a counter that begins at 0 and continues when the device changes the form of its readings.
// The zero value is ready. Times are unix ns.
type Sum struct {
	time  int64 // of the newest value
	gap   int64 // between the last two values
	total float64
	raw   float64 // the device's own counter
	known bool    // raw is valid
}

// Newer reports whether a time is after the newest value. Only newer values are added.
func (s *Sum) Newer(t int64) bool { return s.time == 0 || t > s.time }

// AddRate integrates a mean rate per second over the time since the previous value. It adds nothing
// for a gap of more than three intervals (the requested one or the last one, whichever is longer),
// for which the rate is unknown.
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

// AddCounter adds the increase of the device's counter. It ignores a value that is not newer than
// the last one. start is the time at which the counter was 0, 0 if unknown. A start after the
// newest value is a reset, and the whole counter was counted after it. A start equal to the value's
// own time only states when a reader first saw the counter (a restarted scraper). A decrease
// without a start is a reset too, at an unknown time: what was counted across it is unknown and is
// not added.
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

// AddDelta adds an increase that was counted separately. It ignores a delta that is not newer than
// the last value.
func (s *Sum) AddDelta(t int64, delta float64) float64 {
	if t > s.time {
		s.total += delta
		s.time = t
	}
	return s.total
}
