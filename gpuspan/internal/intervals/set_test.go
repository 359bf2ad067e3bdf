// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package intervals

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/spanfiles/property"
)

// Lengths are compared with a count of unit cells, which needs no merging.
func TestUnionIsTheCountOfCoveredCells(t *testing.T) {
	property.Check(t, func(t *property.T) {
		const size = 200
		var whole Set[int64]
		var real Set[float64]
		cells := make([]bool, size)
		for range property.IntRange(0, 300).Draw(t, "n") {
			from := property.IntRange(0, size).Draw(t, "from")
			to := property.IntRange(0, size).Draw(t, "to")
			whole.Add(int64(from), int64(to))
			real.Add(float64(from), float64(to))
			for i := from; i < to; i++ {
				cells[i] = true
			}
		}
		for i := 1; i < len(whole.List); i++ {
			require.Less(t, whole.List[i-1].To, whole.List[i].From, "disjoint, and apart")
		}
		from := property.IntRange(-10, size).Draw(t, "a")
		to := property.IntRange(-10, size+10).Draw(t, "b")
		all, inside := 0, 0
		for i, covered := range cells {
			if covered {
				all++
				if i >= from && i < to {
					inside++
				}
			}
		}
		require.EqualValues(t, all, whole.Length())
		require.EqualValues(t, inside, whole.Within(int64(from), int64(to)))
		require.EqualValues(t, inside, real.Within(float64(from), float64(to)))
	})
}

func TestThinClosesGapsAndTakeRemovesTheFirst(t *testing.T) {
	var s Set[int64]
	for i := range int64(5) {
		s.Add(10*i, 10*i+5)
	}
	s.Thin()
	require.Equal(t, []Interval[int64]{{0, 15}, {20, 35}, {40, 45}}, s.List)
	length, end := s.Take(2)
	require.EqualValues(t, 30, length)
	require.EqualValues(t, 35, end)
	require.Equal(t, []Interval[int64]{{40, 45}}, s.List)
}
