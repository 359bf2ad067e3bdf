// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
)

func TestAPanickingBackendNeverReachesTheApplication(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s := f.P.Stream(3, "main")
	x := enginetest.Op.Start(context.Background(), s)
	f.B.Panics.Store(true)
	require.NotPanics(t, x.End)
	require.NotPanics(t, func() { enginetest.Op.Start(context.Background(), s).End() })
	f.Flush(t)
	require.Len(t, f.Spans.Ended(), 2)
	require.False(t, s.DeviceTimed())

	g := enginetest.New(t, enginetest.NewBackend())
	s = g.P.Stream(3, "main")
	g.B.QueryStatus.Store(int32(backend.StatusNotReady))
	enginetest.Op.Start(context.Background(), s).End()
	g.B.Panics.Store(true) // now Query panics
	require.Eventually(t, func() bool { return strings.Contains(g.Errors(), "scripted panic") }, 20*time.Second,
		time.Millisecond)
	g.Flush(t)
	status, _ := g.Status(0)
	require.Equal(t, "device_error", status)
}

func TestAPanickingErrorHandlerIsHarmless(t *testing.T) {
	b := enginetest.NewBackend()
	b.Kind = backend.StreamPerThread
	p, err := engine.New(b, enginetest.WithErrorHandler(func(error) { panic("handler") }))
	require.NoError(t, err)
	require.NotPanics(t, func() { p.Stream(2, "x") })
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestWithoutADeviceSectionsGetHostTimes(t *testing.T) {
	for _, b := range []backend.Backend{nil, &enginetest.Backend{Live: map[backend.Event]bool{}}} {
		spans := tracetest.NewSpanRecorder()
		p, err := engine.New(b, enginetest.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
		if b == nil {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "backend cuda_event found no device")
		}
		require.Equal(t, "host", p.Source())
		s := p.Stream(0, "cpu")
		x := enginetest.Op.Start(context.Background(), s)
		time.Sleep(2 * time.Millisecond)
		x.End()
		enginetest.Flush(t, p)
		require.Len(t, spans.Ended(), 1)
		span := spans.Ended()[0]
		require.GreaterOrEqual(t, span.EndTime().Sub(span.StartTime()), 2*time.Millisecond)
		require.WithinDuration(t, time.Now(), span.EndTime(), time.Minute)
		require.NoError(t, p.Shutdown(context.Background()))
	}
}

func TestFlushAndShutdownKeepTheirDeadlines(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	f.B.QueryStatus.Store(int32(backend.StatusNotReady))
	s := f.P.Stream(3, "main")
	enginetest.Op.Start(context.Background(), s).End()
	open := enginetest.Op.Start(context.Background(), s)
	// the polling thread needs time to run, also on a busy machine
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := f.P.Flush(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "the times of 1 sections were not read")
	err = f.P.Shutdown(ctx)
	require.Error(t, err)
	require.Len(t, f.Spans.Ended(), 2, "an abandoned section still becomes a span")
	for i := range 2 {
		status, source := f.Status(i)
		require.Equal(t, "timeout", status)
		require.Equal(t, "host", source)
	}
	require.EqualValues(t, 2, f.P.Drops()["shutdown"])
	require.True(t, f.B.Closed.Load())
	require.Empty(t, f.B.Live)
	require.Equal(t, err, f.P.Shutdown(context.Background()), "idempotent")
	require.NoError(t, f.P.Flush(context.Background()))
	require.Nil(t, f.P.Stream(9, "late"))
	require.False(t, enginetest.Op.Start(context.Background(), s).Timed())
	f.P.SetEnabled(true)
	require.False(t, f.P.Enabled())
	open.End()
}
