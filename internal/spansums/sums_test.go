// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spansums

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestRatesNeedDeclaredWorkAndTimeAboveTheFloor(t *testing.T) {
	var s Sums
	for _, f := range []spanfacts.Facts{
		{Kind: spanfacts.Kernel, Time: 0.125, Size: 10, Bound: semconv.GPURooflineBoundMemory},
		{Kind: spanfacts.Kernel, Time: 0.0625, FLOPs: 6, Throttle: "sw_power_cap", Bound: semconv.GPURooflineBoundCompute},
		{Kind: spanfacts.Kernel, Time: 0.5, Size: 32, FLOPs: 64, HasRoofline: true, Roofline: 0.25},
		{Kind: spanfacts.Copy, Time: 1, HostMemory: semconv.GPUCopyHostMemoryPageable, Joined: true, Coverage: 0.5},
		{Kind: spanfacts.Kernel, Time: 0.25, Size: 1e9, BelowFloor: true, HasEnergy: true, Energy: 7, SelfEnergy: 3},
		{Kind: spanfacts.Kernel, Size: 1e9, Bound: semconv.GPURooflineBoundLaunch},
		{Kind: spanfacts.Section, Time: 2, Throttle: "hw_thermal_slowdown"},
		{Kind: spanfacts.Copy, Time: 4, Throttle: "hw_thermal_slowdown"},
	} {
		x := Of(&f)
		s.Add(&x, 1)
	}
	assert.Equal(t, Sums{
		Count: 8, Time: 7.9375, Energy: 7, SelfEnergy: 3, Measured: 1, Bytes: 42, ByteTime: 0.625, FLOPs: 70, FLOPTime: 0.5625,
		BothBytes: 32, BothFLOPs: 64, Roofline: 0.125, RoofTime: 0.5, Pageable: 1, Held: 2, HeldTime: 2.0625,
		Coverage: 0.5, Joined: 1, boundTime: 0.0625, boundTime + 1: 0.125,
	}, s)
	assert.Equal(t, 67.2, s.Ratio(Bytes, ByteTime))
	assert.Equal(t, semconv.GPURooflineBoundMemory, s.Bound())
	whole := s
	s.Add(&whole, -1)
	assert.Equal(t, Sums{}, s)
	assert.Empty(t, s.Bound())
	assert.Zero(t, s.Ratio(Bytes, ByteTime))
}

func TestAStepHasItsOwnLengthAndItems(t *testing.T) {
	s := Of(&spanfacts.Facts{Kind: spanfacts.Step, StepDuration: 2, StepItems: 8, Items: 1, MFU: 0.5})
	assert.Equal(t, 4.0, s.Ratio(Items, Time))
	assert.Equal(t, 0.5, s.Ratio(MFU, MFUTime))
}
