// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import "slices"

const recentGaps = 9

// Staircase decides which readings of a quantity that is refreshed more slowly than it is read are
// measurements. The zero value is ready for use.
type Staircase struct {
	gaps    [recentGaps]int64 // ns between two changes
	changes uint64
	last    int64 // time of the last change
}

// Changed records a change that was seen at time t.
func (s *Staircase) Changed(t int64) {
	if s.changes > 0 {
		s.gaps[(s.changes-1)%recentGaps] = t - s.last
	}
	s.last = t
	s.changes++
}

// Period returns the refresh period in ns, 0 while unknown: the second shortest of the recent times
// between two changes. Longer ones occur while the quantity does not change, and one shorter one
// after a late reading.
func (s *Staircase) Period() int64 {
	n := int(min(s.changes, recentGaps+1)) - 1
	if n < 3 {
		return 0
	}
	gaps := s.gaps
	slices.Sort(gaps[:n])
	return gaps[1]
}

// Stale reports whether a repeated value read at time t is not a measurement: the source has had no
// time to refresh it.
func (s *Staircase) Stale(t int64) bool { return 2*(t-s.last) <= 3*s.Period() }
