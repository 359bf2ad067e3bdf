// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"context"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestSectionsDoNotDisturbCaptures(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	capturing, other := appStream(t, r.back, 0), appStream(t, r.back, 0)
	cs, os := r.prof.Stream(capturing, "captures"), r.prof.Stream(other, "other")
	var begin func(backend.StreamHandle, int32) int32
	var end func(backend.StreamHandle, unsafe.Pointer) int32
	stub.Func(&begin, "cuStreamBeginCapture_v2")
	stub.Func(&end, "cuStreamEndCapture")
	work, inside, graph := gpuspan.NewOperation("work"), gpuspan.NewOperation("inside"), gpuspan.NewOperation("graph")

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g := new(uintptr)
	ctx := context.Background()
	for range 20 {
		x := work.Start(ctx, os) // pending during the capture: the polling thread queries it continuously
		stub.Work(other, 2*time.Millisecond)
		x.End()
		require.Zero(t, begin(capturing, 0)) // global mode
		y := inside.Start(ctx, cs)
		time.Sleep(3 * time.Millisecond)
		y.End()
		require.Zero(t, end(capturing, unsafe.Pointer(g)), "the capture survived")
		graph.Launch(ctx, cs, func() { stub.Work(capturing, time.Millisecond) })
	}
	for _, s := range r.flush(t, "work") {
		require.Equal(t, semconv.GPUTimingStatusOk, status(t, s))
	}
	require.Len(t, r.flush(t, "inside"), 20)
	for _, s := range r.flush(t, "inside") {
		require.Equal(t, semconv.GPUTimingStatusCaptured, status(t, s))
	}
	launches := r.flush(t, "graph")
	require.Len(t, launches, 20)
	for _, s := range launches {
		require.Equal(t, semconv.GPUTimingStatusOk, status(t, s))
		require.GreaterOrEqual(t, float64(s.EndTime().Sub(s.StartTime())), 1e6-1e3)
	}
	require.Empty(t, r.errors)
}

func TestStreamThatCapturesIsNotRegisteredAndItsCaptureLivesOn(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	h := appStream(t, r.back, 0)
	var begin func(backend.StreamHandle, int32) int32
	var end func(backend.StreamHandle, unsafe.Pointer) int32
	stub.Func(&begin, "cuStreamBeginCapture_v2")
	stub.Func(&end, "cuStreamEndCapture")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.Zero(t, begin(h, 0))
	require.False(t, r.prof.Stream(h, "s").DeviceTimed())
	g := new(uintptr)
	require.Zero(t, end(h, unsafe.Pointer(g)))
	require.ErrorContains(t, r.errors[0], "it is capturing a graph (register streams before captures)")
	require.True(t, r.prof.Stream(h, "s").DeviceTimed())
}

func TestCaptureThatBeginsWithinASectionAbandonsIt(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	h := appStream(t, r.back, 0)
	s := r.prof.Stream(h, "s")
	var begin func(backend.StreamHandle, int32) int32
	var end func(backend.StreamHandle, unsafe.Pointer) int32
	stub.Func(&begin, "cuStreamBeginCapture_v2")
	stub.Func(&end, "cuStreamEndCapture")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	op := gpuspan.NewOperation("op")
	x := op.Start(context.Background(), s)
	require.Zero(t, begin(h, 0))
	x.End()
	g := new(uintptr)
	require.Zero(t, end(h, unsafe.Pointer(g)))
	x = op.Start(context.Background(), s)
	x.End()
	spans := r.flush(t, "op")
	require.Len(t, spans, 2)
	require.Equal(t, semconv.GPUTimingStatusCaptured, status(t, spans[0]))
	require.Equal(t, semconv.GPUTimingStatusOk, status(t, spans[1]))
}
