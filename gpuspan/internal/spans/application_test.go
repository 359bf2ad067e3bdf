// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
)

// panicky is a span processor that panics.
type panicky struct{ sdktrace.SpanProcessor }

func (panicky) OnStart(context.Context, sdktrace.ReadWriteSpan) { panic("processor") }

func (panicky) OnEnd(sdktrace.ReadOnlySpan) {}

func (panicky) Shutdown(context.Context) error { return nil }

func (panicky) ForceFlush(context.Context) error { return nil }

func TestAPanickingSpanProcessorCostsItsSpanOnly(t *testing.T) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(panicky{}))
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithTracerProvider(tp), enginetest.WithSlots(4))
	s := f.P.Stream(3, "main")
	for range 20 {
		x := enginetest.Op.Start(context.Background(), s)
		x.Start(enginetest.Op).End()
		x.End()
		_ = f.P.Flush(context.Background())
	}
	require.Contains(t, f.Errors(), "processor")
	require.True(t, enginetest.Op.Start(context.Background(), s).Timed(), "no slot is lost")
}

// A span processor that is slow or hangs in OnEnd delays spans and nothing else.
func TestASpanProcessorThatHangsDelaysOnlySpans(t *testing.T) {
	hangs, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var spans atomic.Int64
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(enginetest.Processor{Ended: func(sdktrace.ReadOnlySpan) {
		once.Do(func() { close(hangs) })
		<-release
		spans.Add(1)
	}}))
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithTracerProvider(tp))
	p := f.P
	s := p.Stream(3, "main")
	enginetest.Op.Start(context.Background(), s).End()
	require.NoError(t, p.Poller.Call(context.Background(), func() { p.Poller.Pass(); p.Poller.Place(true) }))
	<-hangs
	all, _, _ := s.Filled()
	slots := int64(all)
	for ended := int64(1); ended < 4*slots; { // slots are freed as sections are read
		x := enginetest.Op.Start(context.Background(), s)
		if x.Timed() {
			ended++
		}
		x.End()
	}
	d := p.TimedDevices()[0]
	made := func() (n int) {
		require.NoError(t, p.Poller.Call(context.Background(), func() { n = d.Anchorer.Made() }))
		return n
	}
	from := made()
	require.Eventually(t, func() bool { return made() >= from+5 }, time.Minute, time.Millisecond, "clocks keep their rhythm")
	require.True(t, p.Stream(5, "new").DeviceTimed(), "streams are registered")
	require.NotContains(t, f.Errors(), "host times only")
	require.Zero(t, spans.Load())
	close(release)
	f.Flush(t)
	require.GreaterOrEqual(t, spans.Load(), 4*slots)
}

// Test helpers end the goroutine on which they fail.
func TestGoexitInASpanProcessorLosesOnlyItsSpan(t *testing.T) {
	var n atomic.Int64
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(enginetest.Processor{Ended: func(sdktrace.ReadOnlySpan) {
		if n.Add(1)%2 == 1 {
			runtime.Goexit()
		}
	}}))
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithTracerProvider(tp))
	s := f.P.Stream(3, "main")
	for range 20 {
		x := enginetest.Op.Start(context.Background(), s)
		x.Start(enginetest.Op).End()
		x.End()
		for range f.P.Loop("train", s, enginetest.TotalSteps(1)).Steps(context.Background()) {
		}
	}
	f.Flush(t)
	require.GreaterOrEqual(t, n.Load(), int64(40))
	require.NoError(t, f.P.Shutdown(context.Background()))
	require.True(t, f.B.Closed.Load())
}
