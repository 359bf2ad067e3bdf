// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import "time"

// sum is a counter that is made from what a device gives: a rate, or a counter of its own. It begins at 0 and goes on
// when the device begins to give the other.
type sum struct {
	time  int64 // µs, of the newest value
	gap   int64 // µs, between the last two
	total float64
	raw   float64 // the device's own counter
	known bool    // raw is
}

// addRate integrates a mean rate per second over the time since the value before. Over a gap of more than three
// intervals nothing is known and nothing is added.
func (s *sum) addRate(ts int64, rate float64, sampling time.Duration) float64 {
	if s.time != 0 && ts > s.time {
		gap := ts - s.time
		if gap <= 3*max(s.gap, sampling.Microseconds()) {
			s.total += rate * float64(gap) * 1e-6
		}
		s.gap = gap
	}
	s.time = max(s.time, ts)
	return s.total
}

// addCounter adds what the device's counter grew by. A decrease is a reset: what was counted across it is unknown.
func (s *sum) addCounter(ts int64, raw float64) float64 {
	if s.known && raw > s.raw {
		s.total += raw - s.raw
	}
	s.raw, s.known = raw, true
	s.time = max(s.time, ts)
	return s.total
}
