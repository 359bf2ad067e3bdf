// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/otelgpu/otelgpu/gpuspan/internal/intervals"

// maxIntervals bounds the memory of one union. A step of more disjoint stretches loses the exactness of the shortest
// gaps.
const maxIntervals = 1 << 14

// union is stretches of a step in ns from its start.
type union struct{ intervals.Set[float64] }

func (u *union) add(from, to float64) {
	if u.Add(from, to); len(u.List) > maxIntervals {
		u.Thin()
	}
}

// shift lets the union count from another origin at another rate.
func (u *union) shift(origin, rate float64) {
	for i := range u.List {
		u.List[i].From, u.List[i].To = (u.List[i].From-origin)*rate, (u.List[i].To-origin)*rate
	}
}
