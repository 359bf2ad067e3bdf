// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package backend_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// The numbers are from enum cudaError_enum in cuda.h of CUDA 12.9; hipError_t of hip_runtime_api.h,
// ROCm 6.4, has the same.
func TestStatusesAreTheNumbersOfTheDrivers(t *testing.T) {
	for _, c := range []struct {
		status  backend.Status
		number  int32
		header  string
		name    string
		capture bool
	}{
		{backend.StatusOK, 0, "CUDA_SUCCESS", "success", false},
		{backend.StatusInvalidValue, 1, "CUDA_ERROR_INVALID_VALUE", "invalid value", false},
		{backend.StatusDeinitialized, 4, "CUDA_ERROR_DEINITIALIZED", "driver shut down", false},
		{backend.StatusInvalidContext, 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid context", false},
		{backend.StatusInvalidHandle, 400, "CUDA_ERROR_INVALID_HANDLE", "invalid handle", false},
		{backend.StatusNotReady, 600, "CUDA_ERROR_NOT_READY", "not ready", false},
		{46, 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "device unavailable", false},
		{214, 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error", false},
		{805, 805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "no connection to the MPS server", false},
		{806, 806, "CUDA_ERROR_MPS_RPC_FAILURE", "MPS server failed", false},
		{807, 807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS server not ready", false},
		{810, 810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS client terminated", false},
		{700, 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal address", false},
		{702, 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "launch timeout", false},
		{backend.StatusContextDestroyed, 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context destroyed", false},
		{719, 719, "CUDA_ERROR_LAUNCH_FAILED", "launch failure", false},
		{backend.StatusUnsupported, 801, "CUDA_ERROR_NOT_SUPPORTED", "not supported", false},
		{900, 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "stream capture", true},
		{backend.StatusCaptureUnjoined, 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "stream capture", true},
		{906, 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "stream capture", true},
		{backend.StatusCapturedEvent, 907, "CUDA_ERROR_CAPTURED_EVENT", "stream capture", true},
		{910, 910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "", false},
		{999, 999, "CUDA_ERROR_UNKNOWN", "unknown error", false},
	} {
		require.Equal(t, c.number, int32(c.status), c.header)
		require.Equal(t, c.name, c.status.Name(), c.header)
		require.Equal(t, c.capture, c.status.Capture(), c.header)
	}
	require.Equal(t, "the backend panicked", backend.StatusPanic.Name())
	require.Negative(t, backend.StatusPanic, "no driver returns this")
}

func TestStatusErrorNamesCallAndStatus(t *testing.T) {
	err := fmt.Errorf("cannot make a stream: %w", &backend.StatusError{Call: "make events", Status: 400})
	require.EqualError(t, err, "cannot make a stream: make events: status 400 (invalid handle)")
	var status *backend.StatusError
	require.True(t, errors.As(err, &status))
	require.Equal(t, backend.StatusInvalidHandle, status.Status)
	require.EqualError(t, &backend.StatusError{Call: "query", Status: 1234}, "query: status 1234")
}

// A backend that implements no method has no device, stream or timing, and needs no cleanup.
func TestUnimplementedMethodsAreNotSupported(t *testing.T) {
	var b backend.Backend = backend.Unimplemented{}
	devices, err := b.Devices()
	require.Error(t, err)
	require.Empty(t, devices)
	_, err = b.StreamInfo(1, 0)
	require.Error(t, err)
	_, current := b.Current()
	require.Equal(t, backend.StatusInvalidContext, current)
	unbind, bound := b.Bind(0)
	require.Equal(t, backend.StatusOK, bound, "a device whose calls need no context")
	unbind()
	capturing, captured := b.Capturing(1)
	require.True(t, !capturing && captured == backend.StatusOK, "a device without graphs")

	_, stream := b.NewStream(0)
	_, anchor := b.NewAnchorStream(0)
	_, elapsed := b.Elapsed(1, 2)
	_, memory := b.MemoryUsage(0)
	for call, status := range map[string]backend.Status{
		"NewStream": stream, "NewAnchorStream": anchor, "NewEvents": b.NewEvents(0, make([]backend.Event, 1)),
		"Record": b.Record(&backend.Call{}), "Query": b.Query(1), "Synchronize": b.Synchronize(1), "Elapsed": elapsed,
		"MemoryUsage": memory,
	} {
		require.Equal(t, backend.StatusUnsupported, status, call)
	}
	require.WithinDuration(t, time.Now(), b.Now(), time.Minute)
	b.FreeStream(0, 1)
	b.FreeEvents(0, nil)
	require.NoError(t, b.ThreadInit())
	require.NoError(t, b.Close())
}
