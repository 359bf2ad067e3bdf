// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package keyed

import "iter"

// Recent keeps the values of the newest keys: where there are too many, the oldest gives way. The zero value keeps none;
// see [NewRecent].
type Recent[K comparable, V any] struct {
	at     map[K]int32 // place in ring
	ring   []slot[K, V]
	oldest int // once the ring is full
	most   int
}

type slot[K comparable, V any] struct {
	key   K
	value V
}

// NewRecent keeps so many values at most.
func NewRecent[K comparable, V any](most int) Recent[K, V] {
	return Recent[K, V]{at: map[K]int32{}, most: most}
}

// Len is how many values there are.
func (r *Recent[K, V]) Len() int { return len(r.ring) }

// Find is the value of a key, nil where there is none. The pointer is good until the next Put.
func (r *Recent[K, V]) Find(key K) *V {
	if i, ok := r.at[key]; ok {
		return &r.ring[i].value
	}
	return nil
}

// Get is the value of a key, zero where there is none.
func (r *Recent[K, V]) Get(key K) (value V) {
	if v := r.Find(key); v != nil {
		value = *v
	}
	return value
}

// Put sets the value of a key, which stays as old as it is. It says whether another key gave way, and what its value
// was.
func (r *Recent[K, V]) Put(key K, value V) (gone V, full bool) {
	i, known := r.at[key]
	switch {
	case known:
	case len(r.ring) < r.most:
		i = int32(len(r.ring))
		r.ring = append(r.ring, slot[K, V]{})
	default:
		i, full = int32(r.oldest), true
		r.oldest = (r.oldest + 1) % r.most
		gone = r.ring[i].value
		delete(r.at, r.ring[i].key)
	}
	r.at[key], r.ring[i] = i, slot[K, V]{key, value}
	return gone, full
}

// All are the keys and their values.
func (r *Recent[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for i := range r.ring {
			if !yield(r.ring[i].key, r.ring[i].value) {
				return
			}
		}
	}
}
