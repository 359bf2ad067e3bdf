// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package clockmap places GPU times on the host's clock and bounds the error.
//
// A GPU event carries a stamp of the GPU's own clock, which the driver reveals only as a difference
// of two events in float32 milliseconds. An anchor is an event that was recorded on an idle stream
// between two reads of the host's clock: its stamp certainly lies between them. From the anchors of
// the last seconds a [Map] computes
//
//   - an estimate: rate by least squares over the tight anchors, offset by the middle of the intersection of all
//     anchor intervals projected with that rate, and
//   - a bound, which does not depend on the estimate: every pair of anchors limits the rate, every anchor limits the
//     position, and the intersection of all limits is an interval that contains the true time.
//
// The bound holds as long as three things hold, each of which is an option: event stamps are
// truncated to at most Tick; the rates of the two clocks differ by at most MaxDrift; and that
// difference changes by at most MaxRateChange at once (time daemons slew the host's clock in steps
// of about one part per million) and MaxSlew per second besides (oscillators follow their
// temperature). The roundings of float32 are relative, at most 2^-24 each, so they count as one
// more change of rate and need no separate term. When anchors contradict the assumptions, that is
// an anomaly: it is counted, the older half of the window is forgotten and the limits are doubled
// until the contradiction has left the window.
//
// A constant asymmetry between the latency of submission and of completion stays in the estimate
// (about a microsecond); no method that only sees both ends can remove it, and it is inside the
// bound.
//
// [Anchorer] makes the anchors: bursts of probes on a private stream, dense at first, then every 60
// ms, none while nothing runs. Sections are read at once and placed when the next anchor brackets
// them, so that a jump of one clock against the other is seen.
package clockmap

import (
	"math"
	"sync/atomic"
	"time"
)

// Anchor ties one GPU stamp to the host's clock: the stamp was taken between Before and After.
type Anchor struct {
	GPU           float64 // ns on the chained axis of the GPU
	Before, After int64   // ns of the host's clock
}

// Map converts GPU times to host times. Adding and reading belong to one goroutine; Drift and
// Anomalies may be called from any.
type Map struct {
	opts    Options
	anchors []point // oldest first; host times relative to origin
	past    history // before the window
	jumps   jumps   // of one clock against the other
	origin  int64   // host ns of the first anchor

	fit        fit
	known      rateKnown
	slackUntil float64 // GPU ns until which the doubled limits stay
	bracket    bracket
	slack      float64 // factor on MaxDrift, MaxRateChange and MaxSlew, 1 without anomalies

	drift     atomic.Uint64 // float64 bits, ppm; NaN when unknown
	anomalies atomic.Int64
}

// point is an anchor with the bounds that it and those before it give for the rate at its time,
// except for instant changes.
type point struct {
	gpu, before, after float64
	slow, fast         float64
	segment            int // number of jumps before
}

// New returns an empty map.
func New(opts Options) *Map {
	m := &Map{opts: opts, slack: 1, fit: fit{rate: 1}}
	m.anchors = make([]point, 0, m.opts.MaxAnchors+1)
	m.known = rateKnown{1, nominalError * nominalError}
	m.drift.Store(math.Float64bits(math.NaN()))
	return m
}

// Drift returns how much faster the host's clock runs than the GPU's, in parts per million, from
// the last fit; ok is false until the anchors span enough time (one second).
func (m *Map) Drift() (ppm float64, ok bool) {
	ppm = math.Float64frombits(m.drift.Load())
	return ppm, !math.IsNaN(ppm)
}

// Anomalies counts anchors and placements that contradicted the assumptions since the map was made.
func (m *Map) Anomalies() int64 { return m.anomalies.Load() }

// Add adds an anchor, which must be newer than the previous ones. An anchor that runs backwards on
// either axis, or whose interval is empty, is an anomaly and is not added; then the result is
// false.
func (m *Map) Add(a Anchor) bool {
	if len(m.anchors) == 0 {
		m.origin = a.Before
	}
	p := point{
		gpu: a.GPU, before: float64(a.Before - m.origin), after: float64(a.After - m.origin), slow: math.Inf(-1),
		fast: math.Inf(1),
	}
	if n := len(m.anchors); math.IsNaN(a.GPU) || math.IsInf(a.GPU, 0) || a.After < a.Before ||
		n > 0 && (p.gpu <= m.anchors[n-1].gpu || p.after < m.anchors[n-1].before) {
		m.anomalies.Add(1)
		return false
	}
	m.bracket.known = false
	m.forget(p.gpu)
	m.lookForJump(&p)
	m.limitRate(&p)
	m.anchors = append(m.anchors, p)
	if m.slack > 1 && p.gpu > m.slackUntil {
		m.slack = 1
	}
	if !m.refit() {
		m.anomalies.Add(1)
		m.relax(p.gpu)
	}
	if span := p.gpu - m.current()[0].gpu; span >= 1e9 {
		m.drift.Store(math.Float64bits((m.fit.rate - 1) * 1e6))
		if span >= rememberedAt {
			change := m.opts.MaxRateChange * 1e-6
			m.known = rateKnown{m.fit.rate, change * change}
		}
	}
	return true
}

// forget moves anchors that are older than the window at time gpu to the past, and the oldest if
// there are too many.
func (m *Map) forget(gpu float64) {
	from := 0
	for from < len(m.anchors) && m.anchors[from].gpu < gpu-float64(m.opts.Window) {
		from++
	}
	from = max(from, len(m.anchors)-m.opts.MaxAnchors+1)
	for i := range from {
		m.past.add(m.anchors[i])
	}
	m.drop(from)
}

func (m *Map) drop(n int) { m.anchors = m.anchors[:copy(m.anchors, m.anchors[n:])] }

// limitRate computes from p and the anchors before it the bounds of the rate at p. Two anchors
// bound the mean rate between them, which differs from the rate at p by the change in half of the
// time.
func (m *Map) limitRate(p *point) {
	tick := float64(m.opts.Tick) + 1 // 1: host times are whole nanoseconds
	for i := range m.reach(math.Inf(-1)) {
		q := m.back(i)
		d := p.gpu - q.gpu
		change := m.slew(d)
		if math.IsInf(p.fast, 1) { // the previous anchor: its bounds hold, widened by the change since
			p.slow, p.fast = q.slow-change, q.fast+change
		}
		if q.segment != p.segment {
			break // the distance to it is unknown, the rate continues
		}
		p.slow = max(p.slow, (p.before-q.after-tick)/d-change/2)
		p.fast = min(p.fast, (p.after-q.before+tick)/d+change/2)
		if change > p.fast-p.slow {
			break // earlier anchors bound less
		}
	}
}

// slew returns the maximum change of the rate in d ns, except for instant changes.
func (m *Map) slew(d float64) float64 { return m.opts.MaxSlew * 1e-15 * m.slack * d }

// rates limits the mean rate over a stretch whose ends lie d ns in all from p.
func (m *Map) rates(p *point, d float64) (slow, fast float64) {
	drift := m.opts.MaxDrift * 1e-6 * m.slack
	change := m.opts.MaxRateChange*1e-6*m.slack + m.slew(d)/2
	return max(p.slow-change, 1-drift) - roundings, min(p.fast+change, 1+drift) + roundings
}

// stretch limits the mean rate between two GPU times.
func (m *Map) stretch(from, to float64) (slow, fast float64) {
	slow, fast = math.Inf(-1), math.Inf(1)
	for i := range m.reach(from) {
		p := m.back(i)
		s, f := m.rates(p, math.Abs(from-p.gpu)+math.Abs(to-p.gpu))
		slow, fast = max(slow, s), min(fast, f)
		if p.gpu <= from {
			break
		}
	}
	if slow > fast { // of contradicting anchors the newest counts
		slow, fast = m.rates(&m.anchors[len(m.anchors)-1], math.Abs(from-m.fit.gpu)+math.Abs(to-m.fit.gpu))
	}
	return slow, fast
}

// reach returns how many anchors may bound a GPU time: all of the window, and past ones if the
// window does not extend back to it.
func (m *Map) reach(gpu float64) int {
	n := len(m.anchors)
	if n > 0 && gpu >= m.anchors[0].gpu {
		return n
	}
	return n + len(m.past.points)
}

// back returns the i-th of them, the newest first.
func (m *Map) back(i int) *point {
	if n := len(m.anchors); i < n {
		return &m.anchors[n-1-i]
	}
	return &m.past.points[len(m.past.points)-1-(i-len(m.anchors))]
}

// relax handles a contradiction: the newest half of the window is kept, then the newest quarter and
// so on, under limits that double each time; a single anchor contradicts nothing.
func (m *Map) relax(gpu float64) {
	m.slackUntil = gpu + float64(m.opts.Window)
	m.past.clear()
	m.known = rateKnown{m.fit.rate, nominalError * nominalError}
	m.drop(len(m.anchors) - len(m.current())) // anchors before a jump do not bound the position
	for {
		m.slack *= 2
		m.drop(len(m.anchors) / 2)
		for i := range m.anchors {
			m.anchors[i].slow, m.anchors[i].fast = math.Inf(-1), math.Inf(1)
			p := m.anchors[i]
			whole := m.anchors
			m.anchors = whole[:i]
			m.limitRate(&p)
			m.anchors = whole
			m.anchors[i] = p
		}
		if m.refit() {
			return
		}
	}
}

// interval returns estimate and limits, relative to origin.
func (m *Map) interval(gpuNs float64) (at, lo, hi float64, ok bool) {
	if len(m.anchors) == 0 || math.IsNaN(gpuNs) || math.IsInf(gpuNs, 0) {
		return 0, 0, 0, false
	}
	lo, hi = m.limits(gpuNs)
	if lo > hi { // impossible at the newest anchor (refit ensures it), possible when extrapolating to before the window
		lo, hi = hi, lo
		m.anomalies.Add(1)
	}
	if segment, gap := m.jumps.segment(gpuNs); gap || segment != m.jumps.made {
		return (lo + hi) / 2, lo, hi, true // the line belongs to the time after
	}
	return min(max(m.fit.at(gpuNs), lo), hi), lo, hi, true
}

// limits returns the interval that contains the host time of gpuNs. Within a jump it covers the
// limits of both sides.
func (m *Map) limits(gpuNs float64) (lo, hi float64) {
	segment, gap := m.jumps.segment(gpuNs)
	lo, hi = m.limitsOf(segment, gpuNs)
	if gap {
		l, h := m.limitsOf(segment-1, gpuNs)
		lo, hi = min(lo, l), max(hi, h)
	}
	return lo, hi
}

// limitsOf intersects the bounds of every anchor of a segment for the host time of gpuNs. If the
// intersection is empty, the anchors of the next segment are used, widened by the jump.
func (m *Map) limitsOf(segment int, gpuNs float64) (lo, hi float64) {
	tick := float64(m.opts.Tick)
	for {
		lo, hi = math.Inf(-1), math.Inf(1)
		for i := range m.reach(gpuNs) {
			p := m.back(i)
			if p.segment != segment {
				continue
			}
			d := gpuNs - p.gpu
			slow, fast := m.rates(p, math.Abs(d))
			if d < 0 {
				slow, fast = fast, slow
			}
			lo = max(lo, p.before+slow*d)
			hi = min(hi, p.after+fast*d)
			if d > 0 && (fast-slow)*d > hi-lo {
				break // anchors this far back are wider than the interval is, and those before them wider still
			}
		}
		if !math.IsInf(hi, 1) || segment >= m.jumps.made {
			return lo - tick, hi + tick
		}
		segment++
		tick += m.jumps.size(segment)
	}
}

// Options are the assumptions and limits of a [Map].
type Options struct {
	Window        time.Duration // how long an anchor counts: longer ones measure the rate better and let its changes in
	MaxAnchors    int           // in the window, at least 2; the oldest are removed first
	Tick          time.Duration // to which the device truncates event stamps
	MaxDrift      float64       // difference in rate between the two clocks, ppm
	MaxRateChange float64       // by how much that changes at once, as when a time daemon corrects the host's clock, ppm
	MaxSlew       float64       // how fast it changes besides, as with an oscillator's temperature, ppm per second
}

// Defaults returns the options of devices. The documentation of cuEventElapsedTime states the tick.
func Defaults() Options {
	return Options{
		Window: 15 * time.Second, MaxAnchors: 256, Tick: 500 * time.Nanosecond, MaxDrift: 500, MaxRateChange: 5, MaxSlew: 3,
	}
}

// roundings is the relative error of one elapsed time: float32 rounds to 2^-24, HIP rounds twice.
const roundings = 1.0 / (1 << 23)

const maxPast = 256

// history is a thinned-out record of the anchors before the window, for sections that began there:
// the longer it gets the further its points are apart.
type history struct {
	points []point
	apart  float64 // GPU ns between two points, at least
}

func (h *history) add(p point) {
	if n := len(h.points); n > 0 && p.gpu-h.points[n-1].gpu < h.apart {
		return
	}
	h.points = append(h.points, p)
	if len(h.points) < maxPast {
		return
	}
	h.apart = 2 * max(h.apart, (p.gpu-h.points[0].gpu)/maxPast)
	kept := h.points[:0]
	for i := 0; i < len(h.points); i += 2 {
		kept = append(kept, h.points[i])
	}
	h.points = kept
}

func (h *history) clear() { h.points, h.apart = h.points[:0], 0 }
