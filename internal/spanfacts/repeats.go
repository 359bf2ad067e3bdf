// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"hash/maphash"
	"math/bits"
	"slices"
)

// Repeats detects repeated spans: senders repeat a request whose response was lost, and a load
// balancer divides such a request again when some backends have accepted their part. It keeps
// hashes of IDs and times in a table of fixed size, in cache lines: a map takes twice the time. The
// zero value remembers nothing. It is not safe for concurrent use.
type Repeats struct {
	Max int // spans to remember, about 16 to 32 bytes each

	lines [][8]uint64 // hashes with equal low bits, the newest first; 2 Max in all, so that half of Max nearly always fit
	read  uint64      // keeps Prefetch from being optimized away
}

var (
	seed = maphash.MakeSeed()
	odd  = maphash.Comparable(seed, 0) | 1
)

// Hash returns a hash of the key that senders cannot predict.
func (k Key) Hash() uint64 { return maphash.Comparable(seed, k) }

// identify returns a hash of a span. The times are part of it because some producers do not make
// unique IDs.
func identify(key, start, end uint64) uint64 {
	high, low := bits.Mul64(key^start, end^odd)
	return high ^ low
}

// Again reports whether the span has arrived before, and remembers it. It returns false for spans
// without IDs.
func (r *Repeats) Again(f *Facts) bool { return r.AgainHashed(f, f.Key.Hash()) }

// AgainHashed is Again where the hash of the span's key is known.
func (r *Repeats) AgainHashed(f *Facts, key uint64) bool { return r.again(&f.Key, key, f.Start, f.End) }

// AgainKey is Again for a span whose facts are not read.
func (r *Repeats) AgainKey(k Key, start, end uint64) bool { return r.again(&k, k.Hash(), start, end) }

func (r *Repeats) again(k *Key, key, start, end uint64) bool {
	if r.Max <= 0 || k.Trace.IsEmpty() || k.Span.IsEmpty() {
		return false
	}
	if r.lines == nil {
		r.lines = make([][8]uint64, 1<<bits.Len(uint(r.Max-1)/4))
	}
	h := identify(key, start, end)
	line := r.line(h)
	if slices.Contains(line[:], h) {
		return true
	}
	copy(line[1:], line[:7])
	line[0] = h
	return false
}

func (r *Repeats) line(h uint64) *[8]uint64 { return &r.lines[h&uint64(len(r.lines)-1)] }

// Forget forgets a span that was new and could not be stored, so that its repetition is not
// ignored.
func (r *Repeats) Forget(k Key, start, end uint64) {
	if len(r.lines) == 0 {
		return
	}
	h := identify(k.Hash(), start, end)
	line := r.line(h)
	if at := slices.Index(line[:], h); at >= 0 {
		copy(line[at:], line[at+1:])
		line[7] = 0
	}
}

// Prefetch loads the cache line that Again reads for a span. The table does not fit into a
// processor's own cache, and Again waits for memory longer than it computes; lines of several spans
// arrive together.
func (r *Repeats) Prefetch(key, start, end uint64) {
	if len(r.lines) > 0 {
		r.read ^= r.line(identify(key, start, end))[0]
	}
}
