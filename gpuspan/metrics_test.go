// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// point is the value of an attribute set; for a histogram, its sum, its count and the spans of its
// exemplars.
type point struct {
	attributes attribute.Set
	value      float64
	count      uint64
	exemplars  []trace.SpanContext
}

// collect returns the points of all metrics by metric name, and validates each against the
// registry.
func collect(t *testing.T, reader sdkmetric.Reader) map[string][]point {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &data))
	out := map[string][]point{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			reg, ok := semconv.LookupMetric(m.Name)
			require.True(t, ok, m.Name)
			require.Equal(t, reg.Unit, m.Unit, m.Name)
			out[m.Name] = points(t, m.Data)
			for _, p := range out[m.Name] {
				for _, kv := range p.attributes.ToSlice() {
					require.Contains(t, reg.Attributes, string(kv.Key), m.Name)
				}
			}
		}
	}
	return out
}

func points(t *testing.T, data metricdata.Aggregation) (out []point) {
	t.Helper()
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			out = append(out, point{attributes: p.Attributes, value: float64(p.Value)})
		}
	case metricdata.Sum[float64]:
		for _, p := range d.DataPoints {
			out = append(out, point{attributes: p.Attributes, value: p.Value})
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			out = append(out, point{attributes: p.Attributes, value: p.Value})
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			q := point{attributes: p.Attributes, value: p.Sum, count: p.Count}
			for _, e := range p.Exemplars {
				q.exemplars = append(q.exemplars, trace.NewSpanContext(trace.SpanContextConfig{
					TraceID: trace.TraceID(e.TraceID), SpanID: trace.SpanID(e.SpanID), TraceFlags: trace.FlagsSampled,
				}))
			}
			out = append(out, q)
		}
	default:
		require.Fail(t, "unknown aggregation", "%T", data)
	}
	return out
}

func ints(points []point) map[string]int64 {
	out := map[string]int64{}
	for _, p := range points {
		key := ""
		for _, k := range []string{"gpu.operation.name", "gpu.copy.direction", "gpu.timing.status", "gpuspan.drop.reason"} {
			if v, ok := p.attributes.Value(semconvKey(k)); ok {
				key += v.AsString() + " "
			}
		}
		out[key] += int64(p.value)
	}
	return out
}

func metricRig(t *testing.T, opts ...gpuspan.Option) (*rig, sdkmetric.Reader) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	return newRig(t, append(opts, gpuspan.WithMeterProvider(provider))...), reader
}

func TestMetricsCountEverySectionAndTimeTheTimedOnes(t *testing.T) {
	r, reader := metricRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("op", gpuspan.Category("c"), gpuspan.ItemType("token"))
	cp := gpuspan.NewOperation("cp", gpuspan.Copy(gpuspan.DeviceToHost, gpuspan.Pinned))
	w := gpuspan.Work{Read: 10, Written: 5, Items: 2, FLOPs: 100, Precision: gpuspan.FP8}
	for range 3 {
		op.Start(unsampledTrace(), s).EndWith(w)
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
	flops := m["gpu.operation.flops"]
	require.Len(t, flops, 1)
	require.Equal(t, 500.0, flops[0].value)
	require.Equal(t, map[string]int64{"ok ": 3}, ints(m["gpuspan.sections"]))
	var hist point
	for _, p := range m["gpu.operation.duration"] {
		if v, _ := p.attributes.Value("gpu.operation.name"); v.AsString() == "op" {
			hist = p
		}
	}
	require.EqualValues(t, 2, hist.count)
	require.InDelta(t, 6e-3, hist.value, 50e-6)
	id, _ := hist.attributes.Value("hw.id")
	require.NotEmpty(t, id.AsString())
	require.NotEmpty(t, hist.exemplars)
	timed := []trace.SpanContext{r.named("op")[0].SpanContext(), r.named("op")[1].SpanContext()}
	require.Subset(t, timed, hist.exemplars)
	scope := r.named("op")[0].InstrumentationScope()
	emitted, ok := scope.Attributes.Value("gpu.metrics.emitted")
	require.True(t, ok && emitted.AsBool())
}

func TestMetricsAllTimesUnsampledSectionsToo(t *testing.T) {
	r, reader := metricRig(t, set(func(s *settings.Settings) { s.Metrics = settings.MetricsAll }))
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	for range 4 {
		op.Start(unsampledTrace(), s).End()
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	m := collect(t, reader)
	p := m["gpu.operation.duration"]
	require.Len(t, p, 1)
	require.EqualValues(t, 4, p[0].count)
	for _, e := range p[0].exemplars {
		require.False(t, e.IsValid())
	}
	require.Empty(t, r.spans.Ended())
}

func TestMetricsOffOmitsTheMarkAndTheMetrics(t *testing.T) {
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
	for _, p := range m["gpuspan.misuses"] {
		kind, _ := p.attributes.Value("gpuspan.misuse.kind")
		misuses[kind.AsString()] = int64(p.value)
	}
	require.Equal(t, map[string]int64{"stale_parent": 1, "unmatched_end": 1}, misuses)
	require.Equal(t, map[string]int64{"": 0}, ints(m["gpuspan.clock.anomalies"]))
	age := m["gpuspan.pending.age"]
	require.Len(t, age, 1)
	require.InDelta(t, 10e-3, age[0].value, 1e-3)
	name, _ := age[0].attributes.Value("gpu.operation.name")
	require.Equal(t, "op", name.AsString())
	r.clock.Advance(time.Second)
	r.flush()
	m = collect(t, reader)
	require.Equal(t, map[string]int64{"": 0}, ints(m["gpuspan.pool.usage"]))
	floor := m["gpuspan.floor.duration"]
	require.InDelta(t, 600e-9, floor[0].value, 1e-9, "the simulated device's gap between events")
	bound := m["gpuspan.timing.error"]
	require.Positive(t, bound[0].value)
	require.Contains(t, attrs(r.named("op")[0]), "gpu.floor.duration")
}

func TestHostTimesAreNoGPUDurations(t *testing.T) {
	r, reader := metricRig(t, syncMode(settings.SyncNone))
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	op.Start(context.Background(), s).End()
	op.RecordMeasured(context.Background(), s, epoch, time.Millisecond, gpuspan.Work{}) // but a duration that the caller measured is
	r.flush()
	m := collect(t, reader)
	p := m["gpu.operation.duration"]
	require.Len(t, p, 1)
	require.EqualValues(t, 1, p[0].count)
	require.Equal(t, 1e-3, p[0].value)
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
	for _, p := range collect(t, reader)["gpu.operation.count"] {
		v, _ := p.attributes.Value("gpu.operation.type")
		byType[v.AsString()] += int64(p.value)
	}
	require.Equal(t, map[string]int64{"graph": 2, "section": 1}, byType)
	for _, s := range r.named("decode") {
		require.Equal(t, "c", attrs(s)["gpu.operation.category"].AsString())
	}
}

func TestCountersBeginAgainBeyondTheLargestNumber(t *testing.T) {
	r, reader := metricRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	const most = 1 << 52
	for range 1<<11 + 1 {
		op.Start(unsampledTrace(), s).EndWith(gpuspan.Work{Read: most, Items: most})
	}
	got := collect(t, reader)
	require.Equal(t, map[string]int64{"op ": most}, ints(got[semconv.GPUOperationIOName]))
	require.Equal(t, map[string]int64{"op ": most}, ints(got[semconv.GPUOperationItemsName]))
}
