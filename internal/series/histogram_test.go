// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func TestExplicitBoundsAreInclusive(t *testing.T) {
	h := newDistribution((&Settings{}).newHistogram([]float64{1, 2, 5}))
	for _, v := range []float64{0, 1, 1.5, 2, 5, 5.1, 1e9} {
		h.record(v, 1)
	}
	m := pmetric.NewMetric()
	m.SetEmptyHistogram()
	h.write(m)
	p := m.Histogram().DataPoints().At(0)
	assert.Equal(t, []uint64{2, 2, 1, 2}, p.BucketCounts().AsRaw())
	assert.EqualValues(t, 7, p.Count())
	assert.Equal(t, 0.0, p.Min())
	assert.Equal(t, 1e9, p.Max())
	assert.Equal(t, 1e9+14.6, p.Sum())
}

// Every value is in its bucket (base^i, base^(i+1)], the number of buckets is within the limit, and
// a finer scale would exceed it.
func TestExponentialBucketsHoldTheirValues(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		h := newDistribution((&Settings{Exponential: 16}).newHistogram(nil))
		var values []float64
		for range 500 {
			v := math.Exp(r.NormFloat64() * 5)
			values = append(values, v)
			h.record(v, 1)
		}
		h.record(0, 1)
		m := pmetric.NewMetric()
		m.SetEmptyExponentialHistogram()
		h.write(m)
		p := m.ExponentialHistogram().DataPoints().At(0)
		assert.EqualValues(t, 501, p.Count())
		assert.EqualValues(t, 1, p.ZeroCount())
		require.LessOrEqual(t, p.Positive().BucketCounts().Len(), 16)
		base := math.Exp2(math.Exp2(-float64(p.Scale())))
		for i, n := range p.Positive().BucketCounts().AsRaw() {
			at := float64(int(p.Positive().Offset()) + i)
			var want uint64
			for _, v := range values {
				if v > math.Pow(base, at) && v <= math.Pow(base, at+1) {
					want++
				}
			}
			assert.Equal(t, want, n, "bucket %g of scale %d", at, p.Scale())
		}
		finer := math.Exp2(float64(p.Scale()) + 1)
		width := math.Ceil(math.Log2(slices.Max(values))*finer) - math.Ceil(math.Log2(slices.Min(values))*finer) + 1
		assert.Greater(t, width, 16.0)
	}
}
