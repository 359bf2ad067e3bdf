// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math"

	"github.com/otelgpu/otelgpu/internal/instrument"
)

// Settle attributes everything up to the time to. A time that is not after the settled time does
// nothing. The first call starts at the earliest span that has arrived; the time before is free for
// spans that arrive later (batches from a storage, an old file).
func (d *Device) Settle(to int64, m Meter) {
	if !d.started {
		d.begin(to)
	}
	if to <= d.settled {
		return
	}
	d.knots = m.Knots(d.settled, to, d.knots[:0])
	d.fetch(to)
	d.collectChanges(to, m)
	d.collectStretches(to, m)
	s := sweep{d: d, line: curve{knots: d.knots}}
	for p, ok := d.points.pop(to); ok; p, ok = d.points.pop(to) {
		s.changeUntil(p.t)
		s.stretchUntil(p.t)
		s.advanceBy(p.t)
		if p.start {
			d.start(d.at(p.n))
		} else {
			d.end(d.at(p.n))
		}
	}
	s.changeUntil(to)
	s.stretchUntil(to)
	s.advanceBy(to)
	if len(d.stretches) > 0 {
		d.match(nil)
	}
	d.collectUnseen()
	d.expire()
}

// fetch reads the nodes that start up to a time, whose memory is not cached: see Fetch.
func (d *Device) fetch(to int64) {
	for i := 1; i < len(d.points.runs); i += 2 {
		r := &d.points.runs[i]
		for j := r.head; j < len(r.list) && r.list[j].t <= to; j++ {
			n := d.at(r.list[j].n)
			d.fetched ^= n.times ^ uint32(n.seen) // one of each cache line
		}
	}
}

func (d *Device) begin(to int64) {
	d.started, d.settled = true, min(to, d.points.first())
	d.free.add(d.settled-int64(d.limits.Free), d.settled)
	for n := d.at(d.remembered.first); n != nil; n = d.at(n.next) {
		n.changed = d.settled
	}
}

// sweep is one move of the settled time.
type sweep struct {
	d       *Device
	line    curve
	value   float64 // of the line at the settled time
	covered int64
	// How many of the device's changes, and of its stretches, are applied.
	changed, stretched int
}

// advance moves the integrals to t.
func (s *sweep) advance(t int64) {
	d := s.d
	if t <= d.settled {
		return
	}
	value, covered := s.line.at(t)
	flow := value - s.value
	switch {
	case d.known:
		spans, others := d.divided(flow)
		d.v.whole.add(flow)
		d.totals.Attributed += spans
		d.totals.Others += others
		d.totals.Rest += flow - spans - others
	case d.active > 0:
		d.v.equal.add(flow / float64(d.active))
		d.totals.Attributed += flow
	default:
		d.totals.Unattributed += flow
	}
	if d.active == 0 {
		d.free.add(d.settled, t)
	}
	if d.working > 0 {
		d.busy += t - d.settled
	}
	d.covered += covered - s.covered
	s.value, s.covered = value, covered
	d.settled = t
}

func (d *Device) start(n *node) {
	n.active = true
	d.procs.all[n.proc].running++
	n.covered -= d.covered
	if d.outermost(n) {
		n.class |= counted
		d.procs.all[n.proc].requests++
	}
	if n.opened == 0 {
		d.enter(n)
	}
	for a := d.at(n.parent); a != nil; a = d.at(a.parent) {
		d.open(a, 1)
	}
}

func (d *Device) end(n *node) {
	if n.opened == 0 {
		d.leave(n)
	}
	d.divide(n)
	n.active, n.ended = false, true
	n.covered += d.covered
	if n.class&counted != 0 {
		n.class &^= counted
		d.procs.all[n.proc].requests--
	}
	d.procs.all[n.proc].running--
	d.procs.all[n.proc].used = d.settled
	d.procs.leave(n.proc)
	for a := d.at(n.parent); a != nil; a = d.at(a.parent) {
		a.below += n.own
		d.shut(a)
		if !a.known {
			d.remember(a)
		}
	}
	d.remember(n)
}

// open counts k more active descendants of a.
func (d *Device) open(a *node, k int32) {
	a.opened += k
	if a.opened != k {
		return
	}
	if a.active {
		d.leave(a)
	} else if !a.known {
		a.late -= d.settled
	}
}

// shut counts one active descendant less.
func (d *Device) shut(a *node) {
	if a.opened--; a.opened > 0 {
		return
	}
	if a.active {
		d.enter(a)
	} else if !a.known {
		a.late += d.settled
	}
}

// enter makes n innermost.
func (d *Device) enter(n *node) {
	p := &d.procs.all[n.proc]
	p.advance(d.v)
	if !p.active() {
		d.activate(p, 1)
	}
	timed := n.timed()
	if timed == onDevice {
		d.working++
	}
	p.inner[timed]++
	p.weight[timed] += d.weights[n.class&(maxWeights-1)]
	n.mark = p.own[timed]
}

// leave removes n from the innermost and gives it its part.
func (d *Device) leave(n *node) {
	p := &d.procs.all[n.proc]
	p.advance(d.v)
	timed := n.timed()
	n.own += p.own[timed].since(n.mark)
	p.weight[timed] -= d.weights[n.class&(maxWeights-1)]
	if timed == onDevice {
		d.working--
	}
	if p.inner[timed]--; !p.active() {
		d.activate(p, -1)
	}
	if p.inner[timed] == 0 {
		p.weight[timed] = 0 // subtraction leaves a rounding error
	}
}

// process is what one process has of the device.
type process struct {
	id    uint64
	inner [2]int    // innermost active spans: timed on the device, timed on the host
	nodes int       // pending spans; at 0 the process is dropped
	own   [2]sum    // integral of dV / crowd; of host-timed spans only while there are none on the device
	seen  integrals // up to which own was advanced

	running int  // active spans
	matched bool // it has a part of the window: rate of the device's flow
	rate    float64

	weight [2]float64 // sum over the innermost spans of how many each represents
	absent float64    // requests without a span that run now: see Meter.Levels
	beside float64    // the same while requests with a span run: see moves
	unseen float64    // their parts since the last collection

	counted bool    // it reports how many requests run
	ledger  *ledger // of a process that has requests
	request sum     // integral of what one more request would have
	pot     float64 // parts of requests without a span since the last entry of the ledger
	used    int64   // when its last request ended, in settled time
	judge   judge
	moves   moves

	requests int     // active spans that are requests, without those inside another one
	read     int64   // time of the last reading of all requests that ran
	arrived  float64 // how many of them have arrived
	steps    steps   // of requests in settled time after it
}

// active reports whether the process has an innermost active span, or runs requests by its own
// count.
func (p *process) active() bool { return p.inner[onDevice]+p.inner[onHost] > 0 || p.absent > 0 }

// advance brings own up to V.
func (p *process) advance(v integrals) {
	flow := p.flow(v)
	timed, n := onDevice, float64(p.inner[onDevice])
	if n == 0 {
		timed, n = onHost, float64(p.inner[onHost])
	}
	crowd := max(n, p.weight[timed])
	if timed == onHost { // work on the device is the server's, whichever requests it serves
		absent := p.absent
		if n > 0 {
			absent = p.beside
		}
		if crowd = max(crowd, n+absent); crowd == 0 {
			p.request.add(flow) // of other processes
			return
		}
		crowd = max(crowd, 1) // the mean of a count
		if one := crowd; p.counted {
			p.request.add(flow / one)
		} else {
			p.request.add(flow / (one + 1))
		}
	}
	p.own[timed].add(flow / crowd)
	if crowd > n {
		p.unseen += flow * (1 - n/crowd)
		p.pot += flow * (1 - n/crowd)
	}
}

// processes are the processes with pending spans. A node refers to its own by number.
type processes struct {
	all   []process
	byID  map[uint64]int32
	spare []int32
}

// of returns the index of a process.
func (p *processes) of(id uint64) int32 {
	i, ok := p.byID[id]
	if !ok {
		if last := len(p.spare) - 1; last >= 0 {
			i, p.spare = p.spare[last], p.spare[:last]
		} else {
			i = int32(len(p.all))
			p.all = append(p.all, process{})
		}
		p.all[i] = process{id: id}
		p.byID[id] = i
	}
	return i
}

// join adds a span to the process.
func (p *processes) join(id uint64) int32 {
	i := p.of(id)
	p.all[i].nodes++
	return i
}

// leave removes a span.
func (p *processes) leave(i int32) {
	if a := &p.all[i]; a.nodes > 1 || a.ledger != nil {
		a.nodes--
	} else {
		p.drop(i)
	}
}

func (p *processes) drop(i int32) {
	delete(p.byID, p.all[i].id)
	p.all[i].nodes = 0
	p.spare = append(p.spare, i)
}

// Meter reads the device's counter, and who uses the device.
type Meter interface {
	// Knots appends the counter over [from, to] as a line through points in time order: the first
	// at from, the last at to, one at each sample between. Value and Covered count from the first
	// knot, which is all zero except its time. Where the counter is unknown they do not increase.
	Knots(from, to int64, dst []Knot) []Knot
	// Levels appends the readings of how many requests a process ran, as the process itself reports,
	// that cover [from, to] in time order: the last one until from, if any, all up to to, and the next
	// one. Nothing is appended for a process without readings.
	//
	// Requests without a span (their sender dropped or never created it) then keep their parts, and no
	// other span gets them. A reading counts all requests, so the reading minus the spans that arrived
	// is the number of absent ones. Their number between two readings is unknown: the nearer one is
	// used. Requests that arrived are counted at each instant.
	Levels(process uint64, from, to int64, dst []Level) []Level
	// Windows appends the windows that overlap [from, to] in time order, without the parts of
	// processes that have no spans.
	Windows(from, to int64, dst []Window) []Window
}

// Knot is one point of a counter's line; its times are on the clock of spans.
type Knot = instrument.Knot

// curve reads a line of knots at times that never decrease.
type curve struct {
	knots []Knot
	i     int
}

func (c *curve) at(t int64) (value float64, covered int64) {
	if len(c.knots) == 0 {
		return 0, 0
	}
	for c.i+1 < len(c.knots) && c.knots[c.i+1].Time <= t {
		c.i++
	}
	k := &c.knots[c.i]
	if t <= k.Time || c.i+1 == len(c.knots) {
		return k.Value, k.Covered
	}
	next := &c.knots[c.i+1]
	if next.Covered == k.Covered {
		return k.Value, k.Covered
	}
	share := float64(t-k.Time) / float64(next.Time-k.Time)
	covered = k.Covered + int64(math.Round(share*float64(next.Covered-k.Covered)))
	return k.Value + (next.Value-k.Value)*share + next.Bend*share*(1-share), covered
}

// sum is a running sum with its rounding error (Knuth's TwoSum). The integrals run for as long as a
// device is never idle, for months, and the value of a span is a small difference of them.
type sum struct{ hi, lo float64 }

func (s *sum) add(x float64) {
	t := s.hi + x
	b := t - s.hi
	s.lo += (s.hi - (t - b)) + (x - b)
	s.hi = t
}

// since returns s − old.
func (s sum) since(old sum) float64 { return (s.hi - old.hi) + (s.lo - old.lo) }
