// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"hash/maphash"
)

// ref identifies a node of a slab. The zero ref is none.
type ref int32

const chunkNodes = 1 << 10

// slab holds nodes. They refer to one another by number, so that the garbage collector has no
// pointers to follow in up to a quarter of a million of them. A node never moves; released nodes
// are reused, by any device. The slab never shrinks: it holds at most the budget's nodes.
type slab struct {
	seed   maphash.Seed // of the indexes: keys come from outside the process
	chunks []*[chunkNodes]node
	spare  []ref
	made   ref // all nodes ever allocated
}

// take returns an empty node.
func (s *slab) take() *node {
	var r ref
	if i := len(s.spare) - 1; i >= 0 {
		r, s.spare = s.spare[i], s.spare[:i]
	} else {
		if int(s.made)%chunkNodes == 0 {
			s.chunks = append(s.chunks, new([chunkNodes]node))
		}
		s.made++
		r = s.made
	}
	n := s.at(r)
	*n = node{self: r}
	return n
}

func (s *slab) give(n *node) { s.spare = append(s.spare, n.self) }

// at returns nil for the zero ref.
func (s *slab) at(r ref) *node {
	if r == 0 {
		return nil
	}
	return &s.chunks[(r-1)/chunkNodes][(r-1)%chunkNodes]
}

// index finds nodes by their key: open addressing with linear probing, 8 bytes a slot. A map was
// rejected: it stores the keys, which the nodes have already, and among a quarter of a million of
// those the needed one is never cached. Here a new span, the usual case, costs one read of a small
// slot and none of a node.
type index struct {
	slab  *slab
	slots []slot // a power of two, at most half of them in use
	n     int

	fetched uint32 // result of prefetching, so that it is not optimized away
}

// slot is free if its node is none.
type slot struct {
	hash uint32
	node ref
}

const minSlots = 64

func newIndex(s *slab) index {
	if s.seed == (maphash.Seed{}) {
		s.seed = maphash.MakeSeed()
	}
	return index{slab: s, slots: make([]slot, minSlots)}
}

// hash returns the hash of a key in all indexes of the slab, never 0.
func (s *slab) hash(k *Key) uint32 { return uint32(maphash.Comparable(s.seed, *k)) | 1<<31 }

// find searches for a key with its hash; nil if there is no such node.
func (x *index) find(k *Key, h uint32) *node {
	for i := x.home(h); x.slots[i].node != 0; i = x.next(i) {
		if x.slots[i].hash == h {
			if n := x.slab.at(x.slots[i].node); n.key == *k {
				return n
			}
		}
	}
	return nil
}

// add adds a node whose key is not in the index yet, with its hash.
func (x *index) add(n *node, hash uint32) {
	if x.n++; 2*x.n > len(x.slots) {
		old := x.slots
		x.slots = make([]slot, 2*len(old))
		for _, s := range old {
			if s.node != 0 {
				x.put(s)
			}
		}
	}
	x.put(slot{hash, n.self})
}

func (x *index) put(s slot) {
	i := x.home(s.hash)
	for x.slots[i].node != 0 {
		i = x.next(i)
	}
	x.slots[i] = s
}

// remove removes a node of the index. The nodes after it move up, so that no search ends at the
// gap.
func (x *index) remove(n *node) {
	gap := x.home(x.slab.hash(&n.key))
	for x.slots[gap].node != n.self {
		gap = x.next(gap)
	}
	for i := x.next(gap); x.slots[i].node != 0; i = x.next(i) {
		if x.distance(x.home(x.slots[i].hash), i) >= x.distance(gap, i) {
			x.slots[gap] = x.slots[i]
			gap = i
		}
	}
	x.slots[gap] = slot{}
	x.n--
}

// each calls fn for every node, in no order; fn does not change the index.
func (x *index) each(fn func(*node)) {
	for _, s := range x.slots {
		if s.node != 0 {
			fn(x.slab.at(s.node))
		}
	}
}

func (x *index) home(h uint32) int         { return int(h) & (len(x.slots) - 1) }
func (x *index) next(i int) int            { return (i + 1) & (len(x.slots) - 1) }
func (x *index) distance(from, to int) int { return (to - from) & (len(x.slots) - 1) }
