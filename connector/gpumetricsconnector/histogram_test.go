// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func TestDefaultBoundsAreOneTwoFive(t *testing.T) {
	b := defaultBounds()
	assert.Equal(t, time.Microsecond, b[0])
	assert.Equal(t, 2*time.Microsecond, b[1])
	assert.Equal(t, 5*time.Microsecond, b[2])
	assert.Equal(t, 50*time.Second, b[len(b)-2])
	assert.Equal(t, time.Minute, b[len(b)-1])
	assert.Len(t, b, 25)
}

func TestExplicitBoundsAreInclusive(t *testing.T) {
	h := newExplicitHistogram([]float64{1, 2, 5})
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

// By the definition itself: every value is in its bucket (base^i, base^(i+1)].
func TestExponentialBucketsHoldTheirValues(t *testing.T) {
	values := []float64{1, 2, 4, 0.5, 0.25, math.SmallestNonzeroFloat64, math.MaxFloat64, 1e-6, 60, 3, math.Nextafter(1, 2), math.Nextafter(1, 0)}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		values = append(values, math.Exp(r.NormFloat64()*8))
	}
	for _, scale := range []int{-10, -3, -1, 0, 1, 3, 8, 20} {
		for _, v := range values {
			i := bucketOf(v, scale)
			// In logarithms, whose rounding is allowed for.
			log, width := math.Log2(v), math.Ldexp(1, -scale)
			require.GreaterOrEqual(t, log, float64(i)*width-1e-12*math.Abs(log), "%g at scale %d", v, scale)
			require.LessOrEqual(t, log, float64(i+1)*width+1e-12*math.Abs(log), "%g at scale %d", v, scale)
		}
	}
	// Powers of two are the inclusive upper end of their bucket, at every scale.
	for _, scale := range []int{-2, -1, 0, 1, 4, 20} {
		for e := -40; e <= 40; e++ {
			step := 1.0
			if scale < 0 {
				step = math.Ldexp(1, -scale)
			}
			want := int(math.Ceil(float64(e)/step)) - 1
			if scale > 0 {
				want = e<<scale - 1
			}
			require.Equal(t, want, bucketOf(math.Ldexp(1, e), scale), "2^%d at scale %d", e, scale)
		}
	}
}

func TestExponentialKeepsItsSizeAndLosesNothing(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		h := newExponentialHistogram(16)
		var values []float64
		for range 500 {
			v := math.Exp(r.NormFloat64() * 5)
			values = append(values, v)
			h.record(v, 1)
			require.LessOrEqual(t, len(h.weights), 16)
		}
		h.record(0, 1)
		// The same values counted into the final buckets one by one.
		want := make([]float64, len(h.weights))
		for _, v := range values {
			want[bucketOf(v, h.scale)-h.offset]++
		}
		assert.Equal(t, want, h.weights)
		m := pmetric.NewMetric()
		m.SetEmptyExponentialHistogram()
		h.write(m)
		p := m.ExponentialHistogram().DataPoints().At(0)
		assert.EqualValues(t, 501, p.Count())
		assert.EqualValues(t, 1, p.ZeroCount())
		// A finer scale would not fit.
		finer := bucketOf(slices.Max(values), h.scale+1) - bucketOf(slices.Min(values), h.scale+1) + 1
		assert.Greater(t, finer, 16)
	}
}

func TestExponentialHistogramsAreWritten(t *testing.T) {
	a := newTest(t, func(c *Config) {
		c.Histogram.Exponential = configoptional.Some(ExponentialConfig{MaxSize: 20})
	})
	a.take(batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""}, span{"p", 0, 2000, with(prefill, attrs{"gpu.duration": 0.004}), 2, 0, ""}), clock)
	for _, m := range output(t, a, clock).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		if m.Name() == "gpu.operation.duration" {
			p := m.ExponentialHistogram().DataPoints().At(0)
			assert.EqualValues(t, 2, p.Count())
			assert.Equal(t, 0.006, p.Sum())
			return
		}
	}
	t.Fatal("no gpu.operation.duration")
}

func TestExemplarsNameSpansOfDifferentBuckets(t *testing.T) {
	a := newTest(t, func(c *Config) { c.MaxExemplars = 3 })
	var spans []span
	for i, d := range []float64{1e-6, 1e-6, 1e-3, 1e-2, 1} {
		spans = append(spans, span{"p", 0, 2000, with(prefill, attrs{"gpu.duration": d}), byte(i + 1), 0, ""})
	}
	a.take(batch(t, nil, spans...), clock)
	var found int
	for _, m := range output(t, a, clock).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		if m.Type() != pmetric.MetricTypeHistogram {
			continue
		}
		p := m.Histogram().DataPoints().At(0)
		found = p.Exemplars().Len()
		for _, e := range p.Exemplars().All() {
			assert.Equal(t, spans[e.SpanID()[0]-1].a["gpu.duration"], e.DoubleValue())
			assert.Equal(t, byte(1), e.TraceID()[0])
			assert.EqualValues(t, epoch+2_000_000, e.Timestamp())
		}
	}
	assert.True(t, found >= 1 && found <= 3, "%d exemplars", found)
	for _, m := range output(t, a, clock).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		if m.Type() == pmetric.MetricTypeHistogram {
			assert.Zero(t, m.Histogram().DataPoints().At(0).Exemplars().Len(), "each is written once")
		}
	}
}
