// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
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

// A device that hangs stops all of its streams.
func TestADeviceThatHangsIsLoggedInFewLines(t *testing.T) {
	set := settings.Default()
	set.HangLimit = time.Hour // only the calls below look
	var log bytes.Buffer
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set),
		enginetest.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	const streams = 40
	for i := range streams {
		s := f.P.Stream(uintptr(3+i), "main")
		enginetest.Op.Start(context.Background(), s).End()
	}
	f.B.QueryStatus.Store(int32(backend.StatusNotReady))
	for _, s := range f.P.Streams() {
		enginetest.Op.Start(context.Background(), s).End()
	}
	f.P.Cfg.HangLimit = time.Nanosecond
	f.P.Watchdog.Look()
	lines := strings.Count(log.String(), "\n")
	require.Contains(t, log.String(), "on more streams")
	require.LessOrEqual(t, lines, 12)
	require.Positive(t, lines)
	log.Reset()
	f.P.Watchdog.Look()
	require.NotContains(t, log.String(), "has not finished a section", "once")
	f.B.QueryStatus.Store(int32(backend.StatusOK))
}
