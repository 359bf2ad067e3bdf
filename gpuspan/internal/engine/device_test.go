// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/require"
	"github.com/otelgpu/otelgpu/semconv"
)

// streamOn is the number of a span's stream as the span and as its scope say it; 0: it does not.
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

func TestTheScopeSaysWhichStreamIsTheFirstOfItsDevice(t *testing.T) {
	before := streamIDs.Load()
	defer streamIDs.Store(before)
	for name, c := range map[string]struct {
		from, scope int64
	}{
		"usually":                          {10, 11},
		"in a program that has made many":  {maxScopeStream, 0},
		"the last that scopes are made of": {maxScopeStream - 1, maxScopeStream},
	} {
		streamIDs.Store(c.from)
		spans := tracetest.NewSpanRecorder()
		b := newScripted()
		b.devices = append(b.devices, backend.Device{UUID: "GPU-other", Ordinal: 1})
		p, err := New(b, WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
		require.NoError(t, err)
		for h := range uintptr(3) {
			testOp.Start(context.Background(), p.Stream(h+3, "s")).End()
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
