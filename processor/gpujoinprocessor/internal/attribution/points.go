// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math"
	"slices"
	"sort"
)

// point is the start or the end of a pending span. Points of the same time need no order: no time
// passes between them, so nothing is attributed there.
type point struct {
	t     int64
	start bool
	n     ref
}

// points are consumed in the order of time. Most starts arrive in that order, and so do most ends,
// because that is how a process exports spans; queues accept these without sorting, four of each,
// because other processes and connections send spans of the same time. A heap accepts the others,
// such as the starts of outer spans.
type points struct {
	runs   [8]run // ends, starts, ends, starts, ...
	others heap
}

func (x *points) push(p point) {
	i := 0
	if p.start {
		i = 1
	}
	for ; i < len(x.runs); i += 2 {
		if x.runs[i].push(p) {
			return
		}
	}
	x.others.push(p)
}

// first returns the time of the earliest point; math.MaxInt64 if there is none.
func (x *points) first() int64 {
	t := x.others.first()
	for i := range x.runs {
		t = min(t, x.runs[i].first())
	}
	return t
}

// pop returns the earliest point, if it is not after the time to.
func (x *points) pop(to int64) (p point, ok bool) {
	t := x.first()
	if t > to || t == math.MaxInt64 {
		return point{}, false
	}
	for i := range x.runs {
		if r := &x.runs[i]; r.first() == t {
			return r.pop(), true
		}
	}
	return x.others.pop(), true
}

// each calls f with all points up to a time, in no order.
func (x *points) each(to int64, f func(point)) {
	for i := range x.runs {
		r := &x.runs[i]
		for j := r.head; j < len(r.list) && r.list[j].t <= to; j++ {
			f(r.list[j])
		}
	}
	for _, p := range x.others {
		if p.t <= to {
			f(p)
		}
	}
}

// run is a queue of points in the order of time.
type run struct {
	list []point
	head int
}

// push adds a point that is not before the last one; otherwise it returns false.
func (r *run) push(p point) bool {
	n := len(r.list)
	if n > r.head && r.list[n-1].t > p.t {
		return false
	}
	if n == cap(r.list) && 2*r.head >= n { // half of it is consumed: no need to grow
		r.list = r.list[:copy(r.list, r.list[r.head:])]
		r.head = 0
	}
	r.list = append(r.list, p)
	return true
}

func (r *run) first() int64 {
	if r.head == len(r.list) {
		return math.MaxInt64
	}
	return r.list[r.head].t
}

func (r *run) pop() point {
	p := r.list[r.head]
	r.head++
	return p
}

// heap is a binary min-heap. container/heap was rejected because it allocates at every push into an
// interface.
type heap []point

func (h *heap) push(p point) {
	s := append(*h, p)
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 2
		if p.t >= s[up].t {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = p
	*h = s
}

func (h heap) first() int64 {
	if len(h) == 0 {
		return math.MaxInt64
	}
	return h[0].t
}

func (h *heap) pop() point {
	s := *h
	top := s[0]
	n := len(s) - 1
	p := s[n]
	s = s[:n]
	i := 0
	for {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && s[down+1].t < s[down].t {
			down++
		}
		if s[down].t >= p.t {
			break
		}
		s[i] = s[down]
		i = down
	}
	if n > 0 {
		s[i] = p
	}
	*h = s
	return top
}

type interval struct{ from, to int64 }

// freeTime is the settled time in which no span was active: disjoint intervals in time order. Late
// spans take from it.
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

// drop removes the n oldest, at least a quarter of the list, so that the cost of the copy is
// amortized.
func (f *freeTime) drop(n int) {
	n = min(max(n, f.max/4), len(f.list))
	f.list = f.list[:copy(f.list, f.list[n:])]
}

// overlaps reports whether any free time is in [from, to].
func (f *freeTime) overlaps(from, to int64) bool {
	i := sort.Search(len(f.list), func(i int) bool { return f.list[i].to > from })
	return i < len(f.list) && f.list[i].from < to
}

// take removes [from, to] from the list and appends its free parts to dst.
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
