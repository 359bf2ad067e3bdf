// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import "math"

// limits contain a host time, relative to the map's origin.
type limits struct{ lo, hi float64 }

func (l limits) error(at float64) float64 { return max(l.hi-at, at-l.lo) }

// section is what is known of the two ends of a section.
type section struct {
	start, end limits
	length     float64 // GPU time between the stamps
	tick       float64 // both stamps are truncated, so the section can be a tick longer or shorter
	slow, fast float64 // limits of the rate
}

// tighten lets each end limit the other one through the length; false when nothing is left.
func (s *section) tighten() bool {
	shortest := max(s.length*s.slow-s.tick, 0)
	longest := s.length*s.fast + s.tick
	s.end.lo = max(s.end.lo, s.start.lo+shortest)
	s.end.hi = min(s.end.hi, s.start.hi+longest)
	s.start.hi = min(s.start.hi, s.end.hi-shortest)
	s.start.lo = max(s.start.lo, s.end.lo-longest)
	return s.start.lo <= s.start.hi && s.end.lo <= s.end.hi && !math.IsNaN(s.start.lo)
}
