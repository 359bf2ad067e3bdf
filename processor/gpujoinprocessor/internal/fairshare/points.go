// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

// point is the start or the end of a pending span. Points of the same time need no order: no time passes between them, so
// nobody gets anything there.
type point struct {
	t     int64
	start bool
	n     ref
}

// points is a binary min-heap. container/heap was refused for the allocation of every push into an interface.
type points []point

func (h *points) push(p point) {
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

func (h *points) pop() point {
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
