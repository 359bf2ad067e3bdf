// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import "github.com/otelgpu/otelgpu/gpuspan/internal/intervals"

// maxOpen bounds the disjoint intervals that may still grow together.
const maxOpen = 1024

// union measures the union of intervals that arrive in any order, in bounded memory: the oldest of more than maxOpen
// disjoint intervals is closed, and what arrives before its end later on counts as covered already, so the length is
// never too large.
type union struct {
	open   intervals.Set[int64]
	closed int64 // length of closed intervals
	mark   int64 // end of the latest closed interval
	marked bool
}

func (u *union) add(start, end int64) {
	if u.marked {
		start = max(start, u.mark)
	}
	u.open.Add(start, end)
	if n := len(u.open.List); n > maxOpen { // half at a time, so that closing costs O(1) an interval
		length, mark := u.open.Take(n / 2)
		u.closed, u.mark, u.marked = u.closed+length, mark, true
	}
}

func (u *union) length() int64 { return u.closed + u.open.Length() }
