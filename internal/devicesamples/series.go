// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"slices"

	"github.com/otelgpu/otelgpu/internal/instrument"
)

// point is one stored value. For a counter v is unwrapped: it begins at 0, never decreases, and a
// reset adds nothing. A counter is a staircase: it is refreshed at its own pace, whatever the rate
// of reading, so a point is a change, and a repeated value is none until the counter has had time
// to change.
type point struct {
	t        int64
	v        float64
	integral float64 // running integral in value × seconds, for a counter the running increase; without uncovered gaps
	covered  int64   // running length of the covered gaps, ns
}

const (
	pointSize    = 32
	minPoints    = 128 // of a ring while there is room
	fewestPoints = 16  // where there is little
	medianWindow = 9
	// gapFactor: two samples further apart than this many intervals do not cover the time between
	// them.
	gapFactor = 3
)

// series is the ring of one field of one device. Positions are absolute and only grow; the point at
// position i is pts[i & (len(pts)-1)]; positions in [head, tail) exist. It is guarded by the
// store's lock.
type series struct {
	kind       Kind
	fastest    float64 // of a counter: the highest increase per second; at once, for counters are stairs
	pts        []point
	before     []int64 // of a counter: when it was read before each point, with the old value; 0: never
	head, tail uint64
	read       int64 // when the newest value was read, also if it repeats the one before
	stairs     instrument.Staircase
	still      bool    // the counter may pause
	raw        float64 // newest value as written, before unwrapping
	fall       instrument.Fall
	base       float64 // of a counter: what rebase has taken off its values
	nominal    int64   // requested interval, ns; 0: unknown
	gaps       [medianWindow]int64
	nGaps      uint64
	interval   int64 // max(nominal, median gap), ns; 0 unknown
	period     updatePeriod
}

func (s *series) len() int           { return int(s.tail - s.head) }
func (s *series) at(i uint64) *point { return &s.pts[i&uint64(len(s.pts)-1)] }
func (s *series) first() *point      { return s.at(s.head) }
func (s *series) last() *point       { return s.at(s.tail - 1) }

// push appends a point that is newer than the last one. The ring must have room.
func (s *series) push(t int64, raw float64) {
	p := point{t: t, v: raw}
	before := int64(0)
	if s.len() > 0 {
		last := s.last()
		gap := t - last.t
		before = s.read
		s.observeGap(t - s.read)
		usual := s.interval
		if s.kind == KindCounter {
			usual = max(usual, s.period.value()) // a counter bridges a pause of its reader
		}
		covered := s.interval == 0 || t-s.read <= gapFactor*usual
		increase := 0.0
		if s.kind == KindCounter {
			increase = raw - s.raw
			// A counter of rare events may well be back at its value soon after a reset.
			if more, ok := s.fall.Returns(s.raw, raw); ok && !s.still {
				increase, covered = more, false
			}
			if increase < 0 || increase > s.fastest*max(1, float64(gap)*1e-9) {
				increase, covered = 0, false // a reset, or an increase that no device has
			}
			if raw == s.raw && covered && (!s.still || s.stairs.Stale(t)) {
				s.read = t
				return
			}
			p.v = last.v + increase
			s.period.observe(t, increase > 0, covered)
			if increase > 0 {
				s.stairs.Changed(t)
			}
		}
		p.integral, p.covered = last.integral, last.covered
		if covered {
			p.integral += integrate(s.kind, last.v, p.v, gap, gap)
			p.covered += gap
		}
	}
	if s.kind == KindCounter && s.len() == 0 {
		p.v = 0 // only differences count, and a large origin would cost precision
	}
	s.raw, s.read = raw, t
	s.pts[s.tail&uint64(len(s.pts)-1)] = p
	if s.kind == KindCounter {
		s.before[s.tail&uint64(len(s.pts)-1)] = before
	}
	if s.tail++; s.tail&uint64(len(s.pts)-1) == 0 {
		s.rebase()
	}
}

// rebase makes the integrals start at the oldest point again, and a counter's values too. Otherwise
// they would grow for as long as the process runs, and differences of large numbers lose precision:
// a thousandth of a span of 2 µs after half a year.
func (s *series) rebase() {
	first := *s.first()
	if s.kind == KindCounter {
		s.base += first.v
	} else {
		first.v = 0
	}
	for i := s.head; i < s.tail; i++ {
		p := s.at(i)
		p.v -= first.v
		p.integral -= first.integral
	}
}

// integrate returns the integral from the older of two points over the first x of the gap ns
// between them.
func integrate(k Kind, older, newer float64, x, gap int64) float64 {
	seconds := float64(x) * 1e-9
	switch k {
	case KindInstant:
		return (older + (newer-older)*float64(x)/float64(gap)/2) * seconds
	case KindCounter:
		return (newer - older) * float64(x) / float64(gap)
	case KindMask:
		if newer == 0 {
			return 0
		}
		return seconds
	default:
		return newer * seconds
	}
}

// observeGap updates the interval: the requested one or the median of the last gaps, whichever is
// longer. The requested interval alone is unreliable: DCGM polls at the fastest watch of all its
// clients, a device class can have a minimum, and a scraped exporter has its own period.
func (s *series) observeGap(gap int64) {
	s.gaps[s.nGaps%medianWindow] = gap
	s.nGaps++
	s.interval = s.nominal
	if s.nGaps < 3 {
		if s.nominal == 0 {
			s.interval = max(s.interval, gap)
		}
		return
	}
	n := int(min(s.nGaps, medianWindow))
	sorted := s.gaps
	slices.Sort(sorted[:n])
	s.interval = max(s.interval, sorted[(n-1)/2])
}

// resize gives the ring n points, a power of two, keeps the newest points and returns how many were
// dropped.
func (s *series) resize(n int) (dropped int) {
	dropped = max(0, s.len()-n)
	s.head += uint64(dropped)
	pts := make([]point, n)
	for i := s.head; i < s.tail; i++ {
		pts[i&uint64(len(pts)-1)] = *s.at(i)
	}
	if s.kind == KindCounter {
		before := make([]int64, n)
		for i := s.head; i < s.tail; i++ {
			before[i&uint64(n-1)] = s.before[i&uint64(len(s.pts)-1)]
		}
		s.before = before
	}
	s.pts = pts
	return dropped
}

// pointSize returns the memory of a point in bytes.
func (s *series) pointSize() int64 {
	if s.kind == KindCounter {
		return pointSize + 8
	}
	return pointSize
}

// slow reports whether a counter is refreshed more rarely than it is read, or does not change.
func (s *series) slow() bool {
	return s.kind == KindCounter && max(s.stairs.Period(), s.read-s.last().t) > 3*s.interval/2
}

// clear removes the points and keeps the memory.
func (s *series) clear() {
	s.head = s.tail
	s.nGaps, s.read, s.fall, s.period, s.stairs = 0, 0, instrument.Fall{}, updatePeriod{}, instrument.Staircase{}
}

// after returns the position of the first point with time > t; tail if there is none. Samples are
// nearly equidistant, so the search starts where t would be, continues in steps that double, and
// ends in a binary search.
func (s *series) after(t int64) uint64 {
	lo, hi := s.head, s.tail
	if lo == hi || t >= s.last().t {
		return hi
	}
	if s.interval > 0 {
		if back := uint64((s.last().t - t) / s.interval); back < hi-lo {
			lo, hi = s.around(hi-1-back, t)
		}
	}
	for lo < hi {
		mid := lo + (hi-lo)/2
		if s.at(mid).t > t {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// around narrows the search to [lo, hi] from a guess.
func (s *series) around(guess uint64, t int64) (lo, hi uint64) {
	if s.at(guess).t > t {
		hi = guess
		for step := uint64(1); step <= guess-s.head; step *= 2 {
			if s.at(guess-step).t <= t {
				return guess - step + 1, hi
			}
			hi = guess - step
		}
		return s.head, hi
	}
	lo = guess + 1
	for step := uint64(1); guess+step < s.tail; step *= 2 {
		if s.at(guess+step).t > t {
			return lo, guess + step
		}
		lo = guess + step + 1
	}
	return lo, s.tail
}

// between returns the integral over the covered part of [start, end], end > start, and that part's
// length. Pieces of cells are computed from their two points alone, for in the difference of two
// running integrals a short piece would lose its digits.
func (s *series) between(start, end int64) (integral float64, covered int64) {
	start, end = max(start, s.first().t), min(end, s.last().t)
	if end <= start {
		return 0, 0
	}
	// the cells that end at i and j; j is within, for end is not after the last point
	i := s.after(start)
	if end <= s.at(i).t {
		return s.piece(i, start, end)
	}
	j := s.after(end - 1)
	from, to := s.at(i), s.at(j-1)
	head, headCovered := s.piece(i, start, from.t)
	tail, tailCovered := s.piece(j, to.t, end)
	return head + (to.integral - from.integral) + tail, headCovered + (to.covered - from.covered) + tailCovered
}

// piece returns the integral over [start, end] in the cell that ends at i.
func (s *series) piece(i uint64, start, end int64) (integral float64, covered int64) {
	older, newer := s.at(i-1), s.at(i)
	if newer.covered == older.covered || end <= start {
		return 0, 0
	}
	gap, length := newer.t-older.t, float64(end-start)
	switch s.kind {
	case KindInstant:
		middle := float64(start-older.t) + length/2
		return (older.v + (newer.v-older.v)*middle/float64(gap)) * length * 1e-9, end - start
	case KindCounter:
		return (newer.v - older.v) * length / float64(gap), end - start
	default:
		return integrate(s.kind, older.v, newer.v, end-start, gap), end - start
	}
}

// value returns v at t by linear interpolation; false outside of the stored range.
func (s *series) value(t int64) (float64, bool) {
	if s.len() == 0 || t < s.first().t || t > s.last().t {
		return 0, false
	}
	i := s.after(t)
	if i == s.tail {
		return s.base + s.last().v, true
	}
	older, newer := s.at(i-1), s.at(i)
	return s.base + older.v + (newer.v-older.v)*float64(t-older.t)/float64(newer.t-older.t), true
}

// each calls fn with the values at both ends of every covered piece of [start, end].
func (s *series) each(start, end int64, fn func(a, b float64)) {
	if s.len() == 0 {
		return
	}
	for i := max(s.after(start), s.head+1); i < s.tail; i++ {
		older, newer := s.at(i-1), s.at(i)
		if older.t >= end {
			return
		}
		if newer.covered == older.covered {
			continue
		}
		if s.kind != KindInstant {
			fn(newer.v, newer.v)
			continue
		}
		slope := (newer.v - older.v) / float64(newer.t-older.t)
		fn(older.v+slope*float64(max(start, older.t)-older.t), older.v+slope*float64(min(end, newer.t)-older.t))
	}
}

// updatePeriod measures how often a counter really changes: the mean time between two samples in
// which it increased. A driver refreshes its energy counter every 20 to 100 ms whatever the rate of
// reading; a span shorter than that has no separate value. Periods below the sampling interval
// cannot be measured; the result is then the sampling interval.
type updatePeriod struct {
	first, last int64
	changes     int64
}

const (
	minChanges = 8    // fewer are not enough
	maxChanges = 1024 // then the older half is dropped
)

func (u *updatePeriod) observe(t int64, changed, covered bool) {
	if !covered {
		*u = updatePeriod{}
		return
	}
	if !changed {
		return
	}
	if u.changes == 0 {
		u.first = t
	}
	u.last = t
	if u.changes++; u.changes > maxChanges {
		u.changes /= 2
		u.first = u.last - (u.last-u.first)/2
	}
}

// value returns the period in ns; 0 while unknown.
func (u *updatePeriod) value() int64 {
	if u.changes < minChanges {
		return 0
	}
	return (u.last - u.first) / (u.changes - 1)
}
