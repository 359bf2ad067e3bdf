// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package globals_test sets OpenTelemetry's global providers, which a process can do only once.
package globals_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

var again bool

// Programs set the global providers before or after they create their profiler, and after its first
// sections.
func TestLateGlobalProvidersAreUsed(t *testing.T) {
	if again { // with -count
		t.Skip("the first global providers of a process have been set")
	}
	again = true
	gpu := simgpu.New(nil)
	p, err := gpuspan.New(gpu)
	require.NoError(t, err)
	s := p.Stream(gpu.Stream(0), "main")
	gpuspan.NewOperation("warm up").Start(context.Background(), s).End()
	require.NoError(t, p.Flush(context.Background()))

	reader := sdkmetric.NewManualReader()
	spans := tracetest.NewSpanRecorder()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	gpuspan.NewOperation("op").Start(context.Background(), s).End()
	require.NoError(t, p.Shutdown(context.Background()))

	require.Len(t, spans.Ended(), 1)
	scope := spans.Ended()[0].InstrumentationScope()
	require.True(t, scope.Attributes.HasValue("gpu.metrics.emitted"))
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &data))
	var got []string
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			got = append(got, m.Name)
		}
	}
	require.Contains(t, got, "gpu.operation.count")
	require.Contains(t, got, "gpu.operation.duration")
}
