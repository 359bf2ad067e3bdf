// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

// Settle deals out everything up to the time to. A time that is not after the settled time does nothing. The first call
// begins at the earliest span that has arrived; what lies before that is free for spans that come later (batches from a
// storage, an old file).
func (d *Device) Settle(to int64, m Meter) {
	if !d.started {
		d.begin(to)
	}
	if to <= d.settled {
		return
	}
	d.knots = m.Knots(d.settled, to, d.knots[:0])
	s := sweep{d: d, line: curve{knots: d.knots}}
	for p, ok := d.points.pop(to); ok; p, ok = d.points.pop(to) {
		s.advance(p.t)
		if p.start {
			d.start(d.at(p.n))
		} else {
			d.end(d.at(p.n))
		}
	}
	s.advance(to)
	d.expire()
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
}

// advance moves the integrals to t.
func (s *sweep) advance(t int64) {
	d := s.d
	if t <= d.settled {
		return
	}
	value, covered := s.line.at(t)
	if flow := value - s.value; d.active > 0 {
		d.v.add(flow / float64(d.active))
		d.totals.Attributed += flow
	} else {
		d.free.add(d.settled, t)
		d.totals.Unattributed += flow
	}
	d.covered += covered - s.covered
	s.value, s.covered = value, covered
	d.settled = t
}

func (d *Device) start(n *node) {
	n.active = true
	n.covMark = d.covered
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
	n.active, n.ended = false, true
	n.covered += d.covered - n.covMark
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
		a.heldMark = d.settled
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
		a.held += d.settled - a.heldMark
	}
}

// enter makes n innermost.
func (d *Device) enter(n *node) {
	p := &d.procs.all[n.proc]
	p.advance(d.v)
	if !p.active() {
		d.active++
	}
	p.inner[n.timed]++
	n.mark = p.own[n.timed]
}

// leave takes n out of the innermost and gives it its part.
func (d *Device) leave(n *node) {
	p := &d.procs.all[n.proc]
	p.advance(d.v)
	n.own += p.own[n.timed].since(n.mark)
	if p.inner[n.timed]--; !p.active() {
		d.active--
	}
}
