// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
)

// slowEnd is a span processor with a slow OnEnd.
type slowEnd struct{ sdktrace.SpanProcessor }

func (slowEnd) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

func (slowEnd) OnEnd(sdktrace.ReadOnlySpan) { time.Sleep(section.CloseLimit / 2) }

// Shutdown waits for a slow polling thread until its context expires.
func TestShutdownWaitsForSlowSpans(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(slowEnd{}))))
	s := f.P.Stream(3, "main")
	for range 3 { // open, so that their spans end at shutdown
		enginetest.Op.Start(context.Background(), s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	require.NoError(t, f.P.Shutdown(ctx))
	require.True(t, f.B.Closed.Load())
	require.EqualValues(t, 3, f.P.Drops()["shutdown"])
}
