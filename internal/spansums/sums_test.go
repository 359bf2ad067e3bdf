// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spansums

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestRatesAreOfSpansThatStateTheAmountAndAreAboveTheFloor(t *testing.T) {
	var s Sums
	for _, f := range []spanfacts.Facts{
		{Kind: spanfacts.Kernel, Time: 2, Size: 10, Bound: semconv.GPURooflineBoundMemory},
		{Kind: spanfacts.Kernel, Time: 1, FLOPs: 6, Throttle: "sw_power_cap", Bound: semconv.GPURooflineBoundCompute},
		{Kind: spanfacts.Kernel, Time: 4, Size: 1e9, BelowFloor: true, HasEnergy: true, Energy: 7, SelfEnergy: 3},
	} {
		x := Of(&f)
		s.Add(&x, 1)
	}
	assert.Equal(t, []float64{3, 7, 7, 3, 1}, []float64{s[Count], s[Time], s[Energy], s[SelfEnergy], s[Measured]})
	assert.Equal(t, 5.0, s.Ratio(Bytes, ByteTime))
	assert.Equal(t, 6.0, s.Ratio(FLOPs, FLOPTime))
	assert.Equal(t, 1.0, s[Held])
	assert.Zero(t, s[BothBytes])
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
