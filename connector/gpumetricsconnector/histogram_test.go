// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func TestDefaultBoundsAreOneAndThree(t *testing.T) {
	b := defaultBounds()
	assert.Equal(t, []time.Duration{time.Microsecond, 3 * time.Microsecond, 10 * time.Microsecond}, b[:3])
	assert.Equal(t, []time.Duration{10 * time.Second, 30 * time.Second}, b[len(b)-2:])
	assert.Len(t, b, 16)
}

// A sampled span may represent a fractional number of spans: deltas and buckets lose nothing.
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
	for range 2 { // each output has them, because scrapes are not synchronized with outputs
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
