// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ddsketch_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/report/ddsketch"
	"github.com/otelgpu/otelgpu/internal/spanfiles/property"
)

// Compares with exact quantiles from 100 ns to one minute, the range of 1024 bins.
func TestQuantilesAreWithinOnePercent(t *testing.T) {
	property.Check(t, func(t *property.T) {
		x := property.SliceOfN(property.Gen[float64](func(t *property.T) float64 {
			return math.Exp(property.Float64Range(math.Log(1e-7), math.Log(60)).Draw(t, "log"))
		}), 1, 300).Draw(t, "seconds")
		s := ddsketch.New()
		for _, v := range x {
			s.Add(v)
		}
		slices.Sort(x)
		for _, q := range []float64{0, .01, .5, .9, .99, 1} {
			want := x[max(int(math.Ceil(q*float64(len(x)))), 1)-1]
			got, ok := s.Quantile(q)
			require.True(t, ok)
			require.InEpsilon(t, want, got, .0101, "q %v of %d", q, len(x))
		}
	})
}

func TestInvalidDurationsAreIgnored(t *testing.T) {
	s := ddsketch.New()
	s.Add(-1)
	s.Add(math.NaN())
	_, ok := s.Quantile(.5)
	require.False(t, ok)
	s.Add(0)
	v, ok := s.Quantile(.5)
	require.True(t, ok)
	require.Zero(t, v)
}
