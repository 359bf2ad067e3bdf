// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import (
	"math"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// Stamps are the GPU times of a section's two events, as read from the driver; the events are no
// longer needed.
type Stamps struct {
	m                     *Map
	anchors               int     // made when they were read
	start, length         float64 // ns of the GPU
	rounding, roundingEnd float64
	submitted, seen       int64 // on the host's axis; 0: not known
}

// Interval returns the section on the GPU's own clock, in ns.
func (s *Stamps) Interval() (from, to float64) { return s.start, s.start + s.length }

// SameClock reports whether the intervals of s and o can be compared: a device that was reset has a
// new clock.
func (s *Stamps) SameClock(o *Stamps) bool { return s.m != nil && s.m == o.m }

// Fits reports whether a section of that length can have run between submission and observation. If
// it cannot, the device's clock jumped within the section, and the difference of its stamps is not
// a duration.
func (s *Stamps) Fits() bool {
	if s.submitted == 0 || s.seen == 0 {
		return true
	}
	return s.length <= float64(s.seen-s.submitted)*(1+s.m.opts.MaxDrift*1e-6)+minJump+s.rounding+s.roundingEnd
}

// Placement is a section's position on the host's clock.
type Placement struct {
	Start, End int64 // on the axis of [Anchorer.Axis]
	HalfWidth  int64 // ns: the error of both ends is at most this
}

// Axis returns a point of the monotonic axis of sections; only differences are meaningful.
func (a *Anchorer) Axis(t time.Time) int64 { return a.base.UnixNano() + int64(t.Sub(a.base)) }

// Read queries the stamps of a section from the driver. submitted is when the host started to
// record the start event and seen is when it observed the end event, on the axis of
// [Anchorer.Axis]; the section is certainly between them. Zero is unknown. ok is false if the
// driver refuses, or no anchor can be taken.
func (a *Anchorer) Read(start, end backend.Event, submitted, seen int64) (s Stamps, ok bool) {
	if s.start, s.rounding, ok = a.locate(start); !ok {
		return Stamps{}, false
	}
	if s.length, s.roundingEnd, ok = a.length(start, end, s.start, s.rounding); !ok {
		return Stamps{}, false
	}
	s.m, s.anchors, s.submitted, s.seen = a.m, a.made, submitted, seen
	if a.shares && submitted != 0 {
		s.separate()
	}
	return s, true
}

// separate moves the start of a section whose start event shares the marker of the previous work.
// Its stamp is before the submission, and the stream was idle then, so the section began at the
// submission.
func (s *Stamps) separate() {
	at := float64(s.submitted - s.m.origin)
	if _, latest := s.m.limits(s.start); latest+s.rounding >= at {
		return
	}
	lo, hi := s.m.limits(s.start + s.length)
	if math.IsInf(lo, 0) || math.IsInf(hi, 0) || hi+s.roundingEnd < at {
		return // the end is before the submission as well: a clock jumped
	}
	length := min(max((lo+hi)/2-at, 0)/s.m.fit.rate, s.length)
	s.start, s.length = s.start+s.length-length, length
	s.rounding = max(s.rounding, (hi-lo)/2+s.roundingEnd)
}

// Bracketed reports whether there is an anchor after the section, so that it is between two: one
// taken since the stamps were read, or before that. Sections of a previous clock will have none.
func (a *Anchorer) Bracketed(s *Stamps) bool {
	return a.made > s.anchors || s.m != a.m || a.count > 0 && s.start+s.length <= a.newest().gpu
}

// Place puts a section on the host's clock. Between two anchors that is exact; before the next
// anchor it is extrapolated, which the half width includes as long as no clock jumps. It queries
// neither the device nor a clock.
func (a *Anchorer) Place(st *Stamps) Placement {
	m := st.m
	end := st.start + st.length
	s := section{length: st.length, tick: float64(m.opts.Tick)}
	var at float64
	whole := m.within(&s, st.start, end)
	if whole {
		at = m.fit.at(st.start)
	} else {
		var ok bool
		if at, s.start.lo, s.start.hi, ok = m.interval(st.start); !ok {
			return Placement{}
		}
		s.end.lo, s.end.hi = m.limits(end)
		from, gapBefore := m.jumps.segment(st.start)
		to, gapAfter := m.jumps.segment(end)
		// across a jump the length of one clock is not the length of the other
		if whole = from == to && !gapBefore && !gapAfter; whole {
			s.slow, s.fast = m.stretch(st.start, end)
		}
	}
	duration := st.length * m.fit.rate
	s.start.widen(st.rounding)
	s.end.widen(st.roundingEnd)
	if st.submitted != 0 {
		s.start.lo = max(s.start.lo, float64(st.submitted-m.origin))
	}
	if st.seen != 0 {
		s.end.hi = min(s.end.hi, float64(st.seen-m.origin))
	}
	if ok := whole && s.tighten() || !whole && s.start.lo <= s.start.hi && s.end.lo <= s.end.hi; !ok {
		// A clock jumped unnoticed so far. What the host did is certain, so the section is as late
		// in that time as its length allows.
		m.anomalies.Add(1)
		a.schedule.hurry()
		from, to := s.start.lo, s.end.hi
		if st.submitted != 0 && st.seen != 0 {
			from, to = float64(st.submitted-m.origin), float64(st.seen-m.origin)
		}
		duration = min(duration, max(to-from, 0))
		s.start, s.end = limits{from, to - duration}, limits{from + duration, to}
		at = s.start.hi
	}
	at = math.Round(min(max(at, s.start.lo), s.start.hi))
	start := m.origin + int64(at)
	half := max(s.start.error(at), s.end.error(at+duration))
	return Placement{Start: start, End: start + int64(math.Round(duration)), HalfWidth: int64(math.Ceil(half))}
}

// length returns the GPU time between two events and the rounding of the later one's stamp. Beyond
// two seconds the float's step is coarser than what two anchors, one near each end, can say.
func (a *Anchorer) length(start, end backend.Event, gpu, rounding float64) (ns, roundingEnd float64, ok bool) {
	if start == end {
		return 0, rounding, true
	}
	d, st := a.dev.Elapsed(start, end)
	if st != backend.StatusOK || !(d >= -max(float64(a.m.opts.Tick), 1)) {
		return 0, 0, false
	}
	if d > near {
		opened := a.opened
		if g, r, ok := a.locate(end); ok && a.opened == opened && g > gpu {
			return g - gpu, r, true
		}
	}
	return max(d, 0), rounding + math.Abs(d)*roundings, true // roundings can make an empty section slightly negative
}

// locate finds an event on the chained axis, measured from an anchor close to it.
func (a *Anchorer) locate(e backend.Event) (gpu, rounding float64, ok bool) {
	if (a.count == 0 || a.broken) && a.Anchor() != backend.StatusOK {
		return 0, 0, false
	}
	from := a.newest()
	d, ok := a.elapsed(from.event, e)
	if !ok && a.dev.Query(from.event) != backend.StatusOK { // the anchor is gone, not the section
		a.broken = true
		if a.Anchor() != backend.StatusOK {
			return 0, 0, false
		}
		from = a.newest()
		d, ok = a.elapsed(from.event, e)
	}
	if !ok {
		return 0, 0, false
	}
	if d > near && a.Anchor() == backend.StatusOK {
		from = a.newest()
		if d, ok = a.elapsed(from.event, e); !ok {
			return 0, 0, false
		}
	}
	if d < -near {
		if m := a.nearest(from.gpu + d); m != from {
			if closer, ok := a.elapsed(m.event, e); ok {
				from, d = m, closer
			}
		}
	}
	return from.gpu + d, math.Abs(d)*roundings + 1, true
}

// elapsed returns the signed time from a to b. CUDA documents it for a before b only; if the driver
// refuses the other order, or returns 0, the opposite order is queried.
func (a *Anchorer) elapsed(from, to backend.Event) (float64, bool) {
	d, st := a.dev.Elapsed(from, to)
	if st == backend.StatusOK && d != 0 {
		return d, true
	}
	if r, back := a.dev.Elapsed(to, from); back == backend.StatusOK && r > 0 {
		return -r, true
	}
	return d, st == backend.StatusOK
}

// nearest returns the remembered anchor closest to a GPU time.
func (a *Anchorer) nearest(gpu float64) *mark {
	best := a.newest()
	for i := 1; i < min(a.count, ringSize); i++ {
		m := &a.ring[(a.count-1-i)%ringSize]
		if math.Abs(m.gpu-gpu) > math.Abs(best.gpu-gpu) {
			break // marks grow older
		}
		best = m
	}
	return best
}

// limits contain a host time, relative to the map's origin.
type limits struct{ lo, hi float64 }

func (l limits) error(at float64) float64 { return max(l.hi-at, at-l.lo) }

func (l *limits) widen(by float64) { l.lo, l.hi = l.lo-by, l.hi+by }

// section holds the stamps of both ends of a section.
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

// bracket is the combined bound of all anchors for the time between the two newest, for placing
// many sections at a time: the positions of these two and the rate in between. It is wider than
// [Map.limits] by the change of rate between them, a few nanoseconds, and narrower if each bounds
// another side of the rate.
type bracket struct {
	from, to    float64 // GPU times
	first, last limits  // at them
	slow, fast  float64 // of the mean rate over any part
	known       bool    // otherwise it is to be computed
}

// within gives the two ends of a section their limits and the rate between them, if both are in the
// bracket.
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
