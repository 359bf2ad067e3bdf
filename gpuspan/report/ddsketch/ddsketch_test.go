// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ddsketch_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"github.com/otelgpu/otelgpu/gpuspan/report/ddsketch"
)

// Against gonum's empirical quantile, from 100 ns to a minute, what 1024 bins hold.
func TestQuantilesAreWithinOnePercent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float64 {
			return math.Exp(rapid.Float64Range(math.Log(1e-7), math.Log(60)).Draw(t, "log"))
		}), 1, 300).Draw(t, "seconds")
		s := ddsketch.New()
		for _, v := range x {
			s.Add(v)
		}
		slices.Sort(x)
		for _, q := range []float64{0, .01, .5, .9, .99, 1} {
			want := stat.Quantile(q, stat.Empirical, x, nil)
			got, ok := s.Quantile(q)
			assert.True(t, ok)
			assert.InEpsilon(t, want, got, .0101, "q %v of %d", q, len(x))
		}
	})
}

func TestWhatIsNoDurationIsLeftOut(t *testing.T) {
	s := ddsketch.New()
	s.Add(-1)
	s.Add(math.NaN())
	_, ok := s.Quantile(.5)
	assert.False(t, ok)
	s.Add(0)
	v, ok := s.Quantile(.5)
	assert.True(t, ok)
	assert.Zero(t, v)
}
