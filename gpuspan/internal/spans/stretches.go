// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"github.com/otelgpu/otelgpu/gpuspan/internal/intervals"
)

// stretches are when something ran, on the step's device if its clock is the step's, otherwise in
// ns of the host's clock from hostStart.
type stretches struct{ device, host union }

func (s *stretches) add(onDevice bool, from, to float64) {
	if onDevice {
		s.device.add(from, to)
	} else {
		s.host.add(from, to)
	}
}

// join combines intervals on the host's clock with intervals on the device's, which count from the
// step's start: shift ns after hostStart.
func (s *stretches) join(shift float64) *union {
	for _, iv := range s.host.List {
		s.device.add(iv.From-shift, iv.To-shift)
	}
	return &s.device
}

// maxIntervals bounds the memory of one union. A step with more disjoint stretches loses the
// exactness of the shortest gaps.
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
