// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/semconv"
)

// What the driver returns to every call on a device that is lost (Xid 79), has an uncorrectable memory error, or whose
// MPS server was restarted. A device beside it goes on, and the process can time new streams once the driver can.
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
			s, healthy := r.prof.Stream(uintptr(lost), "lost"), r.prof.Stream(uintptr(other), "other")
			op, beside := gpuspan.NewOperation("op"), gpuspan.NewOperation("beside")
			x := op.Start(context.Background(), s)
			stub.Work(uintptr(lost), time.Millisecond)
			stub.FailStream(uintptr(lost), code)
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

			stub.FailStream(uintptr(lost), 0)
			again := r.prof.Stream(uintptr(lost), "lost")
			require.True(t, again.DeviceTimed())
			op.Start(context.Background(), again).End()
			require.Equal(t, semconv.GPUTimingStatusOk, status(t, r.flush(t, "op")[2]))
		})
	}
}

// A graph with conditional nodes takes as long as its iterations, which the host does not know: each launch has its own
// time, between the records before and after it.
func TestLaunchOfAGraphTakesAsLongAsItsConditionalNodes(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	h := appStream(t, r.back, 0)
	s := r.prof.Stream(uintptr(h), "s")
	op := gpuspan.NewOperation("graph")
	iterations := []int{1, 7, 3}
	stub.Work(uintptr(h), 50*time.Millisecond) // so that the host is ahead of the device
	for _, n := range iterations {
		op.Launch(context.Background(), s, func() { stub.Work(uintptr(h), time.Duration(n)*time.Millisecond) })
	}
	spans := r.flush(t, "graph")
	require.Len(t, spans, len(iterations))
	for i, span := range spans {
		require.Equal(t, semconv.GPUTimingStatusOk, status(t, span))
		require.InDelta(t, float64(iterations[i])*1e-3, value(t, span, semconv.GPUDurationKey).AsFloat64(), 1e-5)
	}
}
