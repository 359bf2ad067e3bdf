// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// The driver returns one of these errors from every call on a device that is lost (Xid 79), has an
// uncorrectable memory error, or whose MPS server was restarted. Other devices keep working, and
// the process can time new streams once the driver has recovered.
func TestLostDeviceRetiresItsStreamsUntilTheDriverWorksAgain(t *testing.T) {
	for name, code := range map[string]int64{
		"Xid 79: unspecified launch failure": 719,
		"Xid 79: device unavailable":         46,
		"uncorrectable ECC error":            214,
		"no connection to the MPS server":    805,
		"MPS client terminated":              812,
		"unknown error":                      999,
	} {
		t.Run(name, func(t *testing.T) {
			stub := ctest.CUDA(t)
			stub.Set("devices", 2)
			r := newRig(t, stub)
			lost, other := appStream(t, r.back, 0), appStream(t, r.back, 1)
			s, healthy := r.prof.Stream(lost, "lost"), r.prof.Stream(other, "other")
			op, beside := gpuspan.NewOperation("op"), gpuspan.NewOperation("beside")
			x := op.Start(context.Background(), s)
			stub.Work(lost, time.Millisecond)
			stub.FailStream(lost, code)
			x.End()
			op.Start(context.Background(), s).End()
			beside.Start(context.Background(), healthy).End()
			spans := r.flush(t, "op")
			require.Len(t, spans, 2, "no section is lost")
			for _, span := range spans {
				require.Equal(t, semconv.GPUTimingStatusDeviceError, status(t, span))
			}
			require.Equal(t, semconv.GPUTimingStatusOk, status(t, r.flush(t, "beside")[0]))
			require.False(t, s.DeviceTimed())
			require.Len(t, r.errors, 1, "once for the stream")

			stub.FailStream(lost, 0)
			again := r.prof.Stream(lost, "lost")
			require.True(t, again.DeviceTimed())
			op.Start(context.Background(), again).End()
			require.Equal(t, semconv.GPUTimingStatusOk, status(t, r.flush(t, "op")[2]))
		})
	}
}

// The duration of a graph with conditional nodes depends on its iterations, which the host does not
// know. Each launch is timed by the records before and after it.
func TestLaunchOfAGraphTakesAsLongAsItsConditionalNodes(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	h := appStream(t, r.back, 0)
	s := r.prof.Stream(h, "s")
	op := gpuspan.NewOperation("graph")
	iterations := []int{1, 7, 3}
	stub.Work(h, 50*time.Millisecond) // so that the host is ahead of the device
	for _, n := range iterations {
		op.Launch(context.Background(), s, func() { stub.Work(h, time.Duration(n)*time.Millisecond) })
	}
	spans := r.flush(t, "graph")
	require.Len(t, spans, len(iterations))
	for i, span := range spans {
		require.Equal(t, semconv.GPUTimingStatusOk, status(t, span))
		require.InDelta(t, float64(iterations[i])*1e-3, value(t, span, semconv.GPUDurationKey).AsFloat64(), 1e-5)
	}
}

// Stream-ordered allocation takes no device time, and freed memory stays in the driver's pool,
// counted as used, until the host synchronizes. In a capture it is a node of the graph.
func TestStreamOrderedAllocationIsPartOfTheSectionAndItsMemoryThePools(t *testing.T) {
	stub := ctest.CUDA(t)
	set := settings.Default()
	set.MemoryUsage = true
	r := newRig(t, stub, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }))
	h := appStream(t, r.back, 0)
	s := r.prof.Stream(h, "s")
	var alloc func(unsafe.Pointer, uintptr, uintptr) int32
	var free func(uint64, uintptr) int32
	var synchronize func(uintptr) int32
	stub.Func(&alloc, "cuMemAllocAsync")
	stub.Func(&free, "cuMemFreeAsync")
	stub.Func(&synchronize, "cuStreamSynchronize")
	op := gpuspan.NewOperation("op")
	const size = 1 << 30
	run := func() {
		p := new(uint64)
		x := op.Start(context.Background(), s)
		require.Zero(t, alloc(unsafe.Pointer(p), size, h))
		stub.Work(h, 2*time.Millisecond)
		require.Zero(t, free(*p, h))
		require.NotZero(t, free(*p, h), "freed twice")
		x.End()
	}
	stub.Work(h, 50*time.Millisecond) // so that the host is ahead of the device
	run()
	run()
	require.Zero(t, synchronize(h))
	op.Start(context.Background(), s).End()

	end := beginCapture(t, stub, h)
	p := new(uint64)
	x := op.Start(context.Background(), s)
	require.Zero(t, alloc(unsafe.Pointer(p), size, h))
	require.Zero(t, free(*p, h))
	x.End()
	require.Zero(t, end(), "the capture survived")

	spans := r.flush(t, "op")
	require.Len(t, spans, 4)
	usage := func(i int) int64 { return value(t, spans[i], semconv.GPUMemoryUsageKey).AsInt64() }
	for i := range 2 {
		require.Equal(t, semconv.GPUTimingStatusOk, status(t, spans[i]))
		require.InDelta(t, 2e-3, value(t, spans[i], semconv.GPUDurationKey).AsFloat64(), 1e-5)
	}
	require.Equal(t, usage(2)+size, usage(0))
	require.Equal(t, usage(0), usage(1), "the second one takes what the pool keeps")
	require.Equal(t, usage(2), usage(3), "a node of a graph takes nothing yet")
	require.Equal(t, semconv.GPUTimingStatusCaptured, status(t, spans[3]))
}
