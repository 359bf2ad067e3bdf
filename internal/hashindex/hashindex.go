// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package hashindex finds the positions of elements in a list by the hashes of their keys.
package hashindex

import "iter"

// Index maps keys to positions in a list that has the keys. It holds 8 bytes for each, in open
// addressing with linear probing: a map from keys of 24 bytes to positions is four times as large,
// so that fewer lookups are in the processor's cache. The zero value is empty. It is not safe for
// concurrent use.
//
// Callers pass the hash of a key, and a function that reports whether the element at a position has
// the key.
type Index struct {
	slots []slot // a power of two; a quarter of them is free
	used  int
}

type slot struct {
	hash uint32
	at   int32 // position plus 1; 0: free
}

// minSlots is the size of the smallest table.
const minSlots = 64

// Len returns the number of keys.
func (x *Index) Len() int { return x.used }

// Get returns the position of a key.
func (x *Index) Get(hash uint64, is func(at int32) bool) (at int32, ok bool) {
	if x.used == 0 {
		return 0, false
	}
	s := x.find(uint32(hash), is)
	return s.at - 1, s.at > 0
}

// Peek reads the memory at which the search for a key starts. What it returns has no meaning; use
// it, so that the read is not optimized away. Independent reads of memory that is not cached
// overlap.
func (x *Index) Peek(hash uint64) uint32 {
	if x.used == 0 {
		return 0
	}
	return x.slots[uint32(hash)&uint32(len(x.slots)-1)].hash
}

// All returns the positions of all keys, in no order. The index must not change meanwhile.
func (x *Index) All() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for _, s := range x.slots {
			if s.at > 0 && !yield(s.at-1) {
				return
			}
		}
	}
}

// Put sets the position of a key.
func (x *Index) Put(hash uint64, at int32, is func(at int32) bool) {
	if 4*x.used >= 3*len(x.slots) {
		x.grow()
	}
	s := x.find(uint32(hash), is)
	if s.at == 0 {
		x.used++
	}
	*s = slot{uint32(hash), at + 1}
}

// Delete removes the key at a position, which it must have. The keys after it move up, so that no
// search ends at the gap.
func (x *Index) Delete(hash uint64, at int32) {
	last := uint32(len(x.slots) - 1)
	gap := uint32(hash) & last
	for x.slots[gap].at != at+1 {
		gap = (gap + 1) & last
	}
	for i := (gap + 1) & last; x.slots[i].at != 0; i = (i + 1) & last {
		if home := x.slots[i].hash & last; (i-home)&last >= (i-gap)&last {
			x.slots[gap], gap = x.slots[i], i
		}
	}
	x.slots[gap] = slot{}
	x.used--
}

// Clear removes all keys and keeps the memory.
func (x *Index) Clear() {
	clear(x.slots)
	x.used = 0
}

// find returns the slot of a key, or the free slot where it belongs.
func (x *Index) find(hash uint32, is func(at int32) bool) *slot {
	last := uint32(len(x.slots) - 1)
	for i := hash & last; ; i = (i + 1) & last {
		if s := &x.slots[i]; s.at == 0 || s.hash == hash && is(s.at-1) {
			return s
		}
	}
}

func (x *Index) grow() {
	old := x.slots
	x.slots = make([]slot, max(minSlots, 2*len(old)))
	for _, s := range old {
		if s.at > 0 {
			*x.find(s.hash, func(int32) bool { return false }) = s
		}
	}
}
