// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/otelgpu/otelgpu/gpuspan/internal/metrictest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/require"
)

// A MeterProvider outlives many profilers. It keeps the last figures of one that is shut down, for a few collections,
// and not the profiler.
func TestAMeterProviderDoesNotKeepProfilersThatAreShutDown(t *testing.T) {
	reader := metrictest.New()
	collect := func() (n float64) {
		for _, p := range reader.Collect()["gpu.operation.count"].Points {
			n += p.Value
		}
		return n
	}
	run := func() (weak.Pointer[Profiler], *farewell) {
		p, err := New(newScripted(), WithMeterProvider(reader))
		require.NoError(t, err)
		testOp.Start(context.Background(), p.Stream(3, "main")).End()
		require.NoError(t, p.Shutdown(context.Background()))
		return weak.Make(p), p.metrics.callback
	}
	p, callback := run()
	for range 100 {
		if p.Value() == nil {
			break
		}
		runtime.GC()
		time.Sleep(time.Millisecond) // goroutines that have just ended
	}
	require.Nil(t, p.Value(), "nothing holds the profiler")
	for range lastCollections {
		require.EqualValues(t, 1, collect(), "its figures are still told")
	}
	require.EqualValues(t, lastCollections, callback.told.Load())
	for collect() != 0 { // the callback is taken out beside the collection
		time.Sleep(time.Millisecond)
	}
}
