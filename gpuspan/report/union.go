// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import "sort"

// maxOpen bounds the disjoint intervals that may still grow together.
const maxOpen = 1024

// union measures the union of intervals that arrive in any order, in bounded memory: the oldest of more than maxOpen
// disjoint intervals is closed, and what arrives before its end later on counts as covered already, so the length is
// never too large.
type union struct {
	open   []interval // disjoint, not touching, sorted
	closed int64      // length of closed intervals
	mark   int64      // end of the latest closed interval
	marked bool
}

type interval struct{ start, end int64 }

func (u *union) add(start, end int64) {
	if u.marked && start < u.mark {
		start = u.mark
	}
	if end <= start {
		return
	}
	// i: first interval that ends at or after start; j: first that begins after end. Those between grow together.
	i := sort.Search(len(u.open), func(k int) bool { return u.open[k].end >= start })
	j := i
	for j < len(u.open) && u.open[j].start <= end {
		start, end = min(start, u.open[j].start), max(end, u.open[j].end)
		j++
	}
	if i == j {
		u.open = append(u.open, interval{})
		copy(u.open[i+1:], u.open[i:])
		u.open[i] = interval{start, end}
	} else {
		u.open[i] = interval{start, end}
		u.open = append(u.open[:i+1], u.open[j:]...)
	}
	if len(u.open) > maxOpen {
		half := len(u.open) / 2 // half at a time, so that closing costs O(1) an interval
		for _, v := range u.open[:half] {
			u.closed += v.end - v.start
		}
		u.mark, u.marked = u.open[half-1].end, true
		u.open = append(u.open[:0], u.open[half:]...)
	}
}

func (u *union) length() int64 {
	l := u.closed
	for _, v := range u.open {
		l += v.end - v.start
	}
	return l
}
