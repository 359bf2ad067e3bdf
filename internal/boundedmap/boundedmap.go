// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package boundedmap gets or creates the values of maps, and limits how many a map keeps.
package boundedmap

import (
	"cmp"
	"hash/maphash"
	"iter"

	"github.com/otelgpu/otelgpu/internal/hashindex"
)

// Of returns the value of a key. If the map has none, Of adds a zero value and returns it.
func Of[K comparable, V any](m map[K]*V, key K) *V {
	v := m[key]
	if v == nil {
		v = new(V)
		m[key] = v
	}
	return v
}

// Bounded is like Of, but adds no more keys once the map has most of them: then it returns the
// value of the key rest.
func Bounded[K comparable, V any](m map[K]*V, key, rest K, most int) *V {
	if v := m[key]; v != nil || len(m) < most {
		return Of(m, key)
	}
	return Of(m, rest)
}

// Largest returns the key with the largest value, the least such key if several values are equal,
// and the zero key for an empty map.
func Largest[K, V cmp.Ordered](m map[K]V) (key K) {
	first := true
	for k, v := range m {
		if most := m[key]; first || v > most || v == most && k < key {
			key, first = k, false
		}
	}
	return key
}

// Recent keeps the values of the newest keys and evicts the oldest when it is full. The zero value
// keeps none; see [NewRecent].
type Recent[K comparable, V any] struct {
	at     hashindex.Index // in ring
	ring   []slot[K, V]
	oldest int // index in ring, once the ring is full
	most   int
}

type slot[K comparable, V any] struct {
	key   K
	value V
}

// NewRecent returns a Recent that keeps at most the given number of values.
func NewRecent[K comparable, V any](most int) Recent[K, V] {
	return Recent[K, V]{most: most}
}

var seed = maphash.MakeSeed()

// Len returns the number of values.
func (r *Recent[K, V]) Len() int { return len(r.ring) }

// Find returns the value of a key, nil if it has none. The pointer is valid until the next Put.
func (r *Recent[K, V]) Find(key K) *V {
	if i, ok := r.at.Get(maphash.Comparable(seed, key), r.is(&key)); ok {
		return &r.ring[i].value
	}
	return nil
}

func (r *Recent[K, V]) is(key *K) func(at int32) bool {
	return func(at int32) bool { return r.ring[at].key == *key }
}

// Get returns the value of a key, the zero value if it has none.
func (r *Recent[K, V]) Get(key K) (value V) {
	if v := r.Find(key); v != nil {
		value = *v
	}
	return value
}

// Put sets the value of a key. Setting the value of a known key does not change its age. full
// reports whether another key was evicted, and gone is its value.
func (r *Recent[K, V]) Put(key K, value V) (gone V, full bool) {
	hash := maphash.Comparable(seed, key)
	i, known := r.at.Get(hash, r.is(&key))
	switch {
	case known:
		r.ring[i].value = value
		return gone, false
	case r.most == 0:
		return gone, false
	case len(r.ring) < r.most:
		i = int32(len(r.ring))
		r.ring = append(r.ring, slot[K, V]{})
	default:
		i, full = int32(r.oldest), true
		r.oldest = (r.oldest + 1) % r.most
		gone = r.ring[i].value
		r.at.Delete(maphash.Comparable(seed, r.ring[i].key), i)
	}
	r.at.Put(hash, i, r.is(&key))
	r.ring[i] = slot[K, V]{key, value}
	return gone, full
}

// All returns an iterator over the keys and their values, in no order.
func (r *Recent[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for i := range r.ring {
			if !yield(r.ring[i].key, r.ring[i].value) {
				return
			}
		}
	}
}
