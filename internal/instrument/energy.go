// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"math"
	"time"
)

// What is assumed of instruments that a source does not describe, from recordings and publications
// (docs/hardware.md lists them).
const (
	// DefaultRefresh is the longest refresh period of power and, as is assumed, of energy counters
	// of NVIDIA's data center GPUs.
	DefaultRefresh = 100 * time.Millisecond
	// InstantWindow is the averaging window of instantaneous power on A100 and H100, which see a
	// quarter of the time. It is 10 ms of 20 ms on Pascal and Volta, and 100 ms on others, for which
	// the errors that are stated with 25 ms are larger than needed.
	InstantWindow = 25 * time.Millisecond
	// MeanWindow is the one of NVML's usual power since Ampere, but for A100. Drivers before 530
	// report no other.
	MeanWindow = time.Second
)

// Config describes the instruments of a device.
type Config struct {
	// Settle is how long after a moment its energy is attributed.
	Settle time.Duration
	// Assumed is the refresh period of the counter while readings do not show it; 0: each value is
	// current when it is read.
	Assumed time.Duration
	// Interval is the requested time between two readings; 0: unknown.
	Interval time.Duration
	// Window is the averaging window of power.
	Window time.Duration
}

// Energy is the curve of the energy that a device consumed. Values before the settled time never
// change. It must not be used by several goroutines at once.
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
	skipped []knot // changes since the last knot
	pending []knot // used knots whose left-out residuals are not known yet, after the two before them
	scores  [candidates]float64
	scored  int
	gains   [candidates]float64
	gained  int
	gainOff float64                  // mean relative deviation of a period's gain from the mean
	ratios  [len(ratioWindows)]ratio // of the counter to power, in the last time
	steps   float64                  // mean square of the steps of mean power between periods
	calib   calibration
	pieces  []piece
	number  int
	stopped bool // the counter is not used
	deviate float64
	offset  float64

	counted, balance, booked float64

	marks      [2]mark
	newestMark int
}

// piece is a part of the curve with one rate, inside of one period: the time between two knots, or
// from the last one on. A period has several pieces if a part of it was settled before the
// counter's increase was known.
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
	rough   float64 // W, standard error of the rate because power changes at the knots; 0 until k1 is known
	off     float64 // J, by how much the skipped changes contradict the shape; 0 until k1 is known
	odd     float64 // relative deviation of the rate from the usual one, if it is implausible
	recent  float64 // J²/s, mean of power's squared steps before k0
	c       float64 // calibration of the shape's error
	seen    float64 // J, root mean square of the shape's errors that it was learned from
	sharp   float64 // calibration of the error of refresh times
	linear  bool
	metered bool // its start is a knot of the counter
	scaled  bool // power as the counter scaled it before it stopped
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
	at := e.seconds(t)
	e.power.add(at, watts, e.collected(at))
}

// collected reports whether a scraped value that is read at a time can be an old one: an exporter
// collects the counter and power together, and the counter has not changed since the last reading
// of power.
func (e *Energy) collected(at float64) bool {
	if e.track.assumed <= longestAssumed || e.track.n == 0 || len(e.power.pts) == 0 {
		return false
	}
	last, limit := e.power.newest(), stillGaps*e.track.period()
	if limit == 0 {
		limit = longestCollect
	}
	return e.track.lastHi <= last && at-last <= limit
}

// longestCollect is the longest time, in seconds, between two collections of an exporter that is
// assumed before the time is known, stillGaps how many of them can pass afterwards until the
// counter counts as frozen.
const longestCollect, stillGaps = 60, 4

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

// Advance uses the readings so far. read is when the counter was read last, 0 if the device has
// none.
func (e *Energy) Advance(read int64) {
	e.forgetMarks()
	if !e.started {
		return
	}
	if read != 0 {
		e.read = e.seconds(read)
	}
	if len(e.pieces) == 0 && read == 0 && e.power.known() {
		e.begin(knot{t: e.power.pts[0].t}, e.power.pts[0].t, 0, false)
	}
	if p := e.open(); p != nil && !p.linear && e.power.known() { // power may have been unknown there
		p.x0, p.s0 = e.shape(&p.period, p.t0), e.shape(&p.period, p.k0)
	}
	if p := e.open(); p != nil && !p.metered {
		e.fillOpen(false)
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
		if e.thin.restart(); len(e.skipped) > 0 && open != nil && open.metered { // what was counted before the gap
			e.knot(e.newest)
		}
	}
	e.newest = k
	e.thin.add(e, k)
	if open != nil && k.ok && len(e.skipped)+1 < e.thin.every && open.metered && !k.second && !k.turned {
		e.skipped = append(e.skipped, k)
		return true
	}
	e.knot(k)
	return true
}

// knot makes a change of the counter a knot of the curve.
func (e *Energy) knot(k knot) {
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
	e.skipped = e.skipped[:0]
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
		e.booked = 0
		e.begin(k, k.t, 0, true)
	case p.metered:
		from, c := e.end(p, k)
		e.begin(k, from, c, true)
	default: // no knot at its start: power alone, which may have been settled beyond the knot
		e.booked = e.at(k.t)
		from := max(k.t, p.t0, min(e.settled, e.limit(p)))
		e.begin(k, from, e.cut(p, from), true)
	}
}

// UsePower makes the energy follow power alone from the settled time on, because the counter
// contradicts it. calibrated means that the counter was right before, so that power is scaled as it
// was then.
func (e *Energy) UsePower(calibrated bool) {
	if e.stopped {
		return
	}
	e.forgetMarks()
	e.stopped, e.pending, e.skipped = true, e.pending[:0], e.skipped[:0]
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
	e.booked = c
	e.begin(knot{t: at}, at, c, false)
	if p = e.open(); calibrated && e.ratios[0].counter > 0 && e.ratios[0].power > 0 {
		p.rate, p.scaled = e.ratios[0].counter/e.ratios[0].power, true
		p.gainOff = e.gainOff / math.Sqrt(float64(min(e.gained, longGain)))
	}
}

// UseCounter ends UsePower at the next change of the counter.
func (e *Energy) UseCounter() { e.stopped = false }

// Widen adds a share of the energy, and the energy of an offset of the clock, to all bounds from
// now on.
func (e *Energy) Widen(share float64, offset time.Duration) {
	e.deviate, e.offset = share, offset.Abs().Seconds()
}
