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

func TestDefaultBoundsAreOneAndThree(t *testing.T) {
	b := defaultBounds()
	assert.Equal(t, []time.Duration{time.Microsecond, 3 * time.Microsecond, 10 * time.Microsecond}, b[:3])
	assert.Equal(t, []time.Duration{10 * time.Second, 30 * time.Second}, b[len(b)-2:])
	assert.Len(t, b, 16)
}

func TestExplicitBoundsAreInclusive(t *testing.T) {
	h := newDistribution(newExplicitHistogram([]float64{1, 2, 5}))
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

// By the definition itself: every value is in its bucket (base^i, base^(i+1)], in at most as many buckets as allowed,
// and a finer scale would not fit.
func TestExponentialBucketsHoldTheirValues(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		h := newDistribution(newExponentialHistogram(16))
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

// A span that was sampled stands for a number of spans that need not be whole: nothing is lost over deltas and buckets.
func TestFractionsOfAdjustedCountsAreNotLost(t *testing.T) {
	for name, form := range map[string]func(*Config){
		"explicit":    func(*Config) {},
		"exponential": func(c *Config) { c.Histogram.Exponential = configoptional.Some(ExponentialConfig{MaxSize: 20}) },
	} {
		a := newTest(t, func(c *Config) { c.Temporality = TemporalityDelta; form(c) })
		var count uint64
		var sum float64
		for i := range uint64(300) { // 4/3 each: threshold 4/16
			d := []float64{1e-6, 1e-3, 1}[i%3]
			a.take(batch(t, nil, span{"p", i * 1000, i*1000 + 500, with(prefill, attrs{"gpu.duration": d}), 1, 0, "ot=th:4"}),
				clock)
			for _, m := range output(t, a, clock).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
				switch m.Type() {
				case pmetric.MetricTypeHistogram:
					count += m.Histogram().DataPoints().At(0).Count()
					sum += m.Histogram().DataPoints().At(0).Sum()
				case pmetric.MetricTypeExponentialHistogram:
					count += m.ExponentialHistogram().DataPoints().At(0).Count()
					sum += m.ExponentialHistogram().DataPoints().At(0).Sum()
				}
			}
		}
		assert.EqualValues(t, 400, count, name)
		assert.InEpsilon(t, 400*(1e-6+1e-3+1)/3, sum, 1e-12, name)
	}
}

func TestExponentialHistogramsAreWritten(t *testing.T) {
	a := newTest(t, func(c *Config) {
		c.Histogram.Exponential = configoptional.Some(ExponentialConfig{MaxSize: 20})
	})
	a.take(batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""},
		span{"p", 0, 2000, with(prefill, attrs{"gpu.duration": 0.004}), 2, 0, ""}), clock)
	for _, m := range output(t, a, clock).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		if m.Name() == "gpu.operation.duration" {
			p := final(m.ExponentialHistogram().DataPoints())
			assert.EqualValues(t, 2, p.Count())
			assert.Equal(t, 0.006, p.Sum())
			return
		}
	}
	t.Fatal("no gpu.operation.duration")
}

func TestExemplarsNameSpansOfDifferentBuckets(t *testing.T) {
	a := newTest(t, func(c *Config) { c.MaxExemplars = 8 })
	var spans []span
	for i, d := range []float64{1e-6, 1.1e-6, 1e-3, 1e-2, 1} {
		spans = append(spans, span{"p", 0, 2000, with(prefill, attrs{"gpu.duration": d}), byte(i + 1), 0, ""})
	}
	a.take(batch(t, nil, spans...), clock)
	for range 2 { // each output has them, for a scrape comes at its own time
		found := map[byte]bool{}
		for _, m := range output(t, a, clock).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			if m.Type() != pmetric.MetricTypeHistogram {
				continue
			}
			for _, e := range final(m.Histogram().DataPoints()).Exemplars().All() {
				assert.Equal(t, spans[e.SpanID()[0]-1].a["gpu.duration"], e.DoubleValue())
				assert.Equal(t, byte(1), e.TraceID()[0])
				assert.EqualValues(t, epoch+2_000_000, e.Timestamp())
				found[e.SpanID()[0]] = true
			}
		}
		assert.Equal(t, map[byte]bool{2: true, 3: true, 4: true, 5: true}, found, "the newest of each magnitude")
	}
}
