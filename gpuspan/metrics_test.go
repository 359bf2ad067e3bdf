// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/require"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// collect reads all metrics and checks each against the registry.
func collect(t *testing.T, reader sdkmetric.Reader) map[string]metricdata.Metrics {
	t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &rm))
	out := map[string]metricdata.Metrics{}
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			reg, ok := semconv.LookupMetric(m.Name)
			require.True(t, ok, m.Name)
			require.Equal(t, reg.Unit, m.Unit, m.Name)
			for _, set := range pointAttributes(m) {
				for _, kv := range set.ToSlice() {
					require.Contains(t, reg.Attributes, string(kv.Key), m.Name)
				}
			}
			out[m.Name] = m
		}
	}
	return out
}

func pointAttributes(m metricdata.Metrics) (sets []attribute.Set) {
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Sum[float64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	}
	return sets
}

func ints(m metricdata.Metrics) map[string]int64 {
	out := map[string]int64{}
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		key := ""
		for _, k := range []string{"gpu.operation.name", "gpu.copy.direction", "gpu.timing.status", "gpuspan.drop.reason"} {
			if v, ok := p.Attributes.Value(semconvKey(k)); ok {
				key += v.AsString() + " "
			}
		}
		out[key] += p.Value
	}
	return out
}

func metricRig(t *testing.T, opts ...gpuspan.Option) (*rig, sdkmetric.Reader) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithExemplarFilter(exemplar.TraceBasedFilter))
	t.Cleanup(func() { _ = mp.Shutdown(context.Background()) })
	return newRig(t, append(opts, gpuspan.WithMeterProvider(mp))...), reader
}

func TestMetricsCountEverySectionAndTimeTheTimedOnes(t *testing.T) {
	r, reader := metricRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("op", gpuspan.Category("c"), gpuspan.ItemType("token"))
	cp := gpuspan.NewOperation("cp", gpuspan.Copy(gpuspan.DeviceToHost, gpuspan.Pinned))
	unsampled := trace.ContextWithSpanContext(context.Background(),
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
	w := gpuspan.Work{Read: 10, Written: 5, Items: 2, FLOPs: 100, Precision: gpuspan.FP8}
	for range 3 {
		op.Start(unsampled, s).EndWith(w)
	}
	for range 2 {
		x := op.Start(context.Background(), s)
		r.busy(h, 3*time.Millisecond)
		x.Add(gpuspan.Work{Items: 1})
		x.AddCopied(gpuspan.HostToDevice, 7)
		x.EndWith(w)
	}
	cp.Start(context.Background(), s).EndWith(gpuspan.Work{Bytes: 1000})
	r.clock.Advance(20 * time.Millisecond)
	r.flush()
	m := collect(t, reader)
	require.Equal(t, map[string]int64{"op ": 5, "cp ": 1}, ints(m["gpu.operation.count"]))
	require.Equal(t, map[string]int64{"op ": 12}, ints(m["gpu.operation.items"]))
	require.Equal(t, map[string]int64{"op ": 75, "op host_to_device ": 14, "cp device_to_host ": 1000},
		ints(m["gpu.operation.io"]))
	flops := m["gpu.operation.flops"].Data.(metricdata.Sum[float64]).DataPoints
	require.Len(t, flops, 1)
	require.Equal(t, 500.0, flops[0].Value)
	require.Equal(t, map[string]int64{"ok ": 3}, ints(m["gpuspan.sections"]))
	var hist metricdata.HistogramDataPoint[float64]
	for _, p := range m["gpu.operation.duration"].Data.(metricdata.Histogram[float64]).DataPoints {
		if v, _ := p.Attributes.Value("gpu.operation.name"); v.AsString() == "op" {
			hist = p
		}
	}
	require.EqualValues(t, 2, hist.Count)
	require.InDelta(t, 6e-3, hist.Sum, 50e-6)
	id, _ := hist.Attributes.Value("hw.id")
	require.NotEmpty(t, id.AsString())
	require.NotEmpty(t, hist.Exemplars)
	ids := map[string]bool{}
	for _, s := range r.named("op") {
		id := s.SpanContext().SpanID()
		ids[string(id[:])] = true
	}
	require.True(t, ids[string(hist.Exemplars[0].SpanID)], "an exemplar names a span")
	scope := r.named("op")[0].InstrumentationScope()
	emitted, ok := scope.Attributes.Value("gpu.metrics.emitted")
	require.True(t, ok && emitted.AsBool())
}

func TestMetricsAllTimesUnsampledSectionsToo(t *testing.T) {
	r, reader := metricRig(t, set(func(s *settings.Settings) { s.Metrics = settings.MetricsAll }))
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	unsampled := trace.ContextWithSpanContext(context.Background(),
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
	for range 4 {
		op.Start(unsampled, s).End()
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	m := collect(t, reader)
	p := m["gpu.operation.duration"].Data.(metricdata.Histogram[float64]).DataPoints
	require.Len(t, p, 1)
	require.EqualValues(t, 4, p[0].Count)
	require.Empty(t, p[0].Exemplars)
	require.Empty(t, r.spans.Ended())
}

func TestMetricsOffLeavesTheMarkAndTheMetricsOut(t *testing.T) {
	r, reader := metricRig(t, set(func(s *settings.Settings) { s.Metrics = settings.MetricsOff }))
	s, _ := r.stream()
	gpuspan.NewOperation("op").Start(context.Background(), s).End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	m := collect(t, reader)
	for _, name := range []string{
		"gpu.operation.count", "gpu.operation.duration", "gpu.operation.items",
		"gpu.operation.io", "gpu.operation.flops",
	} {
		require.NotContains(t, m, name)
	}
	require.Contains(t, m, "gpuspan.sections")
	scope := r.named("op")[0].InstrumentationScope()
	require.False(t, scope.Attributes.HasValue("gpu.metrics.emitted"))
}

func TestWithoutAMeterProviderTheScopeIsNotMarked(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	gpuspan.NewOperation("op").Start(context.Background(), s).End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	scope := r.named("op")[0].InstrumentationScope()
	require.False(t, scope.Attributes.HasValue("gpu.metrics.emitted"),
		"or the Collector would make no metrics and nobody would")
}

func TestSelfMetrics(t *testing.T) {
	r, reader := metricRig(t, slots(4))
	s, h := r.stream()
	op := gpuspan.NewOperation("op")
	x := op.Start(context.Background(), s)
	r.busy(h, 50*time.Millisecond)
	x.End()
	x.Start(op)
	s.EndNamed("never", gpuspan.Work{})
	for range 4 {
		op.Start(context.Background(), s).End()
	}
	r.clock.Advance(10 * time.Millisecond)
	m := collect(t, reader)
	require.Equal(t, map[string]int64{"pool_full ": 1}, ints(m["gpuspan.dropped"]))
	require.Equal(t, map[string]int64{"": 4}, ints(m["gpuspan.pool.limit"]))
	require.Equal(t, map[string]int64{"": 4}, ints(m["gpuspan.pool.usage"]))
	misuses := map[string]int64{}
	for _, p := range m["gpuspan.misuses"].Data.(metricdata.Sum[int64]).DataPoints {
		kind, _ := p.Attributes.Value("gpuspan.misuse.kind")
		misuses[kind.AsString()] = p.Value
	}
	require.Equal(t, map[string]int64{"stale_parent": 1, "unmatched_end": 1}, misuses)
	require.Equal(t, map[string]int64{"": 0}, ints(m["gpuspan.clock.anomalies"]))
	age := m["gpuspan.pending.age"].Data.(metricdata.Gauge[float64]).DataPoints
	require.Len(t, age, 1)
	require.InDelta(t, 10e-3, age[0].Value, 1e-3)
	name, _ := age[0].Attributes.Value("gpu.operation.name")
	require.Equal(t, "op", name.AsString())
	r.clock.Advance(time.Second)
	r.flush()
	m = collect(t, reader)
	require.Equal(t, map[string]int64{"": 0}, ints(m["gpuspan.pool.usage"]))
	floor := m["gpuspan.floor.duration"].Data.(metricdata.Gauge[float64]).DataPoints
	require.InDelta(t, 600e-9, floor[0].Value, 1e-9, "the simulated device's gap between events")
	bound := m["gpuspan.timing.error"].Data.(metricdata.Gauge[float64]).DataPoints
	require.Positive(t, bound[0].Value)
	require.Contains(t, attrs(r.named("op")[0]), "gpu.floor.duration")
}

func TestHostTimesAreNoGPUDurations(t *testing.T) {
	r, reader := metricRig(t, syncMode(settings.SyncNone))
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	op.Start(context.Background(), s).End()
	op.Record(context.Background(), s, epoch, time.Millisecond, gpuspan.Work{}) // but what the caller measured is one
	r.flush()
	m := collect(t, reader)
	p := m["gpu.operation.duration"].Data.(metricdata.Histogram[float64]).DataPoints
	require.Len(t, p, 1)
	require.EqualValues(t, 1, p[0].Count)
	require.Equal(t, 1e-3, p[0].Sum)
	require.Equal(t, map[string]int64{"op ": 2}, ints(m["gpu.operation.count"]))
	f, _ := r.p.Stats(op)
	require.EqualValues(t, 2, f.Duration.Count, "reports take what there is")
}

func TestTheLastCollectionHasEverything(t *testing.T) {
	r, reader := metricRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	for range 5 {
		op.Start(context.Background(), s).EndWith(gpuspan.Work{Items: 2})
	}
	r.clock.Advance(time.Millisecond)
	require.NoError(t, r.p.Shutdown(context.Background())) // the usual order: profiler, then providers
	m := collect(t, reader)
	require.Equal(t, map[string]int64{"op ": 5}, ints(m["gpu.operation.count"]))
	require.Equal(t, map[string]int64{"op ": 10}, ints(m["gpu.operation.items"]))
	require.NotContains(t, m, "gpuspan.pool.usage", "nothing is in use any more")
}

func TestLaunchesOfGraphsAreATypeOfTheirOwn(t *testing.T) {
	r, reader := metricRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("decode", gpuspan.Category("c"))
	op.Launch(context.Background(), s, func() {})
	op.Launch(context.Background(), s, func() {})
	op.Start(context.Background(), s).End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	byType := map[string]int64{}
	for _, p := range collect(t, reader)["gpu.operation.count"].Data.(metricdata.Sum[int64]).DataPoints {
		v, _ := p.Attributes.Value("gpu.operation.type")
		byType[v.AsString()] += p.Value
	}
	require.Equal(t, map[string]int64{"graph": 2, "section": 1}, byType)
	for _, s := range r.named("decode") {
		require.Equal(t, "c", attrs(s)["gpu.operation.category"].AsString())
	}
}
