// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/otelgpu/otelgpu/gpuspan/internal/property"
	"github.com/otelgpu/otelgpu/gpuspan/internal/require"
)

// Against a map of every nanosecond.
func TestUnionOfIntervalsInAnyOrder(t *testing.T) {
	property.Check(t, func(t *property.T) {
		var u union
		covered := map[int64]bool{}
		for range property.IntRange(0, 60).Draw(t, "n") {
			start := property.Int64Range(0, 200).Draw(t, "start")
			end := start + property.Int64Range(-3, 30).Draw(t, "length")
			u.add(start, end)
			for i := start; i < end; i++ {
				covered[i] = true
			}
			require.EqualValues(t, len(covered), u.length())
		}
		for i := 1; i < len(u.open); i++ {
			require.Less(t, u.open[i-1].end, u.open[i].start, "disjoint, and apart")
		}
	})
}

func TestUnionIsBoundedAndNeverTooLong(t *testing.T) {
	var u union
	const n = 10 * maxOpen
	for i := range int64(n) {
		u.add(i*10, i*10+5)
		require.LessOrEqual(t, len(u.open), maxOpen)
	}
	require.EqualValues(t, n*5, u.length())
	u.add(0, 7) // before what is closed
	require.EqualValues(t, n*5, u.length())
	u.add(0, n*20)
	require.LessOrEqual(t, u.length(), int64(n*20))
}
