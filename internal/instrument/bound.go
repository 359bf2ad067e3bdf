// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import "math"

// Constants of the bounds, tuned on simulated devices.
const (
	timeSigma  = 3.46 // √12: a uniform error of the window's length
	kappa      = 2.1  // standard errors in a bound
	lineShare  = 1.7
	floorError = 0.003 // of the energy
	// commonShare is the part of the window by which all knots may be off together, with what power
	// changes between two readings.
	commonShare = 0.6
)

// distances returns the times from t to the knots around it.
func (e *Energy) distances(p *period, t float64) (x, y float64) {
	end := p.k1
	if !p.ended {
		end = p.k0 + e.track.period()*float64(e.thin.every)
	}
	return max(t-p.k0, 0), max(end-t, 0)
}

// ends returns the standard errors of the curve at t inside of a period: of the refresh times, and
// of the shape. at is power's running sum of squared steps at t, and slot where power keeps what is
// around t.
func (e *Energy) ends(p *period, most, step, t, at, further float64) (time, shape float64) {
	x, y := e.distances(p, t)
	f := 0.0
	if x+y > 0 {
		f = x / (x + y)
	}
	// Left-out knots do not show an offset that all knots have: it matters where power changes.
	time = max(p.sharp*most, min(step, most)) * p.window / timeSigma * math.Sqrt((1-f)*(1-f)+f*f+further)
	line := 0.0
	if x+y > 0 {
		line = max(step, p.spread/2) * x * y / (x + y) / lineShare
	}
	if p.linear {
		return time, line
	}
	last := p.steps1
	if !p.ended {
		last = e.power.pts[len(e.power.pts)-1].steps
	}
	a, b := max(at-p.steps0, p.recent/4*x), max(last-at, p.recent/4*y)
	bridge := 0.0
	if a+b > 0 {
		bridge = math.Sqrt(a*b/(a+b)) / timeSigma
	}
	edge := e.edge(p, t)
	return time, math.Hypot(min(math.Hypot(bridge, edge), max(line, edge)), p.rough*min(x, y))
}

// edge returns the standard error, in joules, of the integral of power up to the time of a period:
// a change there can be earlier or later than readings show, also by the lag of power until
// left-out knots have confirmed it.
func (e *Energy) edge(p *period, t float64) float64 {
	w, unsure := e.power.gap+e.power.window/2, 0.0
	if p.seen == 0 {
		unsure = e.power.lag()
	}
	lo, hi := e.power.around(edge, t+p.lag-w/2-unsure, w+2*unsure)
	return (hi - lo) * (w + unsure) / 4
}

// blind reports whether nothing shows when power changed: it is read rarely, or not at all while
// the counter is refreshed rarely.
func (e *Energy) blind() bool {
	if e.power.known() {
		return e.power.gap > longestGap
	}
	return e.track.period() > rareRefresh
}

// levels returns by how much power can be above and below its mean in a period, as far as the
// readings near it show. Pulses that no reading shows are assumed to last half of the time, and
// power that is never read to vary by half.
func (e *Energy) levels(p *period) (above, below float64) {
	if !e.power.known() {
		return p.mean / 2, p.mean / 2
	}
	end := p.k1
	if !p.ended {
		end = p.k0 + e.track.period()*float64(e.thin.every)
	}
	lo, hi := e.power.around(periodRange, p.k0-e.power.gap, end-p.k0+2*e.power.gap)
	switch above, below = hi-p.mean, p.mean-lo; {
	case above < 0:
		above = below
	case below < 0:
		below = above
	}
	return above, below
}

// hidden returns by how much the energy up to t can be above and below the curve if power is read
// so rarely that nothing shows when it changed: it may have had its highest value for as long as
// the period's mean permits, before t or after it.
func (e *Energy) hidden(p *period, t float64) (over, under float64) {
	if !e.blind() {
		return 0, 0
	}
	x, y := e.distances(p, t)
	above, below := e.levels(p)
	return min(above*x, below*y), min(below*x, above*y)
}

// indexFrom is index for a time that is probably in the piece of a position or in the next one.
func (e *Energy) indexFrom(i int, t float64) int {
	for range 2 {
		if i < len(e.pieces) && e.pieces[i].t0 <= t && (i+1 == len(e.pieces) || e.pieces[i+1].t0 > t) {
			return i
		}
		i++
	}
	return e.index(t)
}

// index returns the position of the piece with time t.
func (e *Energy) index(t float64) int {
	lo, hi := 0, len(e.pieces)
	for lo < hi {
		if mid := (lo + hi) / 2; e.pieces[mid].t0 > t {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return max(lo-1, 0)
}

// neighbors returns the highest mean power of the period of a piece and its neighbors, and the
// largest step to them.
func (e *Energy) neighbors(i int) (most, step float64) {
	p := &e.pieces[i]
	most = p.mean
	known := false
	compare := func(j, by int) {
		for j += by; j >= 0 && j < len(e.pieces); j += by {
			q := &e.pieces[j]
			if q.number == p.number {
				continue
			}
			if q.ended && q.metered {
				most, step, known = max(most, q.mean), max(step, math.Abs(q.mean-p.mean)), true
			}
			return
		}
	}
	compare(i, -1)
	compare(i, 1)
	if !p.ended { // its own mean is unknown: the step before it
		step = max(step, p.spread)
	}
	if !known {
		step = most
	}
	return most, step
}

// mark is a time of the curve with what a span has of it that begins or ends there. Two are kept
// because most spans begin where another one ends.
type mark struct {
	valid       bool
	at          int64
	t           float64 // inside of what is known
	piece       int
	value       float64 // J of the curve
	most, step  float64
	time, shape float64 // standard errors, shape with its calibration
	power       float64 // W, 0 unless it shapes the curve
	over, under float64 // see hidden
}

// mark returns the mark of a time, which is valid until the next one but one is requested.
func (e *Energy) mark(at int64) *mark {
	for i := range e.marks {
		if m := &e.marks[i]; m.valid && m.at == at {
			e.newestMark = i
			return m
		}
	}
	e.newestMark = 1 - e.newestMark
	m := &e.marks[e.newestMark]
	t := e.seconds(at)
	i := e.indexFrom(e.marks[1-e.newestMark].piece, t)
	p := &e.pieces[i]
	*m = mark{valid: true, at: at, t: min(max(t, p.t0), e.limit(p)), piece: i}
	steps := 0.0
	if p.linear || math.IsNaN(p.rate) || m.t != t {
		m.value = e.at(t)
	}
	if !p.linear {
		var integral float64
		if integral, steps = e.power.at(m.t + p.lag); m.t == t && !math.IsNaN(p.rate) {
			m.value = p.c0 + p.rate*(integral-p.x0)
		}
		m.power = e.power.pts[max(e.power.after(m.t+p.lag)-1, 0)].w
	}
	if p.metered {
		if near := &e.marks[1-e.newestMark]; near.valid && near.piece == i {
			m.most, m.step = near.most, near.step
		} else {
			m.most, m.step = e.neighbors(i)
		}
		m.time, m.shape = e.ends(&p.period, m.most, m.step, m.t, steps, 0)
		m.shape = math.Hypot(m.shape*e.used(p, m.shape)*p.c, p.off)
		m.over, m.under = e.hidden(&p.period, m.t)
		if math.IsNaN(p.rate) {
			m.time, m.shape, m.over, m.under = 0, 0, 0, 0
		}
	}
	return m
}

// forgetMarks is called when the curve changes.
func (e *Energy) forgetMarks() { e.marks[0].valid, e.marks[1].valid = false, false }

// used returns the share of the error of the shape that is stated. Power that is sampled fast shows
// most changes, but until left-out knots have confirmed that at changes of this size, its lag is
// unknown.
func (e *Energy) used(p *piece, shape float64) float64 {
	if p.linear { // power does not shape it
		return 1
	}
	used, usual := e.power.used(), mostSurprise*p.seen
	if shape <= usual {
		return used
	}
	return min(used*shape/usual, 1)
}

// mostSurprise is how many times larger than the usual one an error of the shape may be for its
// calibration to hold.
const mostSurprise = 3

// Bound returns by how many joules the energy of [start, end] can differ from the truth. energy is
// the curve's. Infinity means that no bound holds.
func (e *Energy) Bound(start, end int64, energy float64) float64 {
	if len(e.pieces) == 0 {
		return 0
	}
	m, n := e.mark(start), e.mark(end)
	p, q := &e.pieces[m.piece], &e.pieces[n.piece]
	s, t := m.t, n.t
	if t <= s {
		return 0
	}
	apart := q.number - p.number
	if e.unusable(t-s, &p.period) {
		return math.Inf(1)
	}
	if !p.metered && !q.metered {
		b := e.powerBound(s, t, energy)
		if p.scaled || q.scaled {
			b = math.Hypot(b, 1.2*max(p.gainOff, q.gainOff)*energy)
		}
		return b
	}
	b := kappa*math.Sqrt(m.time*m.time+n.time*n.time+m.shape*m.shape+n.shape*n.shape) + floorError*energy
	if hidden := max(m.over+n.under, m.under+n.over); hidden > 0 {
		b = max(b, math.Hypot(hidden, kappa*math.Hypot(m.time, n.time)))
	}
	if apart <= 1 {
		b = min(b, e.near(p, q, s, t, max(m.step, n.step)))
	}
	// If all values are as old as they can be, or none is, all knots are off by half of the window.
	b = max(b, max(p.window, q.window)*commonShare*math.Abs(n.power-m.power)+floorError*energy)
	if early := e.earlyShare(m.piece, n.piece, s, t); early > 0 {
		if e.power.known() && apart <= 1 {
			b = max(b, 1.3*e.powerBound(s, t, energy))
		}
		b = math.Hypot(b, 1.2*early*max(p.gainOff, q.gainOff)*energy/math.Sqrt(float64(max(1, apart))))
	}
	b += max(p.odd, q.odd) * energy
	b = max(b, e.implausible(s, t, energy))
	if e.deviate == 0 && e.offset == 0 {
		return b
	}
	return b + e.deviate*energy + e.clockError(s, t)
}

// Inside returns by how many joules the energy up to some time inside of [start, end] can differ
// from the truth: where the share of the device that a span has changes, this moves energy to other
// spans or from them.
func (e *Energy) Inside(start, end int64) (bound float64) {
	if len(e.pieces) == 0 {
		return 0
	}
	m, n := *e.mark(start), *e.mark(end)
	for i := range int64(insideTimes) {
		x := e.mark(start + (end-start)/(insideTimes+1)*(i+1))
		bound = max(bound, kappa*math.Hypot(x.time, x.shape))
	}
	p, q := &e.pieces[m.piece], &e.pieces[n.piece]
	if q.number-p.number <= 1 && p.metered {
		bound = min(bound, e.near(p, q, m.t, n.t, max(m.step, n.step)))
	}
	return bound
}

const insideTimes = 3

// earlyShare returns the share of [s, t] that was settled before the counter's increase was known;
// 1 if the span is in several periods and any part was.
func (e *Energy) earlyShare(i, j int, s, t float64) (share float64) {
	for k := i; k <= j; k++ {
		p := &e.pieces[k]
		if !p.early {
			continue
		}
		if p.number != e.pieces[i].number {
			return 1
		}
		end := t
		if p.closed {
			end = min(t, p.t1)
		}
		share += max(end-max(s, p.t0), 0) / (t - s)
	}
	if share > 0 && e.pieces[i].number != e.pieces[j].number {
		return 1
	}
	return share
}

// longestGap is the time between two readings, in seconds, from which pulses between them cannot be
// distinguished from steady power; meteredGap is this time if a counter has their energy.
const longestGap, meteredGap = 6, 20

// rareRefresh is the refresh period, in seconds, from which a counter alone hides changes of power.
const rareRefresh = 1.5

// unusable reports whether no bound holds for spans of a length.
// Nor does one hold for spans inside of the unknown time of a refresh if there is no power.
func (e *Energy) unusable(length float64, p *period) bool {
	if e.power.known() {
		if p.metered {
			return e.power.gap > meteredGap && length < 1.9*e.power.gap
		}
		return e.power.gap > longestGap && length < 4*e.power.gap
	}
	return length < e.track.period() && e.track.period() > longestGap || length < p.window && !e.track.slow()
}

// near returns the bound of a span in one or two periods: the range of power near it for its
// length.
func (e *Energy) near(p, q *piece, s, t, step float64) float64 {
	length, used := t-s, 1.0
	period := p.k1 - p.k0
	if !p.ended {
		period = max(e.track.period()*float64(e.thin.every), t-p.k0)
	}
	jitter := max(max(p.sharp, q.sharp)*p.mean, min(step, p.mean)) * min(1, p.window/max(period, 1e-9))
	d := max(step, 0.7*p.spread, 0.7*q.spread)
	if e.power.known() {
		w := e.power.gap + e.power.window
		l1, h1 := e.power.around(wideStart, s-e.power.gap, w+e.power.gap)
		l2, h2 := e.power.around(wideEnd, t-e.power.gap, w+e.power.gap)
		if d = max(max(h1, h2)-min(l1, l2), 0.7*e.power.typicalStep(p.recent)); p.linear || q.linear {
			d = max(d, step)
		} else {
			change := d * (e.power.gap + e.power.window/2) / 4
			used = min(max(e.used(p, change), e.used(q, change)), 2*e.power.used())
		}
	}
	if e.blind() {
		a1, b1 := e.levels(&p.period)
		a2, b2 := e.levels(&q.period)
		d, used = max(d, a1+b1, a2+b2), 1
	}
	most := math.Hypot(used*d+jitter, kappa*max(p.c*p.rough, q.c*q.rough)) * length
	if p.linear || q.linear {
		most = max(most, lineShare*jitter*length)
	}
	return most + kappa*math.Sqrt2*max(p.off, q.off)*min(1, 4*length/max(period, 1e-9))
}

// implausible returns the difference to the integral of power of a span that is long enough for it,
// if this is a factor that only a fault explains; otherwise 0.
func (e *Energy) implausible(s, t, energy float64) float64 {
	x := &e.power
	if !x.known() || len(x.pts) == 0 || s < x.pts[0].t || t > x.newest() || t-s < 2*(x.gap+x.window) {
		return 0
	}
	v0, _ := x.at(s + x.lag())
	v1, _ := x.at(t + x.lag())
	if v1-v0 <= 0 || energy < gross*(v1-v0) && energy > (v1-v0)/gross {
		return 0
	}
	return 1.1 * math.Abs(energy-(v1-v0))
}

// gross is the factor between the curve and the integral of power that no shape explains.
const gross = 3

// powerBound returns the bound of energy that is integrated from power alone: each interval between
// two readings has its own error, and the averaging window hides changes at the ends.
func (e *Energy) powerBound(s, t, energy float64) float64 {
	x := &e.power
	if !x.known() {
		return 0
	}
	length := t - s
	_, v0 := x.at(s + x.lag())
	_, v1 := x.at(t + x.lag())
	recent := x.recent(s + x.lag())
	w := x.window + x.gap
	l1, h1 := x.around(wideStart, s-x.gap, w+x.gap)
	l2, h2 := x.around(wideEnd, t-x.gap, w+x.gap)
	step := max(h1-l1, h2-l2, 0.7*x.typicalStep(recent))
	ends := min(step*w/2, step*length)
	blind, share := 0.02, 1.0
	if x.window < x.gap {
		unseen := 1 - x.window/x.gap // share of the time that no reading covers
		blind += 2.6 * unseen * unseen
		share = 0.8
	}
	inside := min(max(v1-v0, 0.7*recent*length)*blind, step*step*length*length)
	ends *= share * min(1, 1.3*x.used())
	return math.Sqrt(0.64*inside+ends*ends) + 0.01*energy + e.deviate*energy + e.clockError(s, t)
}

// clockError returns the energy that an offset of the source's clock moves into or out of a span.
func (e *Energy) clockError(s, t float64) float64 {
	if e.offset == 0 || !e.power.known() {
		return 0
	}
	o := e.offset
	l1, h1 := e.power.around(clockStart, s-o, 2*o)
	l2, h2 := e.power.around(clockEnd, t-o, 2*o)
	return (max(h1, h2) - min(l1, l2)) * min(o, t-s)
}
