// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package boundedmap finds what a map holds under a key, and makes it where there is nothing.
package boundedmap

import (
	"cmp"
	"iter"
)

// Of is the value of a key; where there was none, a zero one that is in the map from now on.
func Of[K comparable, V any](m map[K]*V, key K) *V {
	v := m[key]
	if v == nil {
		v = new(V)
		m[key] = v
	}
	return v
}

// Bounded is Of in a map that takes no more keys once it has so many: what is new then counts for the rest.
func Bounded[K comparable, V any](m map[K]*V, key, rest K, most int) *V {
	if v := m[key]; v != nil || len(m) < most {
		return Of(m, key)
	}
	return Of(m, rest)
}

// Largest is the key of the largest value, of equals the least; zero where there is none.
func Largest[K, V cmp.Ordered](m map[K]V) (key K) {
	first := true
	for k, v := range m {
		if most := m[key]; first || v > most || v == most && k < key {
			key, first = k, false
		}
	}
	return key
}

// Recent keeps the values of the newest keys: where there are too many, the oldest gives way. The zero value keeps
// none; see [NewRecent].
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
	case r.most == 0:
		return gone, false
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
