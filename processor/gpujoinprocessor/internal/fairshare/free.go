// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

import (
	"slices"
	"sort"
)

type interval struct{ from, to int64 }

// freeTime is the settled time in which nobody was active: disjoint intervals in time order. Late spans take from it.
type freeTime struct {
	list []interval
	max  int
}

// add appends an interval that begins at or after the end of the last one.
func (f *freeTime) add(from, to int64) {
	if to <= from {
		return
	}
	if n := len(f.list); n > 0 && f.list[n-1].to == from {
		f.list[n-1].to = to
		return
	}
	if len(f.list) >= f.max {
		f.drop(len(f.list) - f.max + 1)
	}
	f.list = append(f.list, interval{from, to})
}

// forget drops what ended before t.
func (f *freeTime) forget(t int64) {
	n := 0
	for n < len(f.list) && f.list[n].to <= t {
		n++
	}
	if n > f.max/4 || n == len(f.list) {
		f.drop(n)
	}
}

// drop removes the n oldest; a quarter of the list at least, so that the copy is paid by many.
func (f *freeTime) drop(n int) {
	if n > 0 && n < len(f.list) {
		n = min(max(n, f.max/4), len(f.list))
	}
	f.list = f.list[:copy(f.list, f.list[n:])]
}

// take removes [from, to] from the list and appends what of it was free to dst.
func (f *freeTime) take(from, to int64, dst []interval) []interval {
	i := sort.Search(len(f.list), func(i int) bool { return f.list[i].to > from })
	j := i
	var keep [2]interval
	n := 0
	for ; j < len(f.list) && f.list[j].from < to; j++ {
		x := f.list[j]
		if x.from < from {
			keep[n], n = interval{x.from, from}, n+1
			x.from = from
		}
		if x.to > to {
			keep[n], n = interval{to, x.to}, n+1
			x.to = to
		}
		dst = append(dst, x)
	}
	if j > i {
		f.list = slices.Replace(f.list, i, j, keep[:n]...)
	}
	return dst
}
