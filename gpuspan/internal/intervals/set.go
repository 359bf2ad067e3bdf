// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package intervals implements unions of intervals that arrive in any order.
package intervals

import (
	"slices"
	"sort"
)

// Interval is [From, To).
type Interval[T int64 | float64] struct{ From, To T }

// Set is a union, as disjoint intervals in order. The zero value is empty.
type Set[T int64 | float64] struct{ List []Interval[T] }

// Add adds an interval; one without length is ignored.
func (s *Set[T]) Add(from, to T) {
	if !(to > from) {
		return
	}
	u := s.List
	// i: the first that ends at or after from; j: the first that starts after to. The ones between
	// are merged.
	i := len(u)
	if i > 0 && u[i-1].To >= from { // usually the new one is the last
		i = sort.Search(i-1, func(k int) bool { return u[k].To >= from })
	}
	j := i
	for ; j < len(u) && u[j].From <= to; j++ {
		from, to = min(from, u[j].From), max(to, u[j].To)
	}
	s.List = slices.Replace(u, i, j, Interval[T]{from, to})
}

// Thin closes every second gap.
func (s *Set[T]) Thin() {
	out := s.List[:0]
	for pair := range slices.Chunk(s.List, 2) {
		out = append(out, Interval[T]{pair[0].From, pair[len(pair)-1].To})
	}
	s.List = out
}

// Take removes the first n intervals and returns how long they are together, and where the last of
// them ends.
func (s *Set[T]) Take(n int) (length, end T) {
	for _, v := range s.List[:n] {
		length, end = length+v.To-v.From, v.To
	}
	s.List = slices.Delete(s.List, 0, n)
	return length, end
}

// Length returns the length of the union.
func (s *Set[T]) Length() (sum T) {
	for _, v := range s.List {
		sum += v.To - v.From
	}
	return sum
}

// Within returns the length of the union inside [from, to).
func (s *Set[T]) Within(from, to T) (sum T) {
	for _, v := range s.List {
		if a, b := max(v.From, from), min(v.To, to); b > a {
			sum += b - a
		}
	}
	return sum
}
