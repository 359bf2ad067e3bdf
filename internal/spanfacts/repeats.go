// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"hash/maphash"
	"math/bits"
)

// Repeats detects repeated spans: senders repeat a request whose response was lost, and a load balancer divides such a
// request again when some backends have accepted their part. It keeps hashes of IDs and times in a table of fixed size,
// in cache lines: a map takes twice the time. The zero value remembers nothing. It is not safe for concurrent use.
type Repeats struct {
	Max int // spans to remember, about 16 to 32 bytes each

	seed  maphash.Seed
	lines [][8]uint64 // hashes with equal low bits, the newest first; 2 Max in all, so that half of Max nearly always fit
}

// identity identifies a span. The times are part of it because some producers do not make unique IDs.
type identity struct {
	Key
	start, end uint64
}

// Again reports whether the span has arrived before, and remembers it. It returns false for spans without IDs.
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
