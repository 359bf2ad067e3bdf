// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"math"
	"time"
)

// lags are by how many seconds a power reading can be later than the counter, as candidates.
var lags = [...]float64{0, .0125, .025, .05, .075, .1, .15, .2, .3, .4, .5, .6, .75, 1}

const (
	longestLag = 1.0 // s
	linear     = 0   // candidate: energy is linear between two knots; candidate i is power at lags[i-1]
	candidates = len(lags) + 1
	// linearFavor multiplies the squared residual of the linear candidate, which wins only if it is clearly better.
	linearFavor = 1.1
	// undecided is the difference of squared residuals, relative to the error of refresh times, that shows nothing.
	undecided = 1e-4
	// scoreHalf and gainHalf are the half-lives of the forgetting means, in knots.
	scoreHalf, shapeHalf, gainHalf = 128, 64, 8
)

// Config describes the instruments of a device.
type Config struct {
	// Settle is how long after a moment its energy is attributed.
	Settle time.Duration
	// Assumed is the refresh period of the counter while readings do not show it; 0: each value is current when it is
	// read.
	Assumed time.Duration
	// Interval is the requested time between two readings; 0: unknown.
	Interval time.Duration
	// Window is the averaging window of power.
	Window time.Duration
}

// Energy is the curve of the energy that a device consumed. Values before the settled time never change. It must not be
// used by several goroutines at once.
type Energy struct {
	settle  float64
	origin  int64
	started bool
	settled float64
	power   power
	track   tracker
	read    float64 // when the counter was read last; 0: never

	queue   []knot // changes that wait for power
	newest  knot   // the last one that did not
	thin    thinning
	since   int    // changes since the last knot
	pending []knot // used knots whose left-out residuals are not known yet, after the two before them
	scores  [candidates]float64
	scored  int
	gains   [candidates]float64
	gained  int
	gainOff float64 // mean relative deviation of a period's gain from the mean
	steps   float64 // mean square of the steps of mean power between periods
	calib   calibration
	pieces  []piece
	number  int
	stopped bool // the counter is not used
	deviate float64
	offset  float64

	counted, balance, booked float64
}

// piece is a part of the curve with one rate, inside of one period: the time between two knots, or from the last one
// on. A period has several pieces if a part of it was settled before the counter's increase was known.
type piece struct {
	t0, t1  float64 // t1 only if closed
	c0      float64 // energy of the curve at t0
	x0      float64 // the shape's value at t0
	rate    float64 // J per unit of the shape; NaN: the energy is unknown
	gainOff float64 // relative error of the rate, of a piece that was settled early
	closed  bool
	early   bool // the rate is the mean of earlier periods, not the counter's
	period
}

// period describes the knots around a piece.
type period struct {
	number  int
	k0, k1  float64 // times of the knots; k1 only if known
	v0, s0  float64 // the counter and the shape at k0
	lag     float64
	window  float64 // s, of the knots at the ends
	mean    float64 // W; of an open period the previous one's
	spread  float64 // W, root mean square of the steps of mean power between periods
	steps0  float64 // power's running sum of squared steps at k0 and k1
	steps1  float64
	recent  float64 // J²/s, mean of power's squared steps before k0
	c       float64 // calibration of the shape's error
	sharp   float64 // calibration of the error of refresh times
	linear  bool
	metered bool // its start is a knot of the counter
	ended   bool // k1 is known
}

// NewEnergy returns the curve of a device without readings.
func NewEnergy(c Config) *Energy {
	return &Energy{
		settle: c.Settle.Seconds(),
		power:  power{window: c.Window.Seconds(), nominal: c.Interval.Seconds()},
		track:  tracker{assumed: c.Assumed.Seconds()},
		thin:   thinning{every: 1},
	}
}

func (e *Energy) seconds(t int64) float64 { return float64(t-e.origin) * 1e-9 }
func (e *Energy) nanos(t float64) int64   { return e.origin + int64(math.Round(t*1e9)) }

func (e *Energy) start(t int64) {
	if !e.started {
		e.origin, e.started = t, true
		e.settled = math.Inf(-1)
	}
}

// AddPower adds a reading of the power sensor in watts. Readings are in time order.
func (e *Energy) AddPower(t int64, watts float64) {
	e.start(t)
	e.power.add(e.seconds(t), watts)
}

// AddChange adds a change of the counter, in time order.
func (e *Energy) AddChange(c Change) {
	e.start(c.Time)
	hi := e.seconds(c.Time)
	since := hi
	if c.Since != 0 {
		since = e.seconds(c.Since)
	}
	if !c.Covered {
		e.track.restart()
	}
	e.queue = append(e.queue, e.track.place(hi, since, c.Value, c.Covered))
}

// Settle states up to when energy has been attributed. It must be called before readings that arrived later are added.
func (e *Energy) Settle(t int64) {
	if !e.started {
		return
	}
	e.settled = max(e.settled, e.seconds(t))
	p := e.open()
	if p == nil || p.t0 >= e.settled {
		return
	}
	known := min(e.limit(p), e.settled)
	if known == e.settled {
		return
	}
	open := *p
	if known > p.t0 {
		open.c0 = e.cut(p, known)
	} else {
		e.pieces = e.pieces[:len(e.pieces)-1]
	}
	if alive := min(max(e.read, e.power.last), e.settled); alive > known && !math.IsNaN(p.rate) {
		// The last reading shows that the device ran until then, but the shape is not known to its end.
		rest := piece{
			t0: known, x0: known, c0: open.c0, rate: open.rate, gainOff: open.gainOff, early: true, period: open.period,
		}
		if !rest.linear {
			rest.rate *= e.power.pts[len(e.power.pts)-1].w
			rest.linear = true
		}
		e.pieces = append(e.pieces, rest)
		open.c0 = e.cut(&e.pieces[len(e.pieces)-1], alive)
		known = alive
	}
	if known < e.settled { // was settled without energy
		if n := len(e.pieces); n > 0 && math.IsNaN(e.pieces[n-1].rate) && e.pieces[n-1].t1 == known {
			e.pieces[n-1].t1 = e.settled
		} else {
			e.pieces = append(e.pieces, piece{
				t0: known, t1: e.settled, c0: open.c0, rate: math.NaN(), closed: true, period: open.period,
			})
		}
	}
	open.t0, open.x0 = e.settled, e.shape(&open.period, e.settled)
	e.pieces = append(e.pieces, open)
}

// cut closes a piece at t and returns the curve's energy there.
func (e *Energy) cut(p *piece, t float64) float64 {
	p.closed, p.t1 = true, t
	return p.c0 + e.from(p, t)
}

// Advance uses the readings so far. read is when the counter was read last, 0 if the device has none.
func (e *Energy) Advance(read int64) {
	if !e.started {
		return
	}
	if read != 0 {
		e.read = e.seconds(read)
	}
	if len(e.pieces) == 0 && read == 0 && e.power.known() {
		e.begin(knot{t: e.power.pts[0].t}, e.power.pts[0].t, 0, false)
	}
	// A counter that has not changed yet: power is all that is known.
	if p := e.open(); p != nil && p.metered && math.IsNaN(p.rate) && e.power.known() &&
		(!e.track.exact() || e.read-p.k0 > 1) {
		p.rate, p.linear, p.lag, p.gainOff = 1, false, e.usualLag(true), 0.1
		p.x0, p.s0 = e.shape(&p.period, p.t0), e.shape(&p.period, p.k0)
	}
	n := 0
	for n < len(e.queue) && e.take(e.queue[n]) {
		n++
	}
	e.queue = e.queue[:copy(e.queue, e.queue[n:])]
	e.thin.evaluate(e)
	e.score()
}

// take uses a change of the counter; false: power at its time is not known yet.
func (e *Energy) take(k knot) bool {
	open := e.open()
	if open != nil && !open.linear && e.power.known() && e.power.newest() < k.t+open.lag && !e.powerStopped(k.hi) {
		return false
	}
	if !k.ok {
		e.thin.restart()
	}
	e.newest = k
	e.thin.add(k)
	if e.since++; open != nil && k.ok && e.since < e.thin.every && open.metered {
		return true
	}
	e.since = 0
	if k.turned { // what was learned from the first reading is wrong
		e.scored, e.gained, e.calib = 0, min(e.gained, 1), calibration{}
	}
	if !k.ok || k.second || k.turned || e.stopped {
		e.pending = e.pending[:0]
	}
	if !e.stopped {
		e.pending = append(e.pending, k)
		e.use(k)
	}
	return true
}

// powerStopped reports whether no power can be awaited any longer at a time.
func (e *Energy) powerStopped(t float64) bool {
	return t-e.power.last > longestLag+mostGaps*e.power.read
}

func (e *Energy) open() *piece {
	if n := len(e.pieces); n > 0 && !e.pieces[n-1].closed {
		return &e.pieces[n-1]
	}
	return nil
}

// use ends the open period at a knot and begins the next one there.
func (e *Energy) use(k knot) {
	p := e.open()
	if p != nil && k.second && p.metered && e.power.known() && !p.linear {
		p.metered = false
		if first := e.power.pts[0].t; p.t0 < first {
			p.t0, p.x0 = first, e.shape(&p.period, first)
		}
	}
	switch {
	case p == nil:
		e.begin(k, k.t, 0, true)
	case p.metered:
		e.begin(k, k.t, e.end(p, k), true)
	default: // no knot at its start: power alone, which may have been settled beyond the knot
		at := max(k.t, p.t0)
		c := p.c0 + e.from(p, at)
		from := max(at, min(e.settled, e.limit(p)))
		e.begin(k, from, e.cut(p, from), true)
		e.booked = c
	}
}

// UsePower makes the energy follow power alone from the settled time on, because the counter contradicts it. calibrated
// means that the counter was right before, so that power is scaled as it was then.
func (e *Energy) UsePower(calibrated bool) {
	if e.stopped {
		return
	}
	e.stopped, e.pending, e.since = true, e.pending[:0], 0
	p := e.open()
	if p == nil || !p.metered || !e.power.known() {
		return
	}
	n := len(e.pieces)
	for n > 1 && e.pieces[n-1].t0 > e.settled { // nothing of these was attributed
		n--
	}
	e.pieces = e.pieces[:n]
	p = &e.pieces[n-1]
	at, c := p.t0, p.c0
	if e.settled > p.t0 {
		at = min(e.settled, e.limit(p))
		c = e.cut(p, at)
	} else {
		e.pieces = e.pieces[:n-1]
	}
	e.begin(knot{t: at}, at, c, false)
	if calibrated && e.gained > 0 {
		if g := e.gains[e.nearest()]; g > 0 {
			e.open().rate = g
		}
	}
}

// UseCounter ends UsePower at the next change of the counter.
func (e *Energy) UseCounter() { e.stopped = false }

// Widen adds a share of the energy, and the energy of an offset of the clock, to all bounds from now on.
func (e *Energy) Widen(share float64, offset time.Duration) {
	e.deviate, e.offset = share, offset.Abs().Seconds()
}

// end closes the open period at a knot and returns the curve's energy there.
func (e *Energy) end(p *piece, k knot) float64 {
	length, increase := k.t-p.k0, k.v-p.v0
	s1 := e.shape(&p.period, k.t)
	e.counted += max(increase, 0)
	rate := increase / (s1 - p.s0)
	if s1 <= p.s0 { // no power at all
		p.linear, p.x0, p.s0 = true, p.t0, p.k0
		rate = increase / length
	}
	if !k.ok {
		rate = math.NaN()
	} else {
		step := increase/length - p.mean
		if e.gained > 0 {
			e.steps += (step*step - e.steps) * (1 - math.Exp(-length/60))
		}
		p.mean = increase / length
	}
	p.ended, p.k1, p.window = true, k.t, max(p.window, k.window)
	if k.second {
		p.window = length
	}
	if e.power.known() {
		_, p.steps1 = e.power.at(k.t + p.lag)
	}
	for i := len(e.pieces) - 2; i >= 0 && e.pieces[i].number == p.number; i-- {
		q := &e.pieces[i]
		q.ended, q.k1, q.window, q.mean, q.steps1 = true, k.t, p.window, p.mean, p.steps1
	}
	if settled := min(e.settled, k.t); settled > p.t0 {
		rest := *p
		rest.c0 = e.cut(p, settled)
		if !(settled < k.t) {
			e.book(rest.c0, max(increase, 0))
			return rest.c0
		}
		rest.t0, rest.x0 = settled, e.shape(&rest.period, settled)
		e.pieces = append(e.pieces, rest)
		p = &e.pieces[len(e.pieces)-1]
	}
	p.early, p.rate = false, rate
	c := e.cut(p, k.t)
	if k.ok && p.t0 == p.k0 {
		c = p.c0 + increase // without rounding
	}
	e.book(c, max(increase, 0))
	return c
}

// book compares the curve with the counter at the end of a period.
func (e *Energy) book(c, increase float64) {
	e.balance += increase - (c - e.booked)
	e.booked = c
}

// begin appends an open piece from a knot on, and chooses its shape.
func (e *Energy) begin(k knot, at, c float64, metered bool) {
	e.booked = c
	e.number++
	p := piece{t0: at, c0: c, early: true, gainOff: e.gainOff, rate: math.NaN(), period: period{
		number: e.number, k0: k.t, v0: k.v, window: k.window, metered: metered, spread: math.Sqrt(e.steps),
		c: e.calib.factor(), sharp: e.calib.timeFactor(),
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
	p.x0, p.s0 = e.shape(&p.period, p.t0), e.shape(&p.period, p.k0)
	if e.power.known() {
		_, p.steps0 = e.power.at(p.k0 + p.lag)
		p.recent = e.power.recent(p.k0 + p.lag)
	}
	e.pieces = append(e.pieces, p)
	if n := len(e.pieces); n > 64 && e.pieces[n/2].t0 < e.settled-keep {
		e.pieces = e.pieces[:copy(e.pieces, e.pieces[n/2:])]
		e.power.trim(e.pieces[0].k0 - 2*longestLag)
	}
}

// keep is for how many settled seconds the curve can be read: late spans take what is unattributed.
const keep = 330

// choose returns the shape that predicts left-out knots best.
func (e *Energy) choose() int {
	if !e.power.known() || e.track.exact() {
		return linear
	}
	if e.scored == 0 {
		if e.track.period() < 2*e.power.gap {
			return linear
		}
		return e.nearest()
	}
	n := candidates
	if e.power.gap > longestLag {
		n = 2
	}
	// At steady power all candidates are right, and the usual lag is the best guess for when it changes.
	least := e.scores[linear] * linearFavor
	for _, x := range e.scores[1:n] {
		least = min(least, x)
	}
	if usual := e.nearest(); usual < n && e.scores[usual] <= least+undecided*e.calib.time {
		return usual
	}
	best := linear
	for i := 1; i < n; i++ {
		if e.scores[i] <= least {
			best = i
		}
	}
	return best
}

// usualLag returns by how much power is late before the candidates have been compared. Knots cannot wait for power that
// is read rarely.
func (e *Energy) usualLag(metered bool) float64 {
	if metered && e.power.gap > longestLag {
		return 0
	}
	return e.power.lag()
}

// nearest returns the candidate that is nearest to the usual lag.
func (e *Energy) nearest() int {
	usual, best := e.usualLag(true), 1
	for i, lag := range lags {
		if math.Abs(lag-usual) < math.Abs(lags[best-1]-usual) {
			best = i + 1
		}
	}
	return best
}

// value returns a candidate's shape at t.
func (e *Energy) value(candidate int, t float64) float64 {
	if candidate == linear {
		return t
	}
	v, _ := e.power.at(t + lags[candidate-1])
	return v
}

func (e *Energy) shape(p *period, t float64) float64 {
	if p.linear {
		return t
	}
	v, _ := e.power.at(t + p.lag)
	return v
}

// score learns from each knot that has both neighbors how well the candidates predict it.
func (e *Energy) score() {
	for len(e.pending) >= 2 {
		k := e.pending[min(2, len(e.pending)-1)]
		if e.power.known() && e.power.newest() < k.t+longestLag && !e.powerStopped(k.hi) {
			return
		}
		if len(e.pending) == 2 {
			if e.gained == 0 {
				e.learnGain(e.pending[0], e.pending[1])
			}
			return
		}
		a, b, c := e.pending[0], e.pending[1], e.pending[2]
		e.learnGain(b, c)
		n := candidates
		if !e.power.known() {
			n = 1
		}
		weight := 1 - math.Exp2(-1.0/scoreHalf)
		for i := range n {
			s0, s1, s2 := e.value(i, a.t), e.value(i, b.t), e.value(i, c.t)
			r := a.v + (c.v-a.v)*(s1-s0)/max(s2-s0, 1e-9) - b.v
			e.scores[i] += (r*r - e.scores[i]) * max(weight, 1/float64(e.scored+1))
		}
		e.scored++
		e.calib.learn(e, a, b, c)
		e.pending = e.pending[:copy(e.pending, e.pending[1:])]
	}
}

// learnGain learns the joules per unit of each shape between two knots.
func (e *Energy) learnGain(a, b knot) {
	weight := max(1-math.Exp2(-1.0/gainHalf), 1/float64(e.gained+1))
	which := e.choose()
	for i := range candidates {
		if i != linear && !e.power.known() {
			break
		}
		d := e.value(i, b.t) - e.value(i, a.t)
		if d <= 0 {
			continue
		}
		ratio := (b.v - a.v) / d
		if i == which && e.gained > 0 && e.gains[i] > 0 {
			off := math.Abs(ratio/e.gains[i] - 1)
			e.gainOff += (off - e.gainOff) * max(1-math.Exp2(-1.0/gainHalf), 1/float64(e.gained))
		}
		e.gains[i] += (ratio - e.gains[i]) * weight
	}
	e.gained++
}
