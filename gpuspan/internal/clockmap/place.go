// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import (
	"math"
	"time"
)

// Place is [Anchorer.PlaceWithin] without the two times.
func (a *Anchorer[E, S, T, C]) Place(start, end E) (startHostNs, endHostNs int64, durationNs float64, halfWidth int64, ok bool) {
	return a.PlaceWithin(start, end, time.Time{}, time.Time{})
}

// PlaceWithin puts a section on the host's clock: unix nanoseconds of its two events, the time between them in
// nanoseconds of the host's clock (GPU time × rate), and the half width of the error of both places. submitted is when the
// host began to record the start event and seen is when it saw the end event done; the section certainly lies between
// them. Zero times are not known. ok is false when the driver refuses to tell, or no anchor can be made.
func (a *Anchorer[E, S, T, C]) PlaceWithin(start, end E, submitted, seen time.Time) (startHostNs, endHostNs int64, durationNs float64, halfWidth int64, ok bool) {
	gpu, rounding, ok := a.locate(start)
	if !ok {
		return 0, 0, 0, 0, false
	}
	length, roundingEnd, ok := a.length(start, end, gpu, rounding)
	if !ok {
		return 0, 0, 0, 0, false
	}
	at, lo, hi, ok := a.m.interval(gpu)
	if !ok {
		return 0, 0, 0, 0, false
	}
	s := section{length: length, tick: float64(a.m.opts.Tick)}
	s.slow, s.fast = a.m.stretch(gpu, gpu+length)
	s.start = limits{lo - rounding, hi + rounding}
	if start == end {
		s.end = s.start
	} else {
		lo, hi = a.m.limits(gpu + length)
		s.end = limits{lo - roundingEnd, hi + roundingEnd}
	}
	free := s
	if !submitted.IsZero() {
		s.start.lo = max(s.start.lo, float64(a.clock.axis(submitted)-a.m.origin))
	}
	if !seen.IsZero() {
		s.end.hi = min(s.end.hi, float64(a.clock.axis(seen)-a.m.origin))
	}
	if !s.tighten() {
		a.m.Anomaly()
		a.schedule.hurry(a.clock.axis(a.dev.Now()))
		s = free
	}
	at = math.Round(min(max(at, s.start.lo), s.start.hi))
	durationNs = length * a.m.fit.rate
	startHostNs = a.clock.wall(a.m.origin + int64(at))
	half := max(s.start.error(at), s.end.error(at+durationNs))
	return startHostNs, startHostNs + int64(math.Round(durationNs)), durationNs, int64(math.Ceil(half)), true
}

// length is the GPU time between two events and the rounding of the later one's place. Beyond two seconds the float's step is coarser
// than what two anchors, one near each end, can say.
func (a *Anchorer[E, S, T, C]) length(start, end E, gpu, rounding float64) (ns, roundingEnd float64, ok bool) {
	if start == end {
		return 0, rounding, true
	}
	d, st := a.dev.Elapsed(start, end)
	if st != statusOK || !(d >= -max(float64(a.m.opts.Tick), 1)) {
		return 0, 0, false
	}
	if d > near {
		opened := a.opened
		if g, r, ok := a.locate(end); ok && a.opened == opened && g > gpu {
			return g - gpu, r, true
		}
	}
	return max(d, 0), rounding + math.Abs(d)*roundings, true // roundings can make an empty section a trifle negative
}

// locate finds an event on the chained axis, measured from an anchor close to it.
func (a *Anchorer[E, S, T, C]) locate(e E) (gpu, rounding float64, ok bool) {
	if (a.count == 0 || a.broken) && a.Anchor() != statusOK {
		return 0, 0, false
	}
	from := a.newest()
	d, ok := a.elapsed(from.event, e)
	if !ok && a.dev.Query(from.event) != statusOK { // it is the anchor that is gone, not the section
		a.broken = true
		if a.Anchor() != statusOK {
			return 0, 0, false
		}
		from = a.newest()
		d, ok = a.elapsed(from.event, e)
	}
	if !ok {
		return 0, 0, false
	}
	if d > near && a.Anchor() == statusOK {
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

// elapsed is the signed time from a to b. CUDA documents it for a before b only; where the driver refuses the other order,
// or answers 0, the opposite question is asked.
func (a *Anchorer[E, S, T, C]) elapsed(from, to E) (float64, bool) {
	d, st := a.dev.Elapsed(from, to)
	if st == statusOK && d != 0 {
		return d, true
	}
	if r, back := a.dev.Elapsed(to, from); back == statusOK && r > 0 {
		return -r, true
	}
	return d, st == statusOK
}

// nearest is the remembered anchor closest to a GPU time.
func (a *Anchorer[E, S, T, C]) nearest(gpu float64) *mark[E] {
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
