// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
)

type attrs map[string]any

// epoch is the start of the tests' spans; the tests' clock is one second ahead of it.
const (
	epoch = uint64(1_700_000_000_000_000_000)
	clock = int64(epoch) + int64(time.Second)
)

// span is one span of a test: times in µs after epoch.
type span struct {
	name       string
	start, end uint64
	a          attrs
	id, parent byte
	state      string
}

func batch(t testing.TB, resource attrs, spans ...span) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	require.NoError(t, rs.Resource().Attributes().FromRaw(resource))
	ss := rs.ScopeSpans().AppendEmpty()
	for _, x := range spans {
		s := ss.Spans().AppendEmpty()
		s.SetName(x.name)
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{x.id})
		if x.parent > 0 {
			s.SetParentSpanID(pcommon.SpanID{x.parent})
		}
		s.SetStartTimestamp(pcommon.Timestamp(epoch + x.start*1000))
		s.SetEndTimestamp(pcommon.Timestamp(epoch + x.end*1000))
		s.TraceState().FromRaw(x.state)
		require.NoError(t, s.Attributes().FromRaw(x.a))
	}
	return td
}

// testConfig is the default configuration without detection of repeated spans, because tests send
// the same spans repeatedly.
func testConfig() *Config {
	cfg := createDefaultConfig().(*Config)
	cfg.MaxSpans = 0
	cfg.Stragglers.Get().everySteps = 1e-9 // in the first step in which a rank is late
	return cfg
}

func newTest(t testing.TB, edit func(*Config)) *aggregator {
	t.Helper()
	cfg := testConfig()
	if edit != nil {
		edit(cfg)
	}
	require.NoError(t, confmap.Validate(cfg))
	return newAggregator(cfg, "me")
}

// final returns the last point of a list, because the first point of a series is 0.
func final[P interface {
	At(int) E
	Len() int
}, E any](points P) E {
	return points.At(points.Len() - 1)
}

func noScope(pcommon.InstrumentationScope) {}

func output(t testing.TB, a *aggregator, now int64) pmetric.Metrics {
	t.Helper()
	md := a.output(now, false)
	a.taken = now
	require.NoError(t, conformance.Metrics(md))
	return md
}

// values returns the points of all metrics as "name{attributes}" to value; the value of a histogram
// is its count and sum. It checks that every point has the instance ID, and omits it.
func values(t testing.TB, md pmetric.Metrics) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			put := func(attrs pcommon.Map, v any) {
				id, ok := attrs.Get("collector.instance.id")
				require.True(t, ok && id.Str() == "me")
				raw := attrs.AsRaw()
				delete(raw, "collector.instance.id")
				key := m.Name() + fmt.Sprint(raw)[3:]
				if before, twice := out[key]; twice { // a series starts with a point of 0
					require.Contains(t, []any{int64(0), 0.0, "0 in 0"}, before, key)
				}
				out[key] = v
			}
			switch m.Type() {
			case pmetric.MetricTypeGauge:
				for _, p := range m.Gauge().DataPoints().All() {
					put(p.Attributes(), p.DoubleValue())
				}
			case pmetric.MetricTypeSum:
				for _, p := range m.Sum().DataPoints().All() {
					if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
						put(p.Attributes(), p.IntValue())
					} else {
						put(p.Attributes(), p.DoubleValue())
					}
				}
			case pmetric.MetricTypeHistogram:
				for _, p := range m.Histogram().DataPoints().All() {
					put(p.Attributes(), fmt.Sprintf("%d in %.9g", p.Count(), p.Sum()))
				}
			case pmetric.MetricTypeExponentialHistogram:
				for _, p := range m.ExponentialHistogram().DataPoints().All() {
					put(p.Attributes(), fmt.Sprintf("%d in %.9g", p.Count(), p.Sum()))
				}
			}
		}
	}
	return out
}

var prefill = attrs{
	"gpu.operation.type": "section", "gpu.operation.category": "prefill", "hw.id": "GPU-a", "gpu.timing.status": "ok",
	"gpu.duration": 0.002,
	"gpu.io.size":  1000, "gpu.flop.count": 5e9, "gpu.flop.precision": "bf16", "gpu.operation.items": 128,
	"gpu.operation.item.type": "token", "gpu.energy": 0.5,
}

func without(a attrs, keys ...string) attrs {
	out := maps.Clone(a)
	for _, k := range keys {
		delete(out, k)
	}
	return out
}

func with(a attrs, more attrs) attrs {
	out := maps.Clone(a)
	maps.Copy(out, more)
	return out
}

var prefillPoints = map[string]any{
	"gpu.operation.count[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok]":                int64(2),
	"gpu.operation.duration[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok hw.id:GPU-a]": "2 in 0.004",
	"gpu.operation.io[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section]":                                        int64(2000),
	"gpu.operation.flops[gpu.flop.precision:bf16 gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section]":             1e10,
	"gpu.operation.items[gpu.operation.category:prefill gpu.operation.item.type:token gpu.operation.name:p gpu.operation.type:section]":       int64(256),
	"gpu.operation.energy[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section hw.id:GPU-a]":                        1.0,
	"gpu.operation.item.energy[gpu.operation.category:prefill gpu.operation.item.type:token gpu.operation.name:p gpu.operation.type:section]": 0.00390625,
}
