// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"math"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// FuzzTake takes any batch that decodes: nothing panics, every point is a finite number that is not negative, points end after they
// start, buckets sum to counts, and what is written a second time has not become less.
func FuzzTake(f *testing.F) {
	var m ptrace.ProtoMarshaler
	for _, td := range []ptrace.Traces{
		batch(f, attrs{"service.name": "s"}, span{"p", 0, 2000, prefill, 1, 0, "ot=th:c"}, span{"q", 1000, 1500, prefill, 2, 1, ""}),
		batch(f, attrs{"gpu.job.id": "j", "gpu.job.rank": 1}, span{"step", 0, 100_000, step, 1, 0, ""}),
		batch(f, attrs{"gpu.job.id": "j", "gpu.job.rank": 1}, span{"a", 10, 20, with(prefill, attrs{"gpu.stream.id": 1, "gpu.self_energy": 0.1}), 4, 3, ""},
			span{"host", 5, 50, nil, 3, 2, ""}, span{"b", 5, 50, with(prefill, attrs{"gpu.stream.id": 1}), 2, 1, ""}, span{"step", 0, 100_000, step, 1, 0, ""}),
		batch(f, nil, span{"k", 0, 5, attrs{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti", "gpu.start.delay": 1e-6}, 1, 0, ""},
			span{"k", 90, 95, attrs{"gpu.operation.type": "copy", "gpu.timing.source": "cupti", "gpu.start.delay": math.NaN()}, 2, 0, ""}),
	} {
		b, err := m.MarshalTraces(td)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
		f.Add(b, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, delta bool) {
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		if err != nil {
			t.Skip()
		}
		a := newTest(t, func(c *Config) {
			c.CardinalityLimit, c.MaxResources = 5, 3
			if delta {
				c.Temporality = TemporalityDelta
			}
			c.Activity.Get().MaxActivities = 10
		})
		for range 2 {
			a.take(td, clock)
			check(t, a.output(noScope, clock, false))
		}
		check(t, a.output(noScope, clock, true))
	})
}

func check(t *testing.T, md pmetric.Metrics) {
	number := func(name string, v float64) {
		if !(v >= 0 && v <= math.MaxFloat64) {
			t.Errorf("%s is %v", name, v)
		}
	}
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			switch m.Type() {
			case pmetric.MetricTypeGauge:
				for _, p := range m.Gauge().DataPoints().All() {
					number(m.Name(), p.DoubleValue())
				}
			case pmetric.MetricTypeSum:
				for _, p := range m.Sum().DataPoints().All() {
					number(m.Name(), p.DoubleValue())
					number(m.Name(), float64(p.IntValue()))
					if p.StartTimestamp() > p.Timestamp() {
						t.Errorf("%s ends before its start", m.Name())
					}
				}
			case pmetric.MetricTypeHistogram:
				for _, p := range m.Histogram().DataPoints().All() {
					number(m.Name(), p.Sum())
					var n uint64
					for _, c := range p.BucketCounts().All() {
						n += c
					}
					if n != p.Count() {
						t.Errorf("%s counts %d, its buckets %d", m.Name(), p.Count(), n)
					}
				}
			}
		}
	}
}
