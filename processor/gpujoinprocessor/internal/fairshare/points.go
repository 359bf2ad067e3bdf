// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

import "math"

// point is the start or the end of a pending span. Points of the same time need no order: no time passes between
// them, so nobody gets anything there.
type point struct {
	t     int64
	start bool
	n     ref
}

// points are taken in the order of time. Most starts come in that order, and so do most ends, for that is how a
// process exports spans; two queues take those and cost nothing to sort. A heap takes the others: the starts of outer
// spans, what a second process sends of the same time.
type points struct {
	starts, ends run
	others       heap
}

func (x *points) push(p point) {
	in := &x.ends
	if p.start {
		in = &x.starts
	}
	if !in.push(p) {
		x.others.push(p)
	}
}

// first is the time of the earliest point; none: math.MaxInt64.
func (x *points) first() int64 { return min(x.starts.first(), x.ends.first(), x.others.first()) }

// pop takes the earliest point, if it is not after the time to.
func (x *points) pop(to int64) (p point, ok bool) {
	switch t := x.first(); {
	case t > to || t == math.MaxInt64:
		return point{}, false
	case t == x.ends.first():
		return x.ends.pop(), true
	case t == x.starts.first():
		return x.starts.pop(), true
	}
	return x.others.pop(), true
}

// run is a queue of points in the order of time.
type run struct {
	list []point
	head int
}

// push takes a point that is not before the last one; false: it is.
func (r *run) push(p point) bool {
	n := len(r.list)
	if n > r.head && r.list[n-1].t > p.t {
		return false
	}
	if n == cap(r.list) && 2*r.head >= n { // half of it is gone: no need to grow
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

// heap is a binary min-heap. container/heap was refused for the allocation of every push into an interface.
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
