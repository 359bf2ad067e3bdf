// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"math"
	"time"

	"github.com/otelgpu/otelgpu/internal/plausibility"
)

// Knot is a point of the curve; between two of them the energy is a straight line plus Bend × s ×
// (1 − s) at the part s of the time.
type Knot struct {
	Time    int64   // Unix ns
	Value   float64 // J since the first knot, without gaps
	Covered int64   // ns since the first knot in which the energy is known
	Bend    float64 // J
}

// mostPeriods is for how many periods without a change a counter is extrapolated if there is no
// power.
const mostPeriods = 2

// limit returns until when the curve of a piece is known.
func (e *Energy) limit(p *piece) float64 {
	switch {
	case p.closed:
		return p.t1
	case math.IsNaN(p.rate):
		return p.t0
	}
	return max(e.reach(p), p.t0)
}

// reach returns until when the readings describe the open period.
func (e *Energy) reach(p *piece) float64 {
	if p.linear { // a counter that pauses for long is not extrapolated
		return min(e.read, p.k0+mostPeriods*e.track.period()*float64(e.thin.every))
	}
	return e.power.newest() - p.lag
}

// from returns the energy of a piece from its start to t.
func (e *Energy) from(p *piece, t float64) float64 {
	if math.IsNaN(p.rate) {
		return 0
	}
	return p.rate * (e.shape(&p.period, t) - p.x0)
}

// Ready returns the time up to which the curve is final; later readings change it after that.
// False: nothing is known.
func (e *Energy) Ready() (int64, bool) {
	p := e.open()
	switch {
	case p == nil:
		return 0, false
	case p.metered:
		return e.nanos(p.t0), true
	}
	return e.nanos(e.limit(p)), true
}

// Knots appends the curve over [from, to]: the first knot is at from, the last one at to. What is
// read again after it was settled has the readings that arrived since.
func (e *Energy) Knots(from, to int64, dst []Knot) []Knot {
	dst = append(dst, Knot{Time: from})
	if len(e.pieces) > 0 {
		s, t := e.seconds(from), e.seconds(to)
		if s < e.settled {
			e.fillOpen(true)
		}
		for i := e.index(s); i < len(e.pieces) && e.pieces[i].t0 < t; i++ {
			dst = e.knotsOf(&e.pieces[i], s, t, to, dst)
		}
		if p := e.open(); p != nil && t > e.limit(p) {
			if rest, ok := e.tail(p, e.limit(p)); ok {
				dst = e.knotsOf(&rest, s, t, to, dst)
			}
		}
	}
	if last := dst[len(dst)-1]; last.Time < to {
		dst = append(dst, Knot{Time: to, Value: last.Value, Covered: last.Covered})
	}
	return dst
}

// knotsOf appends the knots of a piece in [s, t]; to is t.
func (e *Energy) knotsOf(p *piece, s, t float64, to int64, dst []Knot) []Knot {
	at, end := max(s, p.t0), min(t, e.limit(p))
	if end <= at || math.IsNaN(p.rate) {
		return dst
	}
	if n := e.nanos(at); n > dst[len(dst)-1].Time { // time without a curve
		last := dst[len(dst)-1]
		dst = append(dst, Knot{Time: n, Value: last.Value, Covered: last.Covered})
	}
	i := len(e.power.pts)
	if !p.linear {
		i = e.power.after(at + p.lag)
	}
	value := e.from(p, at)
	for at < end {
		next, hole := end, false
		if i < len(e.power.pts) {
			hole = !p.metered && e.power.pts[i].gap
			if x := e.power.pts[i].t - p.lag; x < end {
				next = x
				i++
			}
		}
		last := dst[len(dst)-1]
		k := Knot{Time: min(e.nanos(next), to), Value: last.Value, Covered: last.Covered}
		if next == t {
			k.Time = to
		}
		if k.Time <= last.Time && next < end {
			continue // shorter than a nanosecond
		}
		after := e.from(p, next)
		if !hole {
			k.Value += after - value
			k.Covered += k.Time - last.Time
			if !p.linear {
				k.Bend = 4 * (e.from(p, at+(next-at)/2) - (value+after)/2)
			}
		}
		dst = append(dst, k)
		at, value = next, after
	}
	return dst
}

// Energy returns the energy of [start, end] in joules.
func (e *Energy) Energy(start, end int64) float64 {
	if len(e.pieces) == 0 {
		return 0
	}
	return -e.mark(start).value + e.mark(end).value
}

func (e *Energy) at(t float64) float64 {
	if len(e.pieces) == 0 {
		return 0
	}
	p := &e.pieces[e.index(t)]
	if !p.closed && t > e.limit(p) {
		if rest, ok := e.tail(p, e.limit(p)); ok {
			return rest.c0 + e.from(&rest, min(t, rest.t1))
		}
	}
	return p.c0 + e.from(p, min(max(t, p.t0), e.limit(p)))
}

// Balance returns the joules that the counter counted and that the curve does not have: increases
// across gaps, and what was settled by power before the counter changed. It can be negative.
func (e *Energy) Balance() float64 { return e.balance }

// Counted returns the increase of the counter between the knots so far.
func (e *Energy) Counted() float64 { return e.counted }

// Period returns the time between two knots in ns; 0 while unknown.
func (e *Energy) Period() int64 { return int64(e.track.period() * float64(e.thin.every) * 1e9) }

// Standstill returns for how long the counter has not changed, how much energy power has in that
// time, and the usual time between two changes; 0 if unknown.
func (e *Energy) Standstill() (still time.Duration, joules float64, usual time.Duration) {
	if e.read <= e.track.lastHi || !e.power.known() {
		return 0, 0, 0
	}
	usual = time.Duration(e.track.period() * 1e9)
	if usual == 0 && e.track.assumed <= longestAssumed {
		usual = time.Duration(e.track.assumed * 1e9)
	}
	a, _ := e.power.at(e.track.lastHi)
	b, _ := e.power.at(min(e.read, e.power.newest()))
	return time.Duration((e.read - e.track.lastHi) * 1e9), b - a, usual
}

// longestAssumed is the longest assumed refresh period, in seconds, that is used for a counter
// which has never changed.
const longestAssumed = 1

// Compare returns the newest change of the counter for which power is known. False: there is none.
func (e *Energy) Compare() (plausibility.Reading, bool) {
	k := e.newest
	if k.hi == 0 || !e.power.known() {
		return plausibility.Reading{}, false
	}
	v, _ := e.power.at(k.t + e.power.lag())
	return plausibility.Reading{
		Time: e.nanos(k.t), Counter: k.v, Power: v, Gap: time.Duration(e.power.gap * 1e9),
		Period: time.Duration(e.track.period() * 1e9),
	}, true
}
