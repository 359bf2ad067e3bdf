// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"math"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelgpu/otelgpu/semconv"
)

func sumByOutcome(name string, m metricdata.Metrics) map[string]int64 {
	out := map[string]int64{}
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		v, _ := p.Attributes.Value("outcome")
		out[name+" "+v.AsString()] += p.Value
	}
	return out
}

// ours are the attributes that the processor writes.
var ours = func() map[string]bool {
	out := map[string]bool{}
	for _, a := range semconv.Attributes() {
		for _, w := range a.Writers {
			if w == "gpu_derive" {
				out[a.Name] = true
			}
		}
	}
	return out
}()

// FuzzProcess processes any batch that decodes: nothing panics, no span or attribute is lost, no
// derived number is negative or not finite, and a second pass changes nothing.
func FuzzProcess(f *testing.F) {
	var m ptrace.ProtoMarshaler
	for _, a := range []attrs{
		with(h100, attrs{
			"gpu.io.size": 3_350_000_000, "gpu.flop.count": 16.75e9, "gpu.flop.precision": "bf16",
			"gpu.end.delay": -1.0,
		}),
		with(h100, attrs{
			"gpu.operation.type": "collective", "gpu.collective.name": "all_reduce",
			"gpu.collective.group.size": 8, "gpu.io.size": 9,
		}),
		{
			"gpu.operation.type": "step", "gpu.step.items": 5, "gpu.step.model.flop.count": math.Inf(1),
			"hw.model": "NVIDIA H200", "gpu.flop.precision": "fp4",
		},
		{"cuda.memcpy.kind": 1, "size": -3},
		{"cat": "kernel", "bytes": "x"},
		{"gen_ai.latency.time_in_model_inference": math.NaN()},
	} {
		td, _ := oneSpan(f, a)
		b, err := m.MarshalTraces(td)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	tree := ptrace.NewTraces()
	for _, n := range stepTree {
		put(f, tree, n)
	}
	b, err := m.MarshalTraces(tree)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	edit := func(c *Config) {
		c.Presets = presetNames()
		c.Model, c.Precision = "NVIDIA H200", "bf16"
		assembling(func(a *AssembleConfig) { a.MaxSums = 4; a.MaxIntervals = 3 })(c)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		if err != nil {
			t.Skip("not an OTLP request")
		}
		before := ptrace.NewTraces()
		td.CopyTo(before)
		process(t, newTestDeriver(t, edit), td)
		if td.SpanCount() != before.SpanCount() {
			t.Fatalf("%d spans became %d", before.SpanCount(), td.SpanCount())
		}
		each(before, td, func(was, is ptrace.Span) {
			for k := range was.Attributes().All() {
				if _, ok := is.Attributes().Get(k); !ok {
					t.Errorf("%s is lost", k)
				}
			}
			for k, v := range is.Attributes().All() {
				if _, had := was.Attributes().Get(k); !had && ours[k] && v.Type() == pcommon.ValueTypeDouble &&
					!(v.Double() >= 0 && v.Double() <= math.MaxFloat64) {
					t.Errorf("%s is %v", k, v.Double())
				}
			}
		})
		once := ptrace.NewTraces()
		td.CopyTo(once)
		process(t, newTestDeriver(t, edit), td)
		each(once, td, func(was, is ptrace.Span) {
			if was.Attributes().Len() != is.Attributes().Len() {
				t.Errorf("a second pass made %v of %v", is.Attributes().AsRaw(), was.Attributes().AsRaw())
			}
		})
	})
}

func each(a, b ptrace.Traces, f func(was, is ptrace.Span)) {
	for i, rs := range a.ResourceSpans().All() {
		for j, ss := range rs.ScopeSpans().All() {
			for k, s := range ss.Spans().All() {
				f(s, b.ResourceSpans().At(i).ScopeSpans().At(j).Spans().At(k))
			}
		}
	}
}
