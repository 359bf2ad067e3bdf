// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"github.com/otelgpu/otelgpu/internal/hashindex"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

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
	table hashindex.Index
	list  []countedSpan
}

type countedSpan struct {
	key spanfacts.Key
	counted
}

func (h *countedHalf) find(k spanfacts.Key, hash uint64) *countedSpan {
	if at, ok := h.table.Get(hash, h.is(&k)); ok {
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
		c.newer.table.Clear()
	}
	c.newer.list = append(c.newer.list, countedSpan{k, s})
	c.newer.table.Put(hash, int32(len(c.newer.list)-1), c.newer.is(&k))
}
