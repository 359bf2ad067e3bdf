// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// Events for foreign code can be tried on the simulated device.
func TestForeignEventsOfASimulatedStream(t *testing.T) {
	r := newRig(t)
	private := r.gpu.Stream(0) // whose handle the profiler does not get
	s := r.p.Stream(0, "engine", gpuspan.ForeignEvents())
	require.True(t, s.DeviceTimed())
	x := gpuspan.NewOperation("fill").Foreign(context.Background(), s)
	start, end := x.Events()
	require.Equal(t, backend.StatusOK, r.gpu.Record(&backend.Call{Args: [2]uintptr{start, private}}))
	r.busy(private, 3*time.Millisecond)
	require.Equal(t, backend.StatusOK, r.gpu.Record(&backend.Call{Args: [2]uintptr{end, private}}))
	x.Recorded(gpuspan.Work{Items: 1})
	r.gpu.Wait(private)
	r.flush()
	require.InDelta(t, 3e-3, attrs(r.named("fill")[0])["gpu.duration"].AsFloat64(), 0.1e-3)
}

// A mistake of the foreign code must not look like a broken device.
func TestForeignEventsThatAreSwappedOrMissing(t *testing.T) {
	for name, record := range map[string]func(start, end uintptr) []uintptr{
		"swapped":     func(start, end uintptr) []uintptr { return []uintptr{end, start} },
		"no start":    func(_, end uintptr) []uintptr { return []uintptr{end} },
		"no end":      func(start, _ uintptr) []uintptr { return []uintptr{start} },
		"not at all":  func(_, _ uintptr) []uintptr { return nil },
		"as expected": func(start, end uintptr) []uintptr { return []uintptr{start, end} },
	} {
		r := newRig(t)
		private := r.gpu.Stream(0)
		s := r.p.Stream(0, "engine", gpuspan.ForeignEvents())
		x := gpuspan.NewOperation("fill").Foreign(context.Background(), s)
		for _, e := range record(x.Events()) {
			require.Equal(t, backend.StatusOK, r.gpu.Record(&backend.Call{Args: [2]uintptr{e, private}}))
			r.busy(private, 3*time.Millisecond)
		}
		x.Recorded(gpuspan.Work{Items: 1})
		r.gpu.Wait(private)
		r.flush()
		span := r.named("fill")[0]
		status := attrs(span)["gpu.timing.status"].AsString()
		if name == "as expected" {
			require.Equal(t, "ok", status, name)
			continue
		}
		require.Equal(t, "device_error", status, name)
		require.Equal(t, codes.Error, span.Status().Code, name)
		require.Contains(t, span.Status().Description, "foreign code swapped the events of the section, or did not record them", name)
		require.True(t, s.DeviceTimed(), "%s: the next section may be right", name)
	}
}
