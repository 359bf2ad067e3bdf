// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/semconv"
)

// The library's own module cannot import the checks of this one, so its metrics are validated here;
// the tests through the Collector validate its spans.
func TestMetricsOfTheLibraryAreRegistered(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	s := newServiceWithMeters(t, "", meters)
	s.request(t)
	s.train(t)
	require.NoError(t, s.profiler.Flush(t.Context()))
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	seen := map[string]bool{}
	for _, sm := range got.ScopeMetrics {
		require.Equal(t, semconv.SchemaURL, sm.Scope.SchemaURL)
		for _, m := range sm.Metrics {
			want, ok := semconv.LookupMetric(m.Name)
			require.True(t, ok, "%s is not in the registry", m.Name)
			require.Equal(t, want.Unit, m.Unit, m.Name)
			require.Equal(t, string(want.Instrument), instrument(m.Data), m.Name)
			seen[m.Name] = true
			for _, keys := range attributeKeys(m.Data) {
				for _, key := range keys {
					if strings.HasPrefix(key, "gpu") || strings.HasPrefix(key, "hw.") {
						require.Contains(t, want.Attributes, key, m.Name)
					}
				}
			}
		}
	}
	for _, name := range []string{
		"gpu.operation.duration", "gpu.operation.count", "gpu.operation.io", "gpu.operation.flops", "gpu.operation.items",
		"gpuspan.sections", "gpuspan.pool.usage", "gpuspan.pool.limit", "gpuspan.overhead.duration", "gpuspan.timing.error",
		"gpuspan.clock.drift", "gpuspan.pending.age", "gpuspan.floor.duration",
	} {
		require.True(t, seen[name], "%s is missing among %v", name, seen)
	}
	own := 0
	for _, span := range s.close(t) {
		if scope := span.InstrumentationScope; scope.Name == got.ScopeMetrics[0].Scope.Name {
			require.Equal(t, semconv.SchemaURL, scope.SchemaURL, span.Name)
			own++
		}
	}
	require.Positive(t, own)
	require.NoError(t, meters.Shutdown(t.Context()))
}

// A MeterProvider outlives its profilers. Counters must not decrease while the provider exists, but
// the provider must not keep the profiler.
func TestAMeterProviderReportsTheLastFiguresOfAProfiler(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	s := newServiceWithMeters(t, "", meters)
	s.request(t)
	spans := map[trace.SpanID]bool{}
	for _, span := range s.close(t) {
		spans[span.SpanContext.SpanID()] = true
	}
	counted := func() (runs int64, durations []metricdata.HistogramDataPoint[float64]) {
		var got metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &got))
		for _, sm := range got.ScopeMetrics {
			for _, m := range sm.Metrics {
				switch m.Name {
				case "gpu.operation.count":
					for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
						runs += p.Value
					}
				case "gpu.operation.duration":
					durations = m.Data.(metricdata.Histogram[float64]).DataPoints
				}
			}
		}
		return runs, durations
	}
	const sections = 1 + 2 + decodeCount + 1
	runs, durations := counted()
	require.EqualValues(t, sections, runs)
	require.Len(t, durations, 5, "one of each operation")
	for _, p := range durations {
		require.NotEmpty(t, p.Exemplars)
		for _, e := range p.Exemplars {
			require.True(t, spans[trace.SpanID(e.SpanID)], "an exemplar names a span")
		}
	}
	require.Eventually(t, func() bool {
		runs, _ := counted()
		return runs == 0
	}, time.Minute, time.Millisecond, "the callback is taken out, so that the profiler can go")
	require.NoError(t, meters.Shutdown(t.Context()))
}

func instrument(a metricdata.Aggregation) string {
	sum := func(monotonic bool) string {
		if monotonic {
			return "counter"
		}
		return "updowncounter"
	}
	switch x := a.(type) {
	case metricdata.Gauge[int64], metricdata.Gauge[float64]:
		return "gauge"
	case metricdata.Sum[int64]:
		return sum(x.IsMonotonic)
	case metricdata.Sum[float64]:
		return sum(x.IsMonotonic)
	case metricdata.Histogram[int64], metricdata.Histogram[float64], metricdata.ExponentialHistogram[float64]:
		return "histogram"
	}
	return "unknown"
}

// attributeKeys returns the attribute names of each point.
func attributeKeys(a metricdata.Aggregation) [][]string {
	var out [][]string
	add := func(s interface{ ToSlice() []attribute.KeyValue }) {
		var keys []string
		for _, kv := range s.ToSlice() {
			keys = append(keys, string(kv.Key))
		}
		out = append(out, keys)
	}
	switch x := a.(type) {
	case metricdata.Gauge[int64]:
		for _, p := range x.DataPoints {
			add(&p.Attributes)
		}
	case metricdata.Gauge[float64]:
		for _, p := range x.DataPoints {
			add(&p.Attributes)
		}
	case metricdata.Sum[int64]:
		for _, p := range x.DataPoints {
			add(&p.Attributes)
		}
	case metricdata.Sum[float64]:
		for _, p := range x.DataPoints {
			add(&p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range x.DataPoints {
			add(&p.Attributes)
		}
	}
	return out
}
