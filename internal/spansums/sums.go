// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package spansums sums values of GPU spans by operation, for tables and pages that show
// operations.
package spansums

import (
	"slices"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// The sums. A sum of amounts covers the spans that state the amount, as does the corresponding sum
// of times: one divided by the other is the rate. Rates leave out spans below the floor. Times are
// seconds, energies joules, sizes bytes.
const (
	Count      = iota // spans
	Time              // on the device; of steps their length
	Energy            // of spans with their descendants
	SelfEnergy        // of spans alone
	Measured          // spans with energy
	Items             // of steps gpu.step.items
	Bytes             // gpu.io.size
	ByteTime          //
	FLOPs             // gpu.flop.count
	FLOPTime          //
	BothBytes         // of spans that state bytes and FLOPs
	BothFLOPs         // likewise
	Roofline          // gpu.roofline.utilization × time
	RoofTime          //
	MFU               // gpu.step.mfu × time
	MFUTime           //
	Pageable          // copies through pageable memory
	Held              // spans that compute while the clock was throttled
	HeldTime          //
	Coverage          // gpu.join.coverage of spans that were joined
	Joined            // so many
	boundTime         // by bound, in the order of bounds
	size       = boundTime + 4
)

var bounds = [...]string{
	semconv.GPURooflineBoundCompute, semconv.GPURooflineBoundMemory, semconv.GPURooflineBoundLaunch,
	semconv.GPURooflineBoundLatency,
}

// Sums are the sums over some spans. Sums of parts can be added, and taken away again.
type Sums [size]float64

// computes reports whether a span's speed depends on the clock: copies and waits for other devices
// are as fast without.
func computes(f *spanfacts.Facts) bool {
	switch f.Kind {
	case spanfacts.Kernel, spanfacts.Section, spanfacts.Graph:
		return true
	default:
		return f.FLOPs > 0
	}
}

// Of returns what one GPU span adds.
func Of(f *spanfacts.Facts) (s Sums) {
	time, items := f.Time, f.Items
	if f.Kind == spanfacts.Step {
		time, items = f.StepTime(), f.StepItems
	}
	s[Count], s[Time], s[Items], s[Energy], s[SelfEnergy] = 1, time, items, f.Energy, f.SelfEnergy
	if f.HasEnergy {
		s[Measured] = 1
	}
	if f.Joined {
		s[Coverage], s[Joined] = f.Coverage, 1
	}
	if f.HostMemory == semconv.GPUCopyHostMemoryPageable {
		s[Pageable] = 1
	}
	if time <= 0 || f.BelowFloor {
		return s
	}
	if f.Size > 0 {
		s[Bytes], s[ByteTime] = f.Size, time
	}
	if f.Throttle != "" && computes(f) {
		s[Held], s[HeldTime] = 1, time
	}
	if f.FLOPs > 0 {
		s[FLOPs], s[FLOPTime] = f.FLOPs, time
		if f.Size > 0 {
			s[BothBytes], s[BothFLOPs] = f.Size, f.FLOPs
		}
	}
	if f.HasRoofline {
		s[Roofline], s[RoofTime] = f.Roofline*time, time
	}
	if f.MFU > 0 {
		s[MFU], s[MFUTime] = f.MFU*time, time
	}
	if i := slices.Index(bounds[:], f.Bound); i >= 0 {
		s[boundTime+i] = time
	}
	return s
}

// Add adds x, or with sign -1 subtracts it.
func (s *Sums) Add(x *Sums, sign float64) {
	for i, v := range x {
		s[i] += sign * v
	}
}

// Ratio returns one sum divided by another; 0 if it is unknown.
func (s *Sums) Ratio(of, by int) float64 {
	if s[by] <= 0 {
		return 0
	}
	return s[of] / s[by]
}

// Bound returns what limited most of the time, a value of gpu.roofline.bound; empty if unknown.
func (s *Sums) Bound() string {
	of := s[boundTime:]
	longest := slices.Max(of)
	if longest <= 0 {
		return ""
	}
	return bounds[slices.Index(of, longest)]
}
