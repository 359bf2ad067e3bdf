// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/internal/spanfiles/property"
)

func TestUnionIsBounded(t *testing.T) {
	var u union
	for i := range 20 * maxIntervals {
		u.add(float64(2*i), float64(2*i+1))
	}
	require.LessOrEqual(t, len(u.List), maxIntervals)
	n := float64(20 * maxIntervals)
	covered := u.Within(0, 2*n)
	require.GreaterOrEqual(t, covered, n, "thinning only closes gaps")
	require.LessOrEqual(t, covered, 2*n)
}

// For any measured, added and set phases: step = Σ phases − overlap + other, no term is negative,
// and the parts agree with a count of cells.
func TestStepIdentityHoldsForAnyPhases(t *testing.T) {
	p, err := section.NewCore(nil)
	require.NoError(t, err)
	property.Check(t, func(t *property.T) {
		total := property.IntRange(0, 100).Draw(t, "total")
		st := &Step{loop: &Loop{p: p}}
		cells := make([]bool, 100)
		var sum, loose int64
		for i, n := 0, property.IntRange(0, 4).Draw(t, "phases"); i < n; i++ {
			k := st.indexOf(Phase(rune('a' + i)))
			mine := make([]bool, 100)
			for range property.IntRange(0, 5).Draw(t, "sections") {
				from := property.IntRange(0, 99).Draw(t, "from")
				to := property.IntRange(from, 100).Draw(t, "to")
				shift, host := 0, property.Bool().Draw(t, "host")
				if host {
					shift = 7
				}
				st.phases[k].spans.add(!host, float64(from+shift), float64(to+shift))
				for c := from; c < min(to, total); c++ {
					mine[c] = true
				}
			}
			added := property.IntRange(0, 120).Draw(t, "added")
			st.phases[k].added = time.Duration(added)
			measured := 0
			if property.Bool().Draw(t, "hasSet") {
				added = property.IntRange(0, 120).Draw(t, "set")
				st.phases[k].set, st.phases[k].hasSet = time.Duration(added), true
			} else {
				for c := range mine {
					if mine[c] {
						measured++
						cells[c] = true
					}
				}
			}
			added = min(added, total-measured) // a phase is at most as long as its step
			loose += int64(added)
			sum += int64(measured + added)
		}
		got := st.times(float64(total), 7)
		var phases, covered int64
		for _, d := range got.phases {
			phases += d
		}
		for _, c := range cells {
			if c {
				covered++
			}
		}
		explained := min(covered+loose, int64(total))
		require.Equal(t, sum, phases)
		require.Equal(t, got.total, phases-got.overlap+got.other)
		require.Equal(t, sum-explained, got.overlap)
		require.Equal(t, int64(total)-explained, got.other)
		require.GreaterOrEqual(t, got.overlap, int64(0))
		require.GreaterOrEqual(t, got.other, int64(0))
	})
}

func TestIndexOfAPhaseFitsInARecord(t *testing.T) {
	require.LessOrEqual(t, section.MaxPhases+2, 1<<7-1)
}
