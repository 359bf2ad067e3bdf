// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"math"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// FuzzTake adds any batch that decodes: nothing panics, every point is finite and not negative,
// points end after they start, buckets add up to counts, repeated values have not decreased, and
// the finding of a late rank is a complete span.
func FuzzTake(f *testing.F) {
	var m ptrace.ProtoMarshaler
	job := ptrace.NewTraces()
	for rank, ms := range []uint64{100, 101, 150} {
		td := batch(f, rankOf(rank, 3), span{"gemm", 0, 1000 * ms, prefill, 2, 1, ""},
			span{"step", 0, 1000 * ms, with(step, attrs{"gpu.step.duration": float64(ms) / 1000}), 1, 0, "ot=th:8"})
		td.ResourceSpans().MoveAndAppendTo(job.ResourceSpans())
	}
	for _, td := range []ptrace.Traces{
		job,
		batch(f, attrs{"service.name": "s"}, span{"p", 0, 2000, prefill, 1, 0, "ot=th:c"},
			span{"q", 1000, 1500, prefill, 2, 1, ""}),
		batch(f, attrs{"gpu.job.id": "j", "gpu.job.rank": 1}, span{"step", 0, 100_000, step, 1, 0, ""}),
		batch(f, attrs{"gpu.job.id": "j", "gpu.job.rank": 1}, span{
			"a", 10, 20,
			with(prefill, attrs{"gpu.stream.id": 1, "gpu.self_energy": 0.1}), 4, 3, "",
		},
			span{"host", 5, 50, nil, 3, 2, ""}, span{"b", 5, 50, with(prefill, attrs{"gpu.stream.id": 1}), 2, 1, ""},
			span{"step", 0, 100_000, step, 1, 0, ""}),
		batch(f, nil, span{"huge", 0, 10, attrs{
			"gpu.operation.type": "section", "gpu.duration": 1.7e308,
			"gpu.flop.count": 1.7e308, "gpu.energy": 1.7e308,
		}, 1, 0, ""},
			span{"step", 0, 10, attrs{
				"gpu.operation.type": "step", "gpu.step.duration": 1.7e308,
				"gpu.step.phase.duration.a": 1.7e308,
			}, 2, 0, ""}),
		batch(f, nil, span{"k", 0, 5, attrs{
			"gpu.operation.type": "kernel", "gpu.timing.source": "cupti",
			"gpu.start.delay": 1e-6,
		}, 1, 0, ""},
			span{
				"k", 90, 95,
				attrs{"gpu.operation.type": "copy", "gpu.timing.source": "cupti", "gpu.start.delay": math.NaN()},
				2, 0, "",
			}),
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
			t.Skip("not an OTLP request")
		}
		a := newTest(t, func(c *Config) {
			c.CardinalityLimit, c.MaxResources = 5, 3
			if delta {
				c.Temporality = TemporalityDelta
			}
			c.Activity.Get().MaxActivities = 10
			c.Stragglers.Get().MinRanks = 2
		})
		a.jobs.spans = true
		for range 2 {
			a.take(td, clock)
			check(t, a.output(clock, false))
			checkFindings(t, a)
		}
		check(t, a.output(clock, true))
		checkFindings(t, a)
	})
}

func checkFindings(t *testing.T, a *aggregator) {
	for _, rs := range findingSpans(a.findings(), noScope).ResourceSpans().All() {
		for _, s := range rs.ScopeSpans().At(0).Spans().All() {
			if s.TraceID().IsEmpty() || s.SpanID().IsEmpty() || s.ParentSpanID().IsEmpty() ||
				s.EndTimestamp() < s.StartTimestamp() {
				t.Errorf("%s has no trace ID, or ends before its start", s.Name())
			}
			for k, v := range s.Attributes().All() {
				if x := v.Double(); v.Type() == pcommon.ValueTypeDouble && !(x >= 0 && x <= math.MaxFloat64) {
					t.Errorf("%s is %v", k, x)
				}
				if v.Type() == pcommon.ValueTypeStr && v.Str() == "" {
					t.Errorf("%s is empty", k)
				}
			}
		}
	}
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
