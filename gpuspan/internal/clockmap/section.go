// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import "math"

// limits contain a host time, relative to the map's origin.
type limits struct{ lo, hi float64 }

func (l limits) error(at float64) float64 { return max(l.hi-at, at-l.lo) }

func (l *limits) widen(by float64) { l.lo, l.hi = l.lo-by, l.hi+by }

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

// bracket is what all anchors say of the time between the two newest, where sections are placed many at a time: where
// these two lie and how fast the clocks went in between. It is wider than [Map.limits] by what the rate can change from
// one of them to the other, a few nanoseconds, and narrower where each knows another side of the rate.
type bracket struct {
	from, to    float64 // GPU times
	first, last limits  // at them
	slow, fast  float64 // of the mean rate over any part
	known       bool    // else it is to be computed
}

// within gives the two ends of a section their limits and the rate between them, if both lie in the bracket.
func (m *Map) within(s *section, start, end float64) bool {
	b := &m.bracket
	if !b.known {
		m.makeBracket()
	}
	if !(start >= b.from && end <= b.to) { // NaN is nowhere
		return false
	}
	s.start, s.end = b.limits(start), b.limits(end)
	s.slow, s.fast = b.slow, b.fast
	return s.start.lo <= s.start.hi && s.end.lo <= s.end.hi
}

func (b *bracket) limits(gpu float64) limits {
	since, until := gpu-b.from, b.to-gpu
	return limits{
		lo: max(b.first.lo+b.slow*since, b.last.lo-b.fast*until),
		hi: min(b.first.hi+b.fast*since, b.last.hi-b.slow*until),
	}
}

// makeBracket computes it. There is none before the second anchor and around a jump.
func (m *Map) makeBracket() {
	b := &m.bracket
	*b = bracket{from: math.Inf(1), to: math.Inf(-1), known: true}
	anchors := m.current()
	n := len(anchors)
	if n < 2 {
		return
	}
	first, last := &anchors[n-2], &anchors[n-1]
	far := 2 * (last.gpu - first.gpu) // no part's ends lie further from either anchor
	slow, fast := m.rates(first, far)
	b.slow, b.fast = m.rates(last, far)
	if b.slow, b.fast = max(b.slow, slow), min(b.fast, fast); b.slow > b.fast {
		return // contradicting anchors
	}
	b.from, b.to = first.gpu, last.gpu
	b.first.lo, b.first.hi = m.limitsOf(m.jumps.made, b.from)
	b.last.lo, b.last.hi = m.limitsOf(m.jumps.made, b.to)
}
