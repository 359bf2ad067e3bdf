// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package spantree sums up the descendants of spans that arrive late, repeated, in any order or
// without parents. These rules hold for every component that uses it:
//
//   - Identity. A span is identified by its process, its trace ID and its span ID: ranks whose
//     random generators are seeded alike draw the same IDs. A parent belongs to the process of its
//     child.
//   - Arrival. A span arrives once. What has an arrived span's identity is a repeat, whatever else
//     it states, and changes nothing.
//   - Waiting. A parent that has not arrived is awaited: the sum of its descendants waits for it.
//     Children end, and so mostly arrive, before their parents.
//   - Moving up. When an awaited span arrives, its sum moves up to its parent, and on through all
//     ancestors that have arrived, until it waits for one that has not. A child that arrives after
//     its parent takes the same path, so that the order of arrival does not change a sum. The
//     user's Lift decides what a sum becomes on its way, and where it ends.
//   - Taking. A sum that waits for a span belongs to the user who takes it. A span whose
//     descendants are summed up, such as a step, is therefore added only after its sum was taken,
//     or never.
//   - Bounds. The oldest sums are dropped when too many wait or when they have waited too long. If
//     too many spans have arrived, the ones that had no child for the longest time are forgotten: a
//     repeat of one counts again, and the sum of its late child waits until it is dropped.
//   - Cycles. A sum moves through at most 128 spans at once and is then dropped, so cycles of
//     parents end.
package spantree

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/hashindex"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// maxDepth limits the arrived spans through which a sum moves at once.
const maxDepth = 128

// Rules are the user's part of a tree: N is kept of a span that has arrived, S is a sum, whose zero
// value is empty.
type Rules[N, S any] struct {
	// Lift adds to the sum of the span above what a span contributes: the sum of its descendants,
	// as the user changes it, and its own part if own is set. It returns whether it added anything.
	// below may be changed, and into may keep its memory. The result must not depend on how a sum
	// is divided among several calls, nor on their order. The sum above a root is dropped silently.
	// Lift may not call the tree, and neither may Dropped. Without Lift a sum waits until it is
	// taken.
	Lift func(n *N, own bool, below, into *S) bool
	// Dropped is called for a sum that nobody will take. It may be nil.
	Dropped func(*S)

	MaxSums  int // sums that wait, at least 1
	MaxSpans int // arrived spans, at least 1
}

// Tree has the state of spans. It is not safe for concurrent use, and has no clock: now is the
// time in any unit.
type Tree[N, S any] struct {
	rules   Rules[N, S]
	nodes   []node[N, S] // the first two are the ends of the lists
	index   hashindex.Index
	free    int32 // the first free node, 0 if there is none
	parent  int32 // the last one that was found: siblings mostly arrive together
	count   [2]int
	links   uint32 // how often nodes joined lists
	moving  [2]S   // of lift, which passes them to the rules
	removed S
}

type node[N, S any] struct {
	key        spanfacts.Key // in its process
	parent     pcommon.SpanID
	since      int64 // when it joined its list
	next, prev int32 // in its list, from the oldest to the youngest; next of a free node is the next free one
	hash       uint32
	list       int32
	links      uint32 // of the tree, when the node joined its list
	span       N      // zero until the span arrives
	sum        S      // empty once the span has arrived
}

// The lists, and the nodes that are their ends.
const (
	awaited = iota
	arrived
)

// New returns an empty tree.
func New[N, S any](rules Rules[N, S]) *Tree[N, S] {
	rules.MaxSums, rules.MaxSpans = max(1, rules.MaxSums), max(1, rules.MaxSpans)
	return &Tree[N, S]{rules: rules, nodes: []node[N, S]{awaited: {}, arrived: {next: arrived, prev: arrived}}}
}

// Span identifies a span and its parent.
type Span struct {
	Process uint64 // a hash, [spanfacts.Resource.Process]
	spanfacts.Key
	Parent pcommon.SpanID // empty for a root
}

// Waiting returns the number of sums that wait for spans.
func (t *Tree[N, S]) Waiting() int { return t.count[awaited] }

// Add adds a span that has arrived; own: it contributes itself to the span above. It returns false
// for a repeat, and for a span without a trace ID or a span ID.
func (t *Tree[N, S]) Add(s Span, n N, own bool, now int64) bool {
	if s.Trace.IsEmpty() || s.Span.IsEmpty() {
		return false
	}
	key := s.Key.In(s.Process)
	hash := uint32(key.Hash())
	at, known := t.find(hash, &key)
	switch {
	case known && t.nodes[at].list == arrived:
		return false
	case known:
		t.unlink(at)
	}
	if t.count[arrived] >= t.rules.MaxSpans {
		t.remove(t.nodes[arrived].next)
	}
	if !known {
		at = t.place(hash, key)
	}
	x := &t.nodes[at]
	x.parent, x.span = s.Parent, n
	t.link(at, arrived, now)
	if (own || known) && t.rules.Lift != nil {
		t.lift(at, own, now)
	}
	return true
}

// lift moves the sum of a span that has just arrived, and the span's own part, up to the first span
// that is awaited.
func (t *Tree[N, S]) lift(at int32, own bool, now int64) {
	var none S
	t.moving[0], t.nodes[at].sum = t.nodes[at].sum, none
	for depth := range maxDepth {
		x, below, into := &t.nodes[at], &t.moving[depth&1], &t.moving[1-depth&1]
		root, up := x.parent.IsEmpty(), spanfacts.Key{Trace: x.key.Trace, Span: x.parent}
		parent, hash := t.parent, uint32(0)
		known := t.nodes[parent].key == up
		if !known {
			hash = uint32(up.Hash())
			if parent, known = t.find(hash, &up); known {
				t.parent = parent
			}
		}
		waits := known && t.nodes[parent].list == awaited
		if *into = none; waits {
			into = &t.nodes[parent].sum
		}
		switch more := t.rules.Lift(&x.span, own, below, into); {
		case !more || waits || root:
			return
		case !known:
			t.parent = t.await(hash, up, into, now)
			return
		}
		t.touch(parent)
		at, own = parent, false
	}
	t.drop(&t.moving[maxDepth&1])
}

// await keeps the sum for a span that has not arrived, in a new node.
func (t *Tree[N, S]) await(hash uint32, key spanfacts.Key, sum *S, now int64) int32 {
	if t.count[awaited] >= t.rules.MaxSums {
		t.DropOldest()
	}
	at := t.place(hash, key)
	t.nodes[at].sum = *sum
	t.link(at, awaited, now)
	return at
}

func (t *Tree[N, S]) drop(sum *S) {
	if t.rules.Dropped != nil {
		t.rules.Dropped(sum)
	}
}

// Find returns what is kept of a span that has arrived, and its parent; nil if the tree does not
// know it. The pointer is valid until the next Add.
func (t *Tree[N, S]) Find(process uint64, key spanfacts.Key) (*N, pcommon.SpanID) {
	if t.count[arrived] == 0 {
		return nil, pcommon.SpanID{}
	}
	key = key.In(process)
	at, known := t.find(uint32(key.Hash()), &key)
	if !known || t.nodes[at].list != arrived {
		return nil, pcommon.SpanID{}
	}
	t.touch(at)
	return &t.nodes[at].span, t.nodes[at].parent
}

// Sum returns the sum that waits for a span that has not arrived; it is empty if nothing waited.
// The pointer is valid until the next call of another method.
func (t *Tree[N, S]) Sum(process uint64, key spanfacts.Key, now int64) *S {
	key = key.In(process)
	hash := uint32(key.Hash())
	at, known := t.find(hash, &key)
	if !known {
		var none S
		t.moving[0] = none
		at = t.await(hash, key, &t.moving[0], now)
	}
	return &t.nodes[at].sum
}

// Take removes and returns the sum that waits for a span; ok is false if there is none.
func (t *Tree[N, S]) Take(process uint64, key spanfacts.Key) (sum S, ok bool) {
	if t.count[awaited] == 0 {
		return sum, false
	}
	key = key.In(process)
	if at, known := t.find(uint32(key.Hash()), &key); known && t.nodes[at].list == awaited {
		return *t.remove(at), true
	}
	return sum, false
}

// DropOldest drops the sum that has waited longest, if there is one.
func (t *Tree[N, S]) DropOldest() {
	if t.count[awaited] > 0 {
		t.drop(t.remove(t.nodes[awaited].next))
	}
}

// Expire drops the sums that began to wait at or before a time.
func (t *Tree[N, S]) Expire(before int64) {
	for t.count[awaited] > 0 && t.nodes[t.nodes[awaited].next].since <= before {
		t.DropOldest()
	}
}

func (t *Tree[N, S]) find(hash uint32, key *spanfacts.Key) (at int32, known bool) {
	return t.index.Get(uint64(hash), func(at int32) bool { return t.nodes[at].key == *key })
}

// place makes a node, which is in no list yet.
func (t *Tree[N, S]) place(hash uint32, key spanfacts.Key) int32 {
	at := t.free
	if at == 0 {
		at = int32(len(t.nodes))
		t.nodes = append(t.nodes, node[N, S]{})
	}
	x := &t.nodes[at]
	t.free = x.next
	x.key, x.hash = key, hash
	t.index.Put(uint64(hash), at, func(int32) bool { return false })
	return at
}

// remove frees a node and returns its sum, which is valid until the next call.
func (t *Tree[N, S]) remove(at int32) *S {
	t.unlink(at)
	x := &t.nodes[at]
	t.index.Delete(uint64(x.hash), at)
	t.removed = x.sum
	*x = node[N, S]{next: t.free}
	t.free = at
	return &t.removed
}

// touch makes an arrived span young again: it has children, of which more may follow.
func (t *Tree[N, S]) touch(at int32) {
	if x := &t.nodes[at]; 2*int(t.links-x.links) > t.rules.MaxSpans {
		t.unlink(at)
		t.link(at, arrived, x.since)
	}
}

func (t *Tree[N, S]) link(at, list int32, now int64) {
	x, end := &t.nodes[at], &t.nodes[list]
	t.links++
	x.since, x.list, x.links, x.prev, x.next = now, list, t.links, end.prev, list
	t.nodes[end.prev].next = at
	end.prev = at
	t.count[list]++
}

func (t *Tree[N, S]) unlink(at int32) {
	x := &t.nodes[at]
	t.nodes[x.prev].next, t.nodes[x.next].prev = x.next, x.prev
	t.count[x.list]--
}
