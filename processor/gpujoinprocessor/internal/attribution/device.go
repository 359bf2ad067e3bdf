// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"time"

	"github.com/otelgpu/otelgpu/internal/hashindex"
)

// Limits bound the memory of a Device. Zero fields mean the defaults.
type Limits struct {
	// Remember is how long an ended span, or the sum of children whose parent has not arrived, is
	// kept after its last change, in settled time. Default 2 minutes.
	Remember time.Duration
	// Free is how far back a late span can take free time. Default 5 minutes.
	Free time.Duration
	// FreeIntervals bounds the pieces of free time; the oldest are dropped. Default 16,384.
	FreeIntervals int
}

// Budget bounds the spans that several Devices remember and await together.
type Budget struct {
	Max  int
	used int
	slab slab
}

// Used returns the number of spans and placeholders that exist now.
func (b *Budget) Used() int { return b.used }

// Totals are sums since the Device was created, in the counter's unit. Attributed + Unattributed +
// Unseen + Rest + Others is the counter's increase; Attributed + Late is the sum over the spans.
type Totals struct {
	Attributed   float64 // attributed to spans when it was settled
	Unattributed float64 // settled while no span was active
	Unseen       float64 // settled as the part of spans that ran but had not arrived: see Meter.Levels and Span.Weight
	Rest         float64 // settled as used by processes with spans while none of these ran: see Window
	Others       float64 // settled as used by processes without spans, or by unknown ones
	Late         float64 // taken later from Unattributed, Unseen and Rest by spans that arrived late
	Orphans      int64   // sums of children dropped because no parent arrived within the time limit or the budget
}

// Device is the state of one physical device.
type Device struct {
	limits Limits
	budget *Budget

	started bool
	settled int64
	points  points
	procs   processes
	active  int // processes with an innermost active span
	working int // innermost active spans that were timed on the device
	busy    int64
	v       integrals
	covered int64
	weights []float64 // of the spans; the first is 1

	nodes      hashindex.Index // by key
	fetched    uint32          // result of prefetching, so that it is not optimized away
	awaited    awaited
	fresh      []Key // placeholders that were created since the last call of Adopt
	caller     ref   // the last parent: spans that arrive together often share one
	remembered list
	free       freeTime
	totals     Totals

	knots   []Knot
	pieces  []interval
	levels  []Level
	arrived []float64 // requests at each of the levels
	steps   []steps   // before each of them
	changes []change

	ledgers   int // processes that have one
	windows   []Window
	stretches []stretch
	past      partly
	ahead     []Knot
	known     bool            // the present stretch is a window
	matched   int             // active processes that have a part of it
	rates     float64         // sum of their rates
	shares    float64         // sum of all parts
	claims    []claim         // see wait
	waiting   []waiting       // late requests that have not ended in settled time
	short     map[ref]float64 // see Share.Short
}

// New returns a device that has settled nothing yet.
func New(l Limits, b *Budget) *Device {
	l.Remember, l.Free = cmp.Or(l.Remember, 2*time.Minute), cmp.Or(l.Free, 5*time.Minute)
	l.FreeIntervals = cmp.Or(l.FreeIntervals, 1<<14)
	return &Device{
		limits:     l,
		budget:     b,
		procs:      processes{byID: map[uint64]int32{}},
		remembered: list{slab: &b.slab},
		free:       freeTime{max: l.FreeIntervals},
		weights:    []float64{1},
		short:      map[ref]float64{},
	}
}

// Settled returns T; false while nothing is settled.
func (d *Device) Settled() (t int64, ok bool) { return d.settled, d.started }

// Busy returns the ns of settled time in which a span ran that was timed on the device.
func (d *Device) Busy() int64 { return d.busy }

// Totals returns the sums so far.
func (d *Device) Totals() Totals { return d.totals }

// Share is the part of one span.
type Share struct {
	Value   float64 // its own part and its descendants'
	Own     float64 // its own part
	Covered int64   // ns of it in which the counter was known; 0: Value is undefined
	Late    int64   // ns that were settled before it arrived and that no descendant has received
	Ended   bool    // its end is settled; false: Value is its value so far
	// Short is how much larger Value may be at most because others received its part before it
	// arrived.
	Short float64
}

// Handle identifies a span that arrived. The zero Handle has no span.
type Handle struct{ node ref }

// Share returns the share of span k. at is the Handle returned on its arrival; false if it was
// refused or dropped.
func (d *Device) Share(k Key, at Handle) (Share, bool) {
	n := d.at(at.node)
	if n == nil || n.key != k || !n.known {
		return Share{}, false
	}
	s := Share{
		Value: n.own + n.below, Own: n.own, Covered: n.covered, Late: n.late, Ended: n.ended, Short: d.short[n.self],
	}
	if n.active {
		s.Covered += d.covered
	}
	return s, true
}

// Contains reports whether the span has arrived and was neither rejected nor dropped. Another span
// with its ID does not count.
func (d *Device) Contains(s *Span) bool {
	n := d.of(s)
	return n != nil && n.known && !n.refused && n.times == s.times()
}

// OtherSpan reports whether another span with the ID has arrived.
func (d *Device) OtherSpan(s *Span) bool {
	n := d.of(s)
	return n != nil && n.known && n.times != s.times()
}

// MarkRejected records that the request of a span was refused after it had arrived: it will arrive
// again.
func (d *Device) MarkRejected(k Key, at Handle) {
	if n := d.at(at.node); n != nil && n.key == k {
		n.refused = true
	}
}

// Pin keeps a span that has arrived until Unpin, however long its share is not read: while the next
// component accepts nothing, requests wait longer than Remember.
func (d *Device) Pin(k Key, at Handle) { d.pin(k, at, true) }

// Unpin ends Pin. True: it had ended before, so the span was a duplicate.
func (d *Device) Unpin(k Key, at Handle) (again bool) { return !d.pin(k, at, false) }

func (d *Device) pin(k Key, at Handle, pinned bool) (was bool) {
	n := d.at(at.node)
	if n == nil || n.key != k {
		return true
	}
	was = n.pinned
	n.pinned = pinned
	return was
}

// OnOtherDevices returns the part of descendants on this device of the span k, which is on another
// device.
func (d *Device) OnOtherDevices(k Key) float64 {
	n := d.placeholder(k)
	if n == nil {
		return 0
	}
	n.met = true
	return n.below
}

// Awaiting reports whether any span has descendants here but has not arrived here.
func (d *Device) Awaiting() bool { return d.awaited.n > 0 }

// Awaits reports whether descendants of the span k, which is on another device, have arrived here.
func (d *Device) Awaits(k Key) bool { return d.placeholder(k) != nil }

// placeholder returns the node of a span that has not arrived here but has descendants here.
func (d *Device) placeholder(k Key) *node {
	if d.awaited.n == 0 {
		return nil
	}
	hash := d.budget.slab.hash(&k)
	if d.awaited.counts[hash%uint32(len(d.awaited.counts))] == 0 {
		return nil
	}
	if n := d.find(&k, hash); n != nil && !n.known {
		return n
	}
	return nil
}

// awaited counts the placeholders, also by a part of their hash: most spans have none on other
// devices.
type awaited struct {
	n      int
	counts [1 << 12]int32
}

func (a *awaited) add(hash uint32, by int32) {
	a.n += int(by)
	a.counts[hash%uint32(len(a.counts))] += by
}

// Parent returns the parent of a span that has arrived here; false if it has none, or has not
// arrived.
func (d *Device) Parent(k Key) (parent [8]byte, ok bool) {
	n := d.node(&k)
	if n == nil || !n.known {
		return parent, false
	}
	p := d.at(n.parent)
	if p == nil {
		return parent, false
	}
	return p.key.Span, true
}

// Adopt calls parentOf for each span that has descendants here, but is awaited, and that is new
// since the last call. It moves what waits for the span to its parent if parentOf knows it.
func (d *Device) Adopt(parentOf func(Key) (parent [8]byte, ok bool)) {
	for len(d.fresh) > 0 {
		k := d.fresh[len(d.fresh)-1]
		d.fresh = d.fresh[:len(d.fresh)-1]
		if d.placeholder(k) == nil {
			continue
		}
		if parent, ok := parentOf(k); ok {
			d.Pass(k, parent) // which can create a placeholder of the parent
		}
	}
}

// Close releases the budget. The device is not used afterwards.
func (d *Device) Close() {
	d.budget.used -= d.nodes.Len()
	for at := range d.nodes.All() {
		n := d.at(ref(at))
		n.key = Key{}
		d.budget.slab.give(n)
	}
	d.nodes, d.caller = hashindex.Index{}, 0
	d.awaited, d.fresh = awaited{}, nil
	d.claims, d.waiting, d.short = nil, nil, map[ref]float64{}
}

// Arrival is the outcome of a span's arrival.
type Arrival uint8

// Results of an arrival.
const (
	Refused Arrival = iota // no ID, no length, another span has its ID, or no room is left: it gets no share
	Known                  // it had arrived before, with these times, and is unchanged, so a batch can arrive twice
	Taken                  // it takes part
)

// Add adds a span. Its part before the settled time gets only what is still unattributed there. now
// is any clock of the caller; seen is the now of the first arrival.
func (d *Device) Add(s Span, now int64, m Meter) (a Arrival, at Handle, seen int64) {
	if s.Span == ([8]byte{}) || s.End <= s.Start {
		return Refused, Handle{}, now
	}
	n := d.of(&s)
	if n != nil && n.known {
		if n.times != s.times() {
			return Refused, Handle{}, now
		}
		n.refused = false
		return Known, Handle{n.self}, n.seen
	}
	if n == nil {
		if n = d.newNode(&s.Key, s.hash); n == nil {
			return Refused, Handle{}, now
		}
	}
	d.remembered.remove(n)
	d.awaited.add(s.hash, -1)
	if n.opened > 0 {
		n.late += d.settled
	}
	n.known, n.seen, n.times, n.class = true, now, s.times(), d.weight(s.Weight)
	if s.Parent != ([8]byte{}) {
		d.link(n, Key{s.Trace, s.Parent})
	}
	held := n.late
	n.late = 0
	if d.started && s.Start < d.settled {
		d.late(n, s, held, m)
		if s.End <= d.settled {
			n.ended = true
			d.remember(n)
			return Taken, Handle{n.self}, now
		}
		s.Start = d.settled
	}
	if s.Yields {
		n.class |= onHost << 7
	}
	if s.Request {
		d.requests(s, m)
	}
	n.proc = d.procs.join(s.Process)
	d.points.push(point{s.Start, true, n.self})
	d.points.push(point{s.End, false, n.self})
	return Taken, Handle{n.self}, now
}

// Pass moves what waits for the placeholder k to its parent: k is the ID of a span that never uses
// the device (a host span between a step and its kernels), or is on another device, and that turned
// out to have a parent.
func (d *Device) Pass(k Key, parent [8]byte) {
	if n := d.placeholder(k); n != nil && parent != ([8]byte{}) {
		d.remembered.remove(n)
		d.link(n, Key{k.Trace, parent})
		d.remember(n)
	}
}

// link attaches n, with its descendants, to its parent, which may not have arrived yet. Cycles of
// parents and chains longer than maxHeight stay unattached.
func (d *Device) link(n *node, parent Key) {
	if n.parent != 0 {
		return
	}
	p := d.at(d.caller)
	if p == nil || p.key != parent {
		hash := d.budget.slab.hash(&parent)
		if p = d.find(&parent, hash); p == nil {
			if p = d.newNode(&parent, hash); p == nil {
				return
			}
			d.fresh = append(d.fresh, parent)
			d.remember(p)
		}
		d.caller = p.self
	}
	height := n.height
	held := n.late
	if !n.known && n.opened > 0 {
		held += d.settled
	}
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
			a.late += held
			d.remember(a)
		}
		if n.opened > 0 {
			d.open(a, n.opened)
		}
	}
}

// requests returns the process of a request, with its ledger.
func (d *Device) requests(s Span, m Meter) *process {
	p := &d.procs.all[d.procs.of(s.Process)]
	if p.ledger == nil {
		d.levels = m.Levels(s.Process, s.Start, s.End, d.levels[:0])
		p.counted = len(d.levels) > 0
		d.keep(p)
	}
	return p
}

// inside reports whether a span is inside a request of its process, which has arrived.
func (d *Device) inside(n *node, process uint64) bool {
	p := d.at(n.parent)
	return p != nil && p.known && p.timed() == onHost && d.procs.all[p.proc].id == process
}
