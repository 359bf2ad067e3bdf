// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import "sort"

// interval is [start, end) in unix ns.
type interval struct{ start, end uint64 }

// union is a set of points as disjoint intervals in order.
type union []interval

// add puts an interval in. Where that makes more than limit intervals, the two with the smallest gap between them are
// joined, so the length is then too large by that gap.
func (u union) add(v interval, limit int) union {
	if v.end <= v.start {
		return u
	}
	i := sort.Search(len(u), func(i int) bool { return u[i].end >= v.start })
	j := i
	for ; j < len(u) && u[j].start <= v.end; j++ {
		v.start, v.end = min(v.start, u[j].start), max(v.end, u[j].end)
	}
	if i == j {
		u = append(u, interval{})
		copy(u[i+1:], u[i:])
	} else {
		u = append(u[:i+1], u[j:]...)
	}
	u[i] = v
	if len(u) > limit {
		u = u.join()
	}
	return u
}

func (u union) join() union {
	best := 1
	for i := 2; i < len(u); i++ {
		if u[i].start-u[i-1].end < u[best].start-u[best-1].end {
			best = i
		}
	}
	u[best-1].end = u[best].end
	return append(u[:best], u[best+1:]...)
}

// within is the length in seconds inside an interval.
func (u union) within(v interval) float64 {
	var sum uint64
	for _, x := range u {
		if a, b := max(x.start, v.start), min(x.end, v.end); b > a {
			sum += b - a
		}
	}
	return float64(sum) * 1e-9
}
