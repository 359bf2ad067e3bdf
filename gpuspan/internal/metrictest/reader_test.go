// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package metrictest

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/require"
)

func TestReaderKeepsWhatWasRecorded(t *testing.T) {
	r := New()
	m := r.Meter("scope")
	count, err := m.Int64ObservableCounter("count", metric.WithUnit("{run}"))
	require.NoError(t, err)
	age, err := m.Float64ObservableGauge("age", metric.WithUnit("s"))
	require.NoError(t, err)
	time, err := m.Float64Histogram("time", metric.WithUnit("s"))
	require.NoError(t, err)
	require.Empty(t, r.Collect(), "nothing was recorded")

	a := metric.WithAttributes(attribute.String("op", "a"))
	runs := int64(0)
	entry, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		runs++
		o.ObserveInt64(count, runs, a)
		o.ObserveInt64(count, 7, metric.WithAttributes(attribute.String("op", "b")))
		o.ObserveFloat64(age, 0.5)
		return nil
	}, count, age)
	require.NoError(t, err)
	sampled := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	})
	time.Record(trace.ContextWithSpanContext(context.Background(), sampled), 2, a)
	time.Record(context.Background(), 3, a)

	r.Collect()
	got := r.Collect()
	require.Len(t, got["count"].Points, 2, "each collection begins anew")
	require.Equal(t, 2.0, got["count"].Points[0].Value)
	require.Equal(t, "{run}", got["count"].Unit)
	require.Equal(t, []Point{{Attributes: *attribute.EmptySet(), Value: 0.5}}, got["age"].Points)
	require.Equal(t, []Point{{
		Attributes: attribute.NewSet(attribute.String("op", "a")), Value: 5, Count: 2, Exemplar: sampled,
	}}, got["time"].Points)

	require.NoError(t, entry.Unregister())
	got = r.Collect()
	require.NotContains(t, got, "count")
	require.Contains(t, got, "time")
}
