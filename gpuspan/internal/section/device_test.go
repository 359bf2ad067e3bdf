// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/semconv"
)

// streamOn returns the stream number on the span and on its scope, or 0 if absent.
func streamOn(s sdktrace.ReadOnlySpan) (own, scope int64) {
	set := attribute.NewSet(s.Attributes()...)
	if v, ok := set.Value(semconv.GPUStreamIDKey); ok {
		own = v.AsInt64()
	}
	inherited := s.InstrumentationScope().Attributes
	if v, ok := inherited.Value(semconv.GPUStreamIDKey); ok {
		scope = v.AsInt64()
	}
	return own, scope
}

func TestTheScopeStatesWhichStreamIsTheFirstOfItsDevice(t *testing.T) {
	before := section.StreamIDs.Load()
	defer section.StreamIDs.Store(before)
	for name, c := range map[string]struct {
		from, scope int64
	}{
		"usually":                          {10, 11},
		"in a program that has made many":  {section.MaxScopeStream, 0},
		"the last that scopes are made of": {section.MaxScopeStream - 1, section.MaxScopeStream},
	} {
		section.StreamIDs.Store(c.from)
		spans := tracetest.NewSpanRecorder()
		b := enginetest.NewBackend()
		b.List = append(b.List, backend.Device{UUID: "GPU-other", Ordinal: 1})
		p, err := engine.New(b, enginetest.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
		require.NoError(t, err)
		for h := range uintptr(3) {
			enginetest.Op.Start(context.Background(), p.Stream(h+3, "s")).End()
		}
		require.NoError(t, p.Shutdown(context.Background()))
		require.Len(t, spans.Ended(), 3, name)
		for i, s := range spans.Ended() {
			own, scope := streamOn(s)
			require.Equal(t, c.scope, scope, name)
			want := c.from + 1 + int64(i)
			if want == c.scope {
				want = 0
			}
			require.Equal(t, want, own, name)
		}
	}
}

// The scope's half width bounds every span without its own, and is less than twice the span's own.
func TestTheScopeStatesTheUsualHalfWidth(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	p, err := engine.New(enginetest.NewBackend(), enginetest.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	require.NoError(t, err)
	s := p.Stream(3, "s")
	usual := (*s.Device.UsualHalf()).Load()
	require.Positive(t, usual)
	require.Zero(t, usual%section.HalfStep)
	for _, c := range []struct {
		half   int64
		stated bool
	}{
		{usual/2 - 1, true},
		{usual / 2, false},
		{usual, false},
		{usual + 1, true},
	} {
		require.Equal(t, c.stated, s.Device.Unusual(c.half), "%d ns where %d ns are usual", c.half, usual)
	}
	require.True(t, new(section.Device).Unusual(1), "nothing is usual of a clock that could not be tried")

	enginetest.Op.Start(context.Background(), s).End()
	require.NoError(t, p.Shutdown(context.Background()))
	scope := spans.Ended()[0].InstrumentationScope().Attributes
	v, _ := scope.Value(semconv.GPUTimingErrorKey)
	require.Equal(t, spanattr.Seconds(usual), v.AsFloat64())
}
