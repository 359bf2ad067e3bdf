// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package demo

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/semconv"
)

// Tests the code path of a machine with a GPU, on gpuspan's driver stub.
func TestTheDemoRunsOnACUDADriver(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc: the stub of the driver cannot be built")
	}
	sources, err := filepath.Abs("../../../../gpuspan/internal/ctest/csrc")
	require.NoError(t, err)
	library := filepath.Join(t.TempDir(), "libcuda.so.1")
	out, err := exec.Command(gcc, "-shared", "-fPIC", "-O1", "-o", library, filepath.Join(sources, "cuda.c"), "-lpthread",
		"-lm").CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Setenv("GPUSPAN_CUDA_LIBRARY", library)

	m, what, simulated := choose(false)
	require.Nil(t, simulated)
	require.Contains(t, what, "Running on the GPU of this machine: ")
	require.Equal(t, gpuspan.FP32, m.precision())

	q, err := realMachine{vector: 1 << 10, matrix: 32, staging: 1 << 16}.queue(0)
	require.NoError(t, err)
	spans := tracetest.NewInMemoryExporter()
	p, err := gpuspan.New(q.backend(), gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))))
	require.NoError(t, err)
	s := p.Stream(q.handle(), "demo")
	require.True(t, s.DeviceTimed())
	ops := newOperations()

	x := ops.h2d.Start(t.Context(), s)
	w := q.copy(1<<20, gpuspan.HostToDevice, gpuspan.Pinned)
	require.Equal(t, int64(4<<10), w.Bytes, "what was really copied")
	x.EndWith(w)
	x = ops.mlp.Start(t.Context(), s)
	w = q.compute(mlpWork(512, 6), shape{})
	require.Equal(t, gpuspan.Work{
		FLOPs: 2 * 32 * 32 * 32, Precision: gpuspan.FP32, Read: 8 * 32 * 32,
		Written: 4 * 32 * 32,
	}, w)
	x.EndWith(w)
	x = ops.decode.Start(t.Context(), s)
	w = q.compute(gpuspan.Work{Read: 1 << 30, FLOPs: 1}, shape{})
	require.Equal(t, gpuspan.Work{FLOPs: 2 << 10, Precision: gpuspan.FP32, Read: 8 << 10, Written: 4 << 10}, w)
	x.EndWith(w)
	require.NoError(t, q.wait())
	require.NoError(t, p.Shutdown(t.Context()))
	require.NoError(t, q.close())
	require.NoError(t, m.close())

	require.Len(t, spans.GetSpans(), 3)
	for _, span := range spans.GetSpans() {
		source, _ := span.InstrumentationScope.Attributes.Value(semconv.GPUTimingSourceKey)
		require.Equal(t, semconv.GPUTimingSourceCUDAEvent, source.AsString(), span.Name)
		require.Less(t, time.Since(span.StartTime).Abs(), time.Minute)
	}
}
