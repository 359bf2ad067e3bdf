// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

// Key identifies a span.
type Key struct {
	Trace [16]byte
	Span  [8]byte
}

// Span holds the properties of a span that the sweep needs.
type Span struct {
	Key
	Parent     [8]byte // span ID of the nearest ancestor that may use the device; zero for none
	Process    uint64  // any number that is the process's own
	Start, End int64   // ns; End > Start
	// has a part only while no other span of its process is active: timed on the host, or part of a
	// capture window
	Yields bool
	// Request marks a request of a server. One that arrives late is paid from what the server's
	// requests without a span have.
	Request bool
	// Weight is the number of spans that this one represents, as its sampler states it. Below 1:
	// one.
	Weight float64

	hash uint32 // of the key, for the devices of one budget; 0: unknown yet
}

// times returns a hash of the span's times. A sender that repeats a span repeats its times;
// processes that generate the same random IDs do not.
func (s *Span) times() uint32 {
	const mix = 0x9E3779B97F4A7C15 // 2^64 / golden ratio, as in Fibonacci hashing
	return uint32((uint64(s.Start)*mix + uint64(s.End)) * mix >> 32)
}

// Who timed a span.
const (
	onDevice = iota
	onHost
)

// counted is the bit of node.class that marks a request which its process counts.
const counted = maxWeights

// timed returns onDevice or onHost.
func (n *node) timed() uint8 { return n.class >> 7 }

// maxHeight bounds the length of a chain of ancestors, because each start and end walks it.
const maxHeight = 128

// node is a span in the tree. It exists as a placeholder from the moment its first child arrives:
// the children's sum is kept there until the span arrives. It is two cache lines long: of some
// 10,000 nodes that wait, none is cached when it is needed.
type node struct {
	key    Key // zero: forgotten
	self   ref
	parent ref
	// The list of remembered nodes, by the time of the last change.
	prev, next ref

	kids   int32  // nodes whose parent this is
	opened int32  // active descendants
	proc   int32  // of the device's processes
	times  uint32 // Span.times
	height uint8  // longest chain of nodes below
	class  uint8  // who timed it, whether it is counted, and the index of its weight

	pinned  bool // its share will still be read
	met     bool // placeholder: its span is on another device and has taken the sum
	known   bool // arrived itself; false: placeholder
	active  bool // started and not ended
	ended   bool
	refused bool // its request was returned to the sender

	mark    sum     // proc.own when it last became innermost
	own     float64 // its own part so far
	below   float64 // own parts of its ended descendants
	covered int64   // ns of it in which the counter was known; while it is active, less the device's covered time
	// ns that were settled before it arrived and that no descendant has received, at most. Of a
	// placeholder those in which any descendant was active; while one is, less the settled time.
	late    int64
	seen    int64 // when it arrived, on the caller's clock
	changed int64 // on the settled time
}

// list is the remembered nodes of one device, longest unchanged first.
type list struct {
	slab        *slab
	first, last ref
}

func (l *list) remove(n *node) {
	if n.prev == 0 && l.first != n.self {
		return
	}
	if prev := l.slab.at(n.prev); prev != nil {
		prev.next = n.next
	} else {
		l.first = n.next
	}
	if next := l.slab.at(n.next); next != nil {
		next.prev = n.prev
	} else {
		l.last = n.prev
	}
	n.prev, n.next = 0, 0
}

// touch moves n to the end.
func (l *list) touch(n *node, t int64) {
	n.changed = t
	if l.last == n.self {
		return
	}
	l.remove(n)
	n.prev = l.last
	if last := l.slab.at(l.last); last != nil {
		last.next = n.self
	} else {
		l.first = n.self
	}
	l.last = n.self
}

// newNode returns a node within the budget, for a key with its hash; if the budget is used up the
// longest unchanged remembered node is evicted. Nil: all are pending or have children.
func (d *Device) newNode(k *Key, hash uint32) *node {
	for tries := 0; d.budget.used >= d.budget.Max; tries++ {
		n := d.at(d.remembered.first)
		if n == nil || tries == 8 {
			return nil
		}
		d.forget(n)
	}
	d.budget.used++
	d.awaited.add(hash, 1)
	n := d.budget.slab.take()
	n.key = *k
	d.nodes.Put(uint64(hash), int32(n.self), func(int32) bool { return false })
	return n
}

// remember keeps a placeholder or an ended node for the time limit, from now.
func (d *Device) remember(n *node) { d.remembered.touch(n, d.settled) }

// expire drops what was not changed for too long.
func (d *Device) expire() {
	limit := d.settled - int64(d.limits.Remember)
	for n := d.at(d.remembered.first); n != nil && n.changed < limit; n = d.at(d.remembered.first) {
		d.forget(n)
	}
	d.free.forget(d.settled - int64(d.limits.Free))
	for i := range d.procs.all {
		if p := &d.procs.all[i]; p.ledger != nil && p.nodes == 0 && !p.counted && d.settled-p.used > ledgerKept {
			p.ledger = nil
			d.ledgers--
			d.procs.drop(int32(i))
		}
	}
}

// ledgerKept is for how many ns the ledger of a process without a count is kept after its last
// request.
const ledgerKept = int64(600e9)

// forget evicts a remembered node. One with children stays; it is evicted after them. So does one
// that is pinned.
func (d *Device) forget(n *node) {
	if n.kids > 0 || n.opened > 0 || n.pinned {
		d.remember(n)
		return
	}
	if !n.known && !n.met && n.below > 0 {
		d.totals.Orphans++
	}
	hash := d.budget.slab.hash(&n.key)
	if !n.known {
		d.awaited.add(hash, -1)
	}
	if parent := d.at(n.parent); parent != nil {
		parent.kids--
	}
	if d.caller == n.self {
		d.caller = 0
	}
	d.remembered.remove(n)
	d.nodes.Delete(uint64(hash), int32(n.self))
	delete(d.short, n.self)
	n.key = Key{}
	d.budget.used--
	d.budget.slab.give(n)
}

// find searches for the node of a key with its hash; nil if there is none.
func (d *Device) find(k *Key, hash uint32) *node {
	s := &d.budget.slab
	at, ok := d.nodes.Get(uint64(hash), func(at int32) bool { return s.at(ref(at)).key == *k })
	if !ok {
		return nil
	}
	return s.at(ref(at))
}

// node returns the node of a key, nil if unknown.
func (d *Device) node(k *Key) *node { return d.find(k, d.budget.slab.hash(k)) }

// of returns the node of a span, nil if there is none. The span's hash is computed once: lookup,
// arrival and pinning use it.
func (d *Device) of(s *Span) *node {
	if s.hash == 0 {
		d.budget.Hash(s)
	}
	return d.find(&s.Key, s.hash)
}

// Hash computes what Fetch needs of a span, for all devices of the budget.
func (b *Budget) Hash(s *Span) { s.hash = b.slab.hash(&s.Key) }

// Fetch reads the memory at which the search for a span will start; the span has its hash. That
// memory is not cached, and a search waits for it. Independent reads overlap, so a caller with many
// spans calls Hash for all of them, then Fetch, then searches.
func (d *Device) Fetch(s *Span) { d.fetched ^= d.nodes.Peek(uint64(s.hash)) }

func (d *Device) at(r ref) *node { return d.budget.slab.at(r) }
