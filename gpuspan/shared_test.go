// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// A backend belongs to one profiler, which closes it.
func TestASecondProfilerOfABackendIsAnError(t *testing.T) {
	gpu := simgpu.New(nil)
	first, err := gpuspan.New(gpu)
	require.NoError(t, err)
	second, err := gpuspan.New(gpu)
	require.ErrorContains(t, err, "the backend belongs to another profiler (open one for each, or share the profiler)")
	require.Equal(t, "host", second.Source())
	require.NoError(t, second.Shutdown(context.Background()))

	s := first.Stream(gpu.Stream(0), "main")
	require.True(t, s.DeviceTimed(), "the second one has not closed the backend")
	require.NoError(t, first.Shutdown(context.Background()))

	other, err := gpuspan.New(simgpu.New(nil))
	require.NoError(t, err)
	require.NoError(t, other.Shutdown(context.Background()))
}
