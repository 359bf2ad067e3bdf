// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

// Arrival is what became of a span that arrived.
type Arrival uint8

// What can become of it.
const (
	Refused Arrival = iota // no ID, no length, another span has its ID, or no room is left: it takes no part
	Known                  // it had arrived before, with these times, and is left as it was, so a batch can arrive twice
	Taken                  // it takes part
)

// Arrive takes a span in. What of it lies before the settled time gets only what is still free there. now is any clock
// of the caller; seen is the now of the first arrival.
func (d *Device) Arrive(s Span, now int64, m Meter) (a Arrival, at Place, seen int64) {
	if s.Span == ([8]byte{}) || s.End <= s.Start {
		return Refused, Place{}, now
	}
	n := d.node(s.Key)
	if n != nil && n.known {
		if n.times != s.times() {
			return Refused, Place{}, now
		}
		n.refused = false
		return Known, Place{n.self}, n.seen
	}
	if n == nil {
		if n = d.newNode(s.Key); n == nil {
			return Refused, Place{}, now
		}
	}
	d.remembered.remove(n)
	if n.opened > 0 {
		n.held += d.settled - n.heldMark
	}
	n.known, n.seen, n.times = true, now, s.times()
	if s.Parent != ([8]byte{}) {
		d.link(n, Key{s.Trace, s.Parent})
	}
	if d.started && s.Start < d.settled {
		d.late(n, s, m)
		if s.End <= d.settled {
			n.ended = true
			d.remember(n)
			return Taken, Place{n.self}, now
		}
		s.Start = d.settled
	}
	if s.Yields {
		n.timed = onHost
	}
	n.proc = d.procs.join(s.Process)
	d.points.push(point{s.Start, true, n.self})
	d.points.push(point{s.End, false, n.self})
	return Taken, Place{n.self}, now
}

// Pass moves what waits for the placeholder k on to its parent: k is the ID of a span that never uses the device
// (a host span between a step and its kernels) and that turned out to have a parent.
func (d *Device) Pass(k Key, parent [8]byte) {
	if n := d.node(k); n != nil && !n.known && parent != ([8]byte{}) {
		d.remembered.remove(n)
		d.link(n, Key{k.Trace, parent})
		d.remember(n)
	}
}

// link hangs n, with all that is below it, under its parent, which may not have come yet. Circles of parents and chains
// longer than maxHeight are left apart.
func (d *Device) link(n *node, parent Key) {
	if n.parent != 0 || parent == n.key {
		return
	}
	p := d.node(parent)
	if p == nil {
		if p = d.newNode(parent); p == nil {
			return
		}
		d.remember(p)
	}
	height := n.height
	for a := p; a != nil; a = d.at(a.parent) {
		if height++; a == n || height > maxHeight {
			return
		}
	}
	n.parent = p.self
	p.kids++
	height = n.height
	for a := p; a != nil; a = d.at(a.parent) {
		height++
		a.height = max(a.height, height)
		a.below += n.below
		if !a.known {
			a.held += n.held
			d.remember(a)
		}
		if n.opened > 0 {
			d.open(a, n.opened)
		}
	}
}

// late gives n what is still free in the settled part of s.
func (d *Device) late(n *node, s Span, m Meter) {
	to := min(s.End, d.settled)
	n.late = max(0, to-s.Start-n.held)
	n.covered = m.Covered(s.Start, to)
	d.pieces = d.free.take(s.Start, to, d.pieces[:0])
	var taken int64
	if k := len(d.pieces); k > 0 {
		d.knots = m.Knots(d.pieces[0].from, d.pieces[k-1].to, d.knots[:0])
		line := curve{knots: d.knots}
		for _, p := range d.pieces {
			before, _ := line.at(p.from)
			after, _ := line.at(p.to)
			n.own += after - before
			taken += p.to - p.from
		}
	}
	d.totals.Late += n.own
	for a := d.at(n.parent); a != nil; a = d.at(a.parent) {
		if s.End <= d.settled { // else its end does this
			a.below += n.own
		}
		if !a.known {
			a.held += taken
			d.remember(a)
		}
	}
}
