// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import (
	"math"
	"time"
)

const (
	firstInterval  = 10 * time.Millisecond
	steadyInterval = 60 * time.Millisecond
	idleAfter      = 10 * time.Second
)

// schedule says when anchors are due: at once on first use, then after 10, 20, 40 ms, then every 60 ms, none after ten
// seconds without use. Times are on the host axis, in ns.
type schedule struct {
	running  bool
	lastUse  int64
	due      int64
	interval time.Duration
}

// next returns whether an anchor is due now and how long to sleep until the next; 0 while idle.
func (s *schedule) next(now int64, busy bool) (due bool, wait time.Duration) {
	if busy {
		s.lastUse = now
		if !s.running {
			s.running, s.interval, s.due = true, firstInterval, now
		}
	}
	if s.running && now-s.lastUse > int64(idleAfter) {
		s.running = false
	}
	if !s.running {
		return false, 0
	}
	if now >= s.due {
		return true, s.interval
	}
	return false, time.Duration(s.due - now)
}

// done notes that an anchor was made (or tried) at now.
func (s *schedule) done(now int64) {
	s.due = now + int64(s.interval)
	s.interval = min(2*s.interval, steadyInterval)
}

// hurry starts the dense schedule anew and at once, after an anomaly.
func (s *schedule) hurry() {
	if s.running {
		s.interval, s.due = firstInterval, math.MinInt64
	}
}
