// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Rig is a profiler over a scripted device, with its spans and the errors that it reports.
type Rig struct {
	B     *Backend
	P     *engine.Profiler
	Spans *tracetest.SpanRecorder
	mu    sync.Mutex
	errs  []string
}

// Errors returns the reported errors, a line each.
func (f *Rig) Errors() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.errs, "\n")
}

// New starts a profiler, which ends with the test.
func New(t *testing.T, b *Backend, opts ...Option) *Rig {
	t.Helper()
	f := &Rig{B: b, Spans: tracetest.NewSpanRecorder()}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(f.Spans))
	opts = append([]Option{WithTracerProvider(tp), WithErrorHandler(func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, err.Error())
	})}, opts...)
	p, err := engine.New(b, opts...)
	require.NoError(t, err)
	f.P = p
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return f
}

// Flush waits until all spans of ended sections have ended.
func (f *Rig) Flush(t *testing.T) {
	t.Helper()
	Flush(t, f.P)
}

// Tidy runs what is due each second, and ends the resulting spans.
func (f *Rig) Tidy(t *testing.T) {
	t.Helper()
	p := f.P
	require.NoError(t, p.Poller.Call(context.Background(), func() {
		p.Poller.Tidy()
		p.Poller.Place(true)
	}))
	require.NoError(t, p.Emitter.Call(context.Background(), func() { p.Emitter.DrainUntil(math.MaxInt64) }))
}

// Flush waits as long as a slow machine needs, which may be longer than `flush_deadline`.
func Flush(t *testing.T, p *engine.Profiler) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	require.NoError(t, p.Flush(ctx))
}

// Status returns the timing status and source that the i-th span or its scope state.
func (f *Rig) Status(i int) (status, source string) {
	span := f.Spans.Ended()[i]
	scope := span.InstrumentationScope().Attributes
	status = "ok" // where nothing is stated
	for _, kv := range append(scope.ToSlice(), span.Attributes()...) {
		switch kv.Key {
		case "gpu.timing.status":
			status = kv.Value.AsString()
		case "gpu.timing.source":
			source = kv.Value.AsString()
		}
	}
	return status, source
}

// Op is an operation for tests that need any.
var Op = section.NewOperation("op")

// Paused runs f while the polling thread is paused, so that only the caller's cost is measured.
func Paused(p *engine.Profiler, f func()) {
	release, resting := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Poller.Call(context.Background(), func() { close(resting); <-release })
	}()
	<-resting
	f()
	close(release)
	<-done
}

// Sampled returns a context with a sampled remote span.
func Sampled() context.Context {
	return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	}))
}

// Changed sets the default settings but for what f changes.
func Changed(f func(*settings.Settings)) Option {
	s := settings.Default()
	f(&s)
	return WithSettings(s)
}

// Processor is a span processor that calls Ended at each end of a span.
type Processor struct{ Ended func(sdktrace.ReadOnlySpan) }

// OnStart does nothing.
func (Processor) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd calls Ended.
func (p Processor) OnEnd(s sdktrace.ReadOnlySpan) { p.Ended(s) }

// Shutdown does nothing.
func (Processor) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing.
func (Processor) ForceFlush(context.Context) error { return nil }
