// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import "github.com/otelgpu/otelgpu/internal/spanfacts"

// keyTable finds the position of a span in a list by the hash of its key. It holds positions only, so that the table of
// all spans that wait fits into a processor's cache; a map from keys to positions is four times as large.
type keyTable struct {
	slots []keySlot // a power of two; a quarter of them is free
	used  int
}

type keySlot struct {
	hash uint32
	at   int32 // position plus 1; 0: free
}

// get returns the position with a hash for which is returns true.
func (t *keyTable) get(hash uint64, is func(at int32) bool) (at int32, ok bool) {
	if t.used == 0 {
		return 0, false
	}
	s := t.find(uint32(hash), is)
	return s.at - 1, s.at > 0
}

// put sets the position of a key.
func (t *keyTable) put(hash uint64, at int32, is func(at int32) bool) {
	if 4*t.used >= 3*len(t.slots) {
		t.grow()
	}
	s := t.find(uint32(hash), is)
	if s.at == 0 {
		t.used++
	}
	*s = keySlot{uint32(hash), at + 1}
}

// find returns the slot of a key, or the free slot where it belongs.
func (t *keyTable) find(hash uint32, is func(at int32) bool) *keySlot {
	last := uint32(len(t.slots) - 1)
	for i := hash & last; ; i = (i + 1) & last {
		if s := &t.slots[i]; s.at == 0 || s.hash == hash && is(s.at-1) {
			return s
		}
	}
}

func (t *keyTable) grow() {
	old := t.slots
	t.slots = make([]keySlot, max(64, 2*len(old)))
	for _, s := range old {
		if s.at > 0 {
			*t.find(s.hash, func(int32) bool { return false }) = s
		}
	}
}

func (t *keyTable) clear() {
	clear(t.slots)
	t.used = 0
}

// counted is what late spans below a span need to know about it.
type counted struct {
	stack      *Stack
	source     *Source
	device     *timeline // of the nearest span with device time; nil: there is none
	start, end uint64    // of that
	whole      bool      // the nearest span with energy has no energy attribute for itself, so it includes late spans
}

// countedSpans remembers counted spans in bounded memory, as generations does.
type countedSpans struct {
	newer, older countedHalf
	max          int // of a half
}

type countedHalf struct {
	table keyTable
	list  []countedSpan
}

type countedSpan struct {
	key spanfacts.Key
	counted
}

func (h *countedHalf) find(k spanfacts.Key, hash uint64) *countedSpan {
	if at, ok := h.table.get(hash, h.is(&k)); ok {
		return &h.list[at]
	}
	return nil
}

func (h *countedHalf) is(k *spanfacts.Key) func(at int32) bool {
	return func(at int32) bool { return h.list[at].key == *k }
}

func (c *countedSpans) get(k spanfacts.Key) (s counted, ok bool) {
	hash := k.Hash()
	if x := c.newer.find(k, hash); x != nil {
		return x.counted, true
	}
	if x := c.older.find(k, hash); x != nil {
		s = x.counted
		c.put(k, hash, s)
		return s, true
	}
	return s, false
}

func (c *countedSpans) put(k spanfacts.Key, hash uint64, s counted) {
	if x := c.newer.find(k, hash); x != nil {
		x.counted = s
		return
	}
	if len(c.newer.list) >= c.max {
		c.newer, c.older = c.older, c.newer // its memory is reused
		clear(c.newer.list)
		c.newer.list = c.newer.list[:0]
		c.newer.table.clear()
	}
	c.newer.list = append(c.newer.list, countedSpan{k, s})
	c.newer.table.put(hash, int32(len(c.newer.list)-1), c.newer.is(&k))
}
