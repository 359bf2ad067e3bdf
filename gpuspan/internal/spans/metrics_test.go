// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans_test

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spans"
)

// A MeterProvider outlives many profilers. After a shutdown it keeps the last values for a few
// collections, but not the profiler.
func TestAMeterProviderDoesNotKeepProfilersThatAreShutDown(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	collect := func() (n int64) {
		var data metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(context.Background(), &data))
		for _, scope := range data.ScopeMetrics {
			for _, m := range scope.Metrics {
				if m.Name == "gpu.operation.count" {
					n += m.Data.(metricdata.Sum[int64]).DataPoints[0].Value
				}
			}
		}
		return n
	}
	run := func() (weak.Pointer[engine.Profiler], *spans.Farewell) {
		p, err := engine.New(enginetest.NewBackend(), enginetest.WithMeterProvider(provider))
		require.NoError(t, err)
		enginetest.Op.Start(context.Background(), p.Stream(3, "main")).End()
		require.NoError(t, p.Shutdown(context.Background()))
		return weak.Make(p), p.Metrics.Callback
	}
	p, callback := run()
	for range 100 {
		if p.Value() == nil {
			break
		}
		runtime.GC()
		time.Sleep(time.Millisecond) // let finished goroutines exit
	}
	require.Nil(t, p.Value(), "nothing holds the profiler")
	for range spans.LastCollections {
		require.EqualValues(t, 1, collect(), "its figures are still told")
	}
	require.EqualValues(t, spans.LastCollections, (*callback.Told()).Load())
	for collect() != 0 { // the callback is unregistered concurrently with the collection
		time.Sleep(time.Millisecond)
	}
}
