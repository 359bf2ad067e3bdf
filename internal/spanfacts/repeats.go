// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"hash/maphash"
	"math/bits"
)

// Repeats knows spans that come again: senders repeat a request whose answer was lost, and a load balancer divides one
// anew of which some have had their part. It keeps hashes of IDs and times in a table of fixed size, by lines of a
// cache: a map costs twice the time. The zero value remembers nothing. It is not safe for concurrent use.
type Repeats struct {
	Max int // spans that are remembered, about 16 to 32 bytes each

	seed  maphash.Seed
	lines [][8]uint64 // hashes that end alike, the newest first; 2 Max in all, so that half of Max nearly always fit
}

// identity of a span. Another one may have the same IDs, of a producer that makes them badly.
type identity struct {
	Key
	start, end uint64
}

// Again says whether the span has come before, and remembers it. Spans without IDs never have.
func (r *Repeats) Again(f *Facts) bool {
	if r.Max <= 0 || f.Key.Trace.IsEmpty() || f.Key.Span.IsEmpty() {
		return false
	}
	if r.lines == nil {
		r.seed, r.lines = maphash.MakeSeed(), make([][8]uint64, 1<<bits.Len(uint(r.Max-1)/4))
	}
	h := maphash.Comparable(r.seed, identity{f.Key, f.Start, f.End})
	line := &r.lines[h&uint64(len(r.lines)-1)]
	for _, known := range line {
		if known == h {
			return true
		}
	}
	copy(line[1:], line[:7])
	line[0] = h
	return false
}
