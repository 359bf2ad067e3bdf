// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/semconv"
)

// BenchmarkPollingShare measures the CPU time of the polling thread on the stub (queries, elapsed
// times, anchors, spans) as a share of one core, with 2,000 sections of 300 µs a second on 4
// streams. b.N is the number of sections: use -benchtime 20000x for ten seconds.
func BenchmarkPollingShare(b *testing.B) {
	stub := ctest.CUDA(b)
	back, err := cuda.Open(cuda.WithLibrary(stub.Path))
	require.NoError(b, err)
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
	defer func() { _ = tp.Shutdown(context.Background()) }()
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	prof, err := gpuspan.New(back, gpuspan.WithTracerProvider(tp), gpuspan.WithMeterProvider(provider))
	require.NoError(b, err)
	defer func() { _ = prof.Shutdown(context.Background()) }()
	var streams []*gpuspan.Stream
	var handles []backend.StreamHandle
	for range 4 {
		handles = append(handles, appStream(b, back, 0))
		streams = append(streams, prof.Stream(handles[len(handles)-1], "load"))
	}
	op := gpuspan.NewOperation("op")
	ctx := context.Background()
	begin := time.Now()
	for i := range b.N {
		x := op.Start(ctx, streams[i%4])
		stub.Work(handles[i%4], 300*time.Microsecond)
		x.EndWith(gpuspan.Work{Bytes: 1 << 20})
		time.Sleep(time.Until(begin.Add(time.Duration(i+1) * time.Second / 2000)))
	}
	wall := time.Since(begin)
	time.Sleep(1100 * time.Millisecond) // the thread reads its CPU time once a second
	var data metricdata.ResourceMetrics
	require.NoError(b, reader.Collect(ctx, &data))
	for _, m := range data.ScopeMetrics[0].Metrics {
		if m.Name == semconv.GpuspanOverheadDurationName {
			b.ReportMetric(100*m.Data.(metricdata.Sum[float64]).DataPoints[0].Value/wall.Seconds(), "%core")
		}
	}
	b.ReportMetric(float64(b.N)/wall.Seconds(), "sections/s")
}
