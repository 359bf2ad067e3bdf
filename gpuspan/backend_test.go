// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// Backends written for an earlier version of the interface, which had fewer methods.
type (
	nothing struct{ backend.Unimplemented }
	listing struct{ nothing }
	streams struct{ listing }
)

func (listing) Devices() ([]backend.Device, error) {
	return []backend.Device{{UUID: "GPU-1", Model: "old"}}, nil
}

func (streams) StreamInfo(backend.StreamHandle, backend.Context) (backend.StreamInfo, error) {
	return backend.StreamInfo{}, nil
}

func TestABackendMayLackLaterMethods(t *testing.T) {
	for name, c := range map[string]struct {
		backend backend.Backend
		err     string
	}{
		"nothing": {nothing{}, "the backend does not implement it"}, "devices": {listing{}, ""}, "streams": {streams{}, ""},
	} {
		spans := tracetest.NewSpanRecorder()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		p, err := gpuspan.New(c.backend, gpuspan.WithTracerProvider(tp), gpuspan.WithErrorHandler(func(error) {}))
		if c.err == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.err, name)
		}
		x := gpuspan.NewOperation("op").Start(context.Background(), p.Stream(1, "main"))
		x.EndWith(gpuspan.Work{Items: 1})
		require.NoError(t, p.Shutdown(context.Background()), name)
		require.Len(t, spans.Ended(), 1, name)
		require.Equal(t, "host", attrs(spans.Ended()[0])["gpu.timing.source"].AsString(), name)
	}
}

// refusing is a device whose driver cannot create events.
type refusing struct{ *simgpu.GPU }

func (refusing) NewEvents(backend.Context, []backend.Event) backend.Status {
	return backend.StatusInvalidContext
}

func TestTheDriversAnswerIsFoundInErrors(t *testing.T) {
	var mu sync.Mutex
	var status *backend.StatusError
	gpu := simgpu.New(nil)
	p, err := gpuspan.New(refusing{gpu}, gpuspan.WithErrorHandler(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errors.As(err, &status)
	}))
	if err != nil {
		errors.As(err, &status)
	}
	p.Stream(gpu.Stream(0), "main")
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return status != nil
	}, time.Minute, time.Millisecond)
	require.Equal(t, backend.StatusInvalidContext, status.Status)
	require.ErrorContains(t, status, "status 201 (invalid context)")
	require.NoError(t, p.Shutdown(context.Background()))
}
