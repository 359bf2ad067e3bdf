// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"math"
	"slices"
)

// Settle states up to when energy has been attributed. It must be called before readings that
// arrived later are added.
func (e *Energy) Settle(t int64) {
	e.start(t)
	e.settled = max(e.settled, e.seconds(t))
	e.forgetMarks()
	p := e.open()
	if p == nil || p.t0 >= e.settled {
		return
	}
	known := min(e.limit(p), e.settled)
	if known == e.settled {
		return
	}
	open := *p
	rest, more := e.tail(p, e.limit(p))
	if known > p.t0 {
		open.c0 = e.cut(p, known)
	} else {
		e.pieces = e.pieces[:len(e.pieces)-1]
	}
	if more {
		open.c0 = e.cut(&rest, min(rest.t1, e.settled))
		known = rest.t1
		e.pieces = append(e.pieces, rest)
	}
	e.skip(&open, known)
	e.pieces = append(e.pieces, open)
}

// tail returns the piece from the known end of an open one up to the newest reading of power, which
// shows power before it. It is used if the time is settled before power is known there.
func (e *Energy) tail(p *piece, from float64) (rest piece, ok bool) {
	if p.closed || p.linear || math.IsNaN(p.rate) {
		return rest, false
	}
	rest = piece{
		t0: from, t1: e.power.newest(), x0: from, c0: p.c0 + e.from(p, from), early: true, gainOff: p.gainOff,
		rate: p.rate * e.power.pts[len(e.power.pts)-1].w, closed: true, period: p.period,
	}
	rest.linear = true
	return rest, rest.t1 > from
}

// skip appends a piece without energy from a time to the settled time, and moves p, which is not
// appended yet, behind it.
func (e *Energy) skip(p *piece, from float64) {
	if n := len(e.pieces); n > 0 && math.IsNaN(e.pieces[n-1].rate) && e.pieces[n-1].t1 == from &&
		e.pieces[n-1].number == p.number {
		e.pieces[n-1].t1 = e.settled
	} else if from < e.settled {
		e.pieces = append(e.pieces, piece{
			t0: from, t1: e.settled, c0: p.c0, rate: math.NaN(), closed: true, period: p.period,
		})
	}
	p.t0 = e.settled
	p.x0 = e.shape(&p.period, p.t0)
}

// cut closes a piece at t and returns the curve's energy there.
func (e *Energy) cut(p *piece, t float64) float64 {
	p.closed, p.t1 = true, t
	return p.c0 + e.from(p, t)
}

// A period whose rate deviates from the usual one by leastOdd, and by oddGain times the usual
// deviation, has energy of another time: the clock of the source was set, or samples are lost.
// Periods shorter than oddLength readings deviate by chance.
const leastOdd, oddGain, oddLength = 0.3, 4, 15

// longGain is how many periods the gain of a minute counts as at most. leastApart is how far the
// counter and power may differ in some seconds until the error includes the difference.
const longGain, leastApart, leastReadings = 100, 0.15, 10

// ratioWindows are the times in s, longest first, in which the counter is compared with power: the
// longer one is, the smaller a difference it shows, and the later.
var ratioWindows = [...]float64{60, 10, 2}

// ratio compares the energy by the counter and by power in some time.
type ratio struct {
	counter, power float64 // J
	noise          float64 // usual difference, as a logarithm
}

// firstNoise is the usual difference before it is known; usualTime is how long it takes to know it,
// in s, which is longer than a fault lasts until it is judged.
const firstNoise, usualTime = 0.08, 600

// add adds a period. It returns by which share the energy by the counter can be wrong because power
// contradicts it beyond what is usual.
func (r *ratio) add(counter, power, length, window float64) (apart float64) {
	keep := math.Exp(-length / window)
	r.counter, r.power = r.counter*keep+counter, r.power*keep+power
	noise := max(r.noise, firstNoise)
	off := r.power / max(r.counter, 1e-9)
	d := math.Abs(math.Log(off))
	r.noise = noise + (min(d, 2*noise)-noise)*min(length/usualTime, 1)
	if d > max(leastApart, 4*noise) {
		return 1.1 * math.Abs(off-1)
	}
	return 0
}

// end closes the open period at a knot with the counter's increase. It returns from when on the
// next period can have energy, and the curve's energy there: what was attributed before the knot
// was known keeps its value.
func (e *Energy) end(p *piece, k knot) (from, c float64) {
	length, increase := k.t-p.k0, k.v-p.v0
	s1 := e.shape(&p.period, k.t)
	e.counted += max(increase, 0)
	rate, linear := increase/(s1-p.s0), p.linear
	if s1 <= p.s0 { // no power at all
		rate, linear = increase/length, true
	}
	if !k.ok {
		rate = math.NaN()
	} else {
		step := increase/length - p.mean
		if e.gained > 0 {
			e.steps += (step*step - e.steps) * (1 - math.Exp(-length/60))
		}
		p.mean = increase / length
		readings := length / max(e.power.gap, e.power.window, k.window)
		if g := e.gains[e.nearest()]; !linear && e.gained >= leastCalibrated && readings > oddLength {
			if odd := math.Abs(rate/g - 1); odd > max(leastOdd, oddGain*e.gainOff) {
				p.odd = odd
			}
		}
	}
	drawn := 0.0
	if k.ok && !k.second && e.power.known() {
		drawn = e.value(e.nearest(), k.t) - e.value(e.nearest(), p.k0)
	}
	if drawn > 0 {
		for i, window := range ratioWindows {
			if window >= leastReadings*e.power.gap { // fewer readings show little
				p.odd = max(p.odd, e.ratios[i].add(increase, drawn, length, window))
			}
		}
	}
	p.ended, p.k1, p.window = true, k.t, max(p.window, k.window)
	if k.second {
		p.window = length
	}
	if e.power.known() {
		_, p.steps1 = e.power.at(k.t + p.lag)
		p.rough = math.Hypot(e.edge(&p.period, p.k0), e.edge(&p.period, k.t)) / length
		p.off = e.unexplained(&p.period, rate)
	}
	for i := len(e.pieces) - 2; i >= 0 && e.pieces[i].number == p.number; i-- {
		q := &e.pieces[i]
		q.ended, q.k1, q.window, q.mean, q.steps1, q.rough, q.off = true, k.t, p.window, p.mean, p.steps1, p.rough, p.off
		q.odd = p.odd
	}
	final := *p
	final.rate, final.linear, final.early = rate, linear, false
	final.x0 = e.shape(&final.period, final.t0)
	switch done := min(e.settled, e.limit(p)); {
	case k.t <= p.t0: // all of the period is settled
		from, c = p.t0, p.c0
		e.pieces = e.pieces[:len(e.pieces)-1]
		e.book(e.at(k.t), increase)
	case k.t <= done:
		at := p.c0 + e.from(p, k.t)
		from, c = done, e.cut(p, done)
		e.book(at, increase)
	default:
		if done > p.t0 {
			final.c0 = e.cut(p, done)
			final.t0, final.x0 = done, e.shape(&final.period, done)
			e.pieces = append(e.pieces, final)
		} else {
			*p = final
		}
		p = &e.pieces[len(e.pieces)-1]
		from, c = k.t, e.cut(p, k.t)
		if k.ok && p.t0 == p.k0 {
			c = p.c0 + increase // without rounding
		}
		e.book(c, increase)
	}
	return from, c + e.fill(&final, k.t)
}

// unexplained returns by how many joules the changes that were skipped in a period differ from the
// curve, as a root mean square, if this is more than their windows cause: power misses changes, as
// a sensor that sees a quarter of the time does.
func (e *Energy) unexplained(p *period, rate float64) float64 {
	sum, noise := 0.0, 0.0
	for _, k := range e.skipped {
		r, late := p.v0+rate*(e.shape(p, k.t)-p.s0)-k.v, p.mean*k.window
		sum, noise = sum+r*r, noise+late*late*threeTimes
	}
	if !(sum > decisive*noise) {
		return 0
	}
	return math.Sqrt((sum - noise) / float64(len(e.skipped)))
}

// fill gives the pieces of the newest period that were settled without energy what the curve has
// there now, up to a time: readings that arrive late do not change what was attributed, but spans
// that arrive late can have it. It returns the energy added, which the balance still has.
func (e *Energy) fill(by *piece, to float64) (added float64) {
	first := len(e.pieces)
	for first > 0 && e.pieces[first-1].number == by.number {
		first--
	}
	for i := first; i < len(e.pieces); i++ {
		q := &e.pieces[i]
		q.c0 += added
		if !q.closed || !math.IsNaN(q.rate) || math.IsNaN(by.rate) || q.t0 >= to {
			continue
		}
		if q.t1 > to {
			rest := *q
			rest.t0 = to
			rest.c0 -= added // which the next round adds
			q.t1 = to
			e.pieces = slices.Insert(e.pieces, i+1, rest)
			q = &e.pieces[i]
		}
		q.rate, q.linear, q.lag, q.early, q.gainOff = by.rate, by.linear, by.lag, by.early, by.gainOff
		q.x0 = e.shape(&q.period, q.t0)
		added += e.from(q, q.t1)
	}
	e.booked += added
	e.forgetMarks()
	return added
}

// fillOpen does so with the open period, up to where its shape is known. read: up to the newest
// reading, because it is read now.
func (e *Energy) fillOpen(read bool) {
	p := e.open()
	if p == nil || math.IsNaN(p.rate) {
		return
	}
	by := *p
	added := e.fill(&by, e.reach(p))
	if rest, ok := e.tail(p, e.reach(p)); ok && read {
		added += e.fill(&rest, rest.t1)
	}
	if !p.metered { // else its knot books all of it
		e.balance += added
	}
}

// book compares the curve with the counter at the end of a period.
func (e *Energy) book(c, increase float64) {
	e.balance += max(increase, 0) - (c - e.booked)
	e.booked = c
}

// begin appends an open piece from a knot on, and chooses its shape. at is from when on it can have
// energy.
func (e *Energy) begin(k knot, at, c float64, metered bool) {
	e.number++
	p := piece{t0: at, c0: c, early: true, gainOff: e.gainOff, rate: math.NaN(), period: period{
		number: e.number, k0: k.t, v0: k.v, window: k.window, metered: metered, spread: math.Sqrt(e.steps),
		c: e.calib.factor(), seen: e.calib.seen(), sharp: e.calib.timeFactor(),
	}}
	if n := len(e.pieces); n > 0 {
		p.mean = e.pieces[n-1].mean
	}
	which := e.choose()
	switch {
	case metered && e.track.exact(): // its energy is known up to each reading
		p.linear = true
	case metered && e.gained > 0:
		p.rate, p.linear = e.gains[which], which == linear
		if !p.linear {
			p.lag = lags[which-1]
		}
	case e.power.known():
		p.rate, p.lag, p.gainOff = 1, e.usualLag(metered), 0.1
	default:
		p.linear = true
	}
	if e.power.known() {
		_, p.steps0 = e.power.at(p.k0 + p.lag)
		p.recent = e.power.recent(p.k0 + p.lag)
	}
	for i := len(e.pieces) - 1; i >= 0 && e.pieces[i].t0 >= k.t && math.IsNaN(e.pieces[i].rate); i-- {
		e.pieces[i].period = p.period // was settled without energy
	}
	if at < e.settled {
		e.skip(&p, at)
	}
	p.x0, p.s0 = e.shape(&p.period, p.t0), e.shape(&p.period, p.k0)
	e.pieces = append(e.pieces, p)
	if n := len(e.pieces); n > 64 && e.pieces[n/2].t0 < e.settled-keep {
		e.pieces = e.pieces[:copy(e.pieces, e.pieces[n/2:])]
		e.power.trim(e.pieces[0].k0 - 2*longestLag)
	}
}

// keep is for how many settled seconds the curve can be read: late spans take what is unattributed.
const keep = 330
