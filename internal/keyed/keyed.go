// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package keyed finds what a map holds under a key, and makes it where there is nothing.
package keyed

import "cmp"

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
