// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"math"
	"sort"
)

// powerPoint is a reading of a power sensor.
type powerPoint struct {
	t        float64
	w        float64
	integral float64 // J
	steps    float64 // running sum of (change × time since the reading before)², J²
	gap      bool    // the time before it is too long to be known
}

// power is the integral of readings that are trailing means over window.
type power struct {
	window   float64 // s, averaging window
	pts      []powerPoint
	refresh  Staircase
	distinct int     // changes since a value returned
	before   float64 // value before the last change
	last     float64 // newest reading, also if it repeats a value
	nominal  float64 // requested time between two readings; 0: unknown
	read     float64 // mean time between two readings
	gap      float64 // mean time between two points
	kept     [slots]reach
}

// Slots of power.around.
const (
	edge = iota
	wideStart
	wideEnd
	clockStart
	clockEnd
	periodRange
	slots
)

// leastGaps is the number of readings from which their mean distance is used instead of the longest
// one.
const leastGaps = 4

const mostGaps = 3 // readings further apart than this many intervals do not cover the time between them

// add adds a reading. old reports that a repeated value can be an old one.
func (p *power) add(t, w float64, old bool) {
	n := len(p.pts)
	if n == 0 {
		p.pts, p.last = append(p.pts, powerPoint{t: t, w: w}), t
		return
	}
	if t <= p.last {
		return
	}
	length := t - p.last
	usual := max(p.read, p.nominal)
	hole := usual > 0 && length > mostGaps*usual
	if !hole {
		p.read = mean(p.read, length, 0.1)
	}
	p.last = t
	last := &p.pts[n-1]
	if w == last.w {
		if old {
			return
		}
		if p.distinct > leastChanges && !hole && p.refresh.Stale(int64(t*1e9)) {
			p.gap = max(p.gap, float64(p.refresh.Period())*1e-9)
			return
		}
	} else {
		p.refresh.Changed(int64(t * 1e9))
		if p.distinct++; w == p.before {
			p.distinct = 0 // a value that returns is no reading of a sensor's noise
		}
		p.before = last.w
	}
	gap := t - last.t
	switch {
	case hole:
	case n < leastGaps: // the value before was refreshed at an unknown time before the first reading
		p.gap = max(p.gap, gap)
	default:
		p.gap = mean(p.gap, gap, 0.1)
	}
	step := (w - last.w) * gap
	p.pts = append(p.pts, powerPoint{
		t: t, w: w, integral: last.integral + (w+last.w)/2*gap, steps: last.steps + step*step, gap: hole,
	})
}

// mean returns a forgetting mean; 0 is no value yet.
func mean(old, x, weight float64) float64 {
	if old == 0 {
		return x
	}
	return old + (x-old)*weight
}

func (p *power) known() bool     { return len(p.pts) > 1 }
func (p *power) newest() float64 { return p.pts[len(p.pts)-1].t }

// after returns the index of the first point with time > t.
func (p *power) after(t float64) int {
	return sort.Search(len(p.pts), func(i int) bool { return p.pts[i].t > t })
}

// at returns the integral up to t and the steps up to t. Power before the first and after the last
// reading is theirs.
func (p *power) at(t float64) (integral, steps float64) {
	i := p.after(t)
	if i == 0 {
		return (t - p.pts[0].t) * p.pts[0].w, 0
	}
	a := &p.pts[i-1]
	if i == len(p.pts) {
		return a.integral + (t-a.t)*a.w, a.steps
	}
	b := &p.pts[i]
	x := (t - a.t) / (b.t - a.t)
	return a.integral + (t-a.t)*(a.w+(b.w-a.w)*x/2), a.steps + (b.steps-a.steps)*x
}

// reach is the range of the readings after one of them, kept because the spans that end one after
// the other share it.
type reach struct {
	first, pts int
	length     float64
	lo, hi     float64
}

// around returns the lowest and the highest reading in [from, from + length] with the ones before
// and after. slot selects where the result is kept.
func (p *power) around(slot int, from, length float64) (lo, hi float64) {
	first := max(p.after(from)-1, 0)
	r := &p.kept[slot]
	if r.first == first && r.pts == len(p.pts) && r.length == length {
		return r.lo, r.hi
	}
	*r = reach{first: first, pts: len(p.pts), length: length, lo: p.pts[first].w, hi: p.pts[first].w}
	to := length
	if first+1 < len(p.pts) { // whatever the part of the interval in which it starts
		to += p.pts[first+1].t
	}
	for i := first + 1; i < len(p.pts); i++ {
		r.lo, r.hi = min(r.lo, p.pts[i].w), max(r.hi, p.pts[i].w)
		if p.pts[i].t >= to {
			break
		}
	}
	return r.lo, r.hi
}

// recent returns the mean of the squared steps per second in the minute before t.
func (p *power) recent(t float64) float64 {
	from := max(t-60, p.pts[0].t)
	if t <= from {
		return 0
	}
	_, now := p.at(t)
	_, then := p.at(from)
	return (now - then) / (t - from)
}

// typicalStep returns the typical step between two readings, from the mean of the squared steps per
// second.
func (p *power) typicalStep(recent float64) float64 {
	if p.gap == 0 {
		return 0
	}
	return math.Sqrt(recent*p.gap) / p.gap
}

// lag returns by how much a reading is later than the middle of the time that it describes. Without
// a window readings are current.
func (p *power) lag() float64 {
	if p.window == 0 {
		return 0
	}
	return p.window/2 + min(p.gap, 1)/2
}

// used returns the share of a range of power that errors use: power that is sampled and averaged
// faster than 250 ms shows most changes.
func (p *power) used() float64 {
	switch {
	case !p.known():
		return 1
	case p.gap+p.window <= 0.25:
		return 0.35
	}
	return 0.8
}

// trim drops points that are not needed after t.
func (p *power) trim(t float64) {
	i := max(p.after(t)-2, 0)
	if i > len(p.pts)/2 {
		p.pts = p.pts[:copy(p.pts, p.pts[i:])]
		p.kept = [slots]reach{}
	}
}
