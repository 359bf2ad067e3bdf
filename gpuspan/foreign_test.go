// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// Events for foreign code can be tried on the simulated device.
func TestForeignEventsOfASimulatedStream(t *testing.T) {
	r := newRig(t)
	private := r.gpu.Stream(0) // whose handle the profiler does not get
	s := r.p.Stream(0, "engine", gpuspan.ForeignEvents())
	require.True(t, s.DeviceTimed())
	x := gpuspan.NewOperation("fill").Open(context.Background(), s)
	start, end := x.Events()
	require.Equal(t, backend.StatusOK, r.gpu.Record(&backend.Call{Args: [2]uintptr{start, private}}))
	r.busy(private, 3*time.Millisecond)
	require.Equal(t, backend.StatusOK, r.gpu.Record(&backend.Call{Args: [2]uintptr{end, private}}))
	x.Recorded(gpuspan.Work{Items: 1})
	r.gpu.Wait(private)
	r.flush()
	require.InDelta(t, 3e-3, attrs(r.named("fill")[0])["gpu.duration"].AsFloat64(), 0.1e-3)
}
