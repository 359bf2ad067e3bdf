// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

// union is the length of the union of intervals that are added in the order of their starts. Zero-length intervals are
// part of it, though they add nothing: they take part in where it starts and ends.
type union struct {
	total int64
	end   int64
	first int64
	any   bool
}

// add takes [start, end) and returns the gap before it: from the end of what was there to its start, at least 0; 0 for
// the first.
func (u *union) add(start, end int64) (gap int64) {
	if !u.any {
		u.any, u.first, u.end, u.total = true, start, end, end-start
		return 0
	}
	if start > u.end {
		gap = start - u.end
		u.end = start
	}
	if end > u.end {
		u.total += end - u.end
		u.end = end
	}
	return gap
}

// span is from the first start to the last end.
func (u *union) span() int64 {
	if !u.any {
		return 0
	}
	return u.end - u.first
}

// clip adds the part of [start, end) that lies in [from, to).
func (u *union) clip(start, end, from, to int64) {
	start, end = max(start, from), min(end, to)
	if end > start {
		u.add(start, end)
	}
}
