// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"
)

// interval is a stretch of a step in ns from its start.
type interval struct{ from, to float64 }

// maxIntervals bounds the memory of one union. A step of more disjoint stretches loses the exactness of the shortest gaps.
const maxIntervals = 1 << 14

// union is a set of intervals that is kept short by merging.
type union struct {
	list   []interval
	merged int // list[:merged] is sorted and disjoint
}

func (u *union) add(from, to float64) {
	if !(to > from) {
		return
	}
	u.list = append(u.list, interval{from, to})
	if len(u.list) >= 64 && len(u.list) >= 2*u.merged {
		u.merge()
		if u.merged >= maxIntervals {
			u.thin()
		}
	}
}

// merge sorts and joins what touches.
func (u *union) merge() {
	slices.SortFunc(u.list, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	out := u.list[:0]
	for _, iv := range u.list {
		if n := len(out); n > 0 && iv.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, iv.to)
			continue
		}
		out = append(out, iv)
	}
	u.list, u.merged = out, len(out)
}

// thin closes every second gap.
func (u *union) thin() {
	out := u.list[:0]
	for i := 0; i < len(u.list); i += 2 {
		iv := u.list[i]
		if i+1 < len(u.list) {
			iv.to = u.list[i+1].to
		}
		out = append(out, iv)
	}
	u.list, u.merged = out, len(out)
}

// shift lets the union count from another origin at another rate.
func (u *union) shift(origin, rate float64) {
	for i := range u.list {
		u.list[i].from, u.list[i].to = (u.list[i].from-origin)*rate, (u.list[i].to-origin)*rate
	}
}

// within is the length of the union inside [from, to].
func (u *union) within(from, to float64) float64 {
	u.merge()
	sum := 0.0
	for _, iv := range u.list {
		if a, b := max(iv.from, from), min(iv.to, to); b > a {
			sum += b - a
		}
	}
	return sum
}
