// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/timeline"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// That nothing is logged of a hang must not keep the step's span from the trace.
func TestAStepOfAHungDeviceEndsItsSpanWhateverIsLogged(t *testing.T) {
	set := settings.Default()
	set.HangLimit, set.HangDeadline = 0, 10*time.Millisecond
	f := newBench(t, newScripted(), WithSettings(set))
	s := f.p.Stream(3, "main")
	f.b.query.Store(int32(backend.StatusNotReady))
	for _, step := range f.p.Loop("train", s, TotalSteps(1)).Steps(context.Background()) {
		step.SetItems(7)
	}
	time.Sleep(20 * time.Millisecond)
	f.tidy(t)
	require.Len(t, f.spans.Ended(), 1)
	status, source := f.status(0)
	require.Equal(t, "timeout", status)
	require.Equal(t, "host", source)
	f.tidy(t)
	require.Len(t, f.spans.Ended(), 1, "once")

	f.b.query.Store(int32(backend.StatusOK)) // the device comes back
	f.flush(t)
	require.Len(t, f.spans.Ended(), 1)
}

// Where sections that nobody ends use up a stream, its sections only count. That is said before somebody wonders where
// the spans are.
func TestForgottenEndsThatUseUpAStreamAreReported(t *testing.T) {
	set := settings.Default()
	set.NestDeadline, set.Slots = 10*time.Millisecond, 4
	f := newBench(t, newScripted(), WithSettings(set))
	s, hung := f.p.Stream(3, "main"), f.p.Stream(4, "hung")
	require.NoError(t, f.p.poller.Call(context.Background(), func() {
		f.b.query.Store(int32(backend.StatusNotReady))
		for range 4 {
			testOp.Start(context.Background(), hung).End() // the device's business, not theirs
		}
		for range 3 {
			testOp.Start(context.Background(), s)
		}
		time.Sleep(20 * time.Millisecond)
		f.p.poller.Tidy()
		require.Empty(t, f.errors(), "one is free")
		testOp.Start(context.Background(), s)
		f.p.poller.Tidy()
		f.p.poller.Tidy()
	}))
	require.Regexp(t,
		"^gpuspan: stream \"main\": 4 of its 4 slots are held by sections that were started and not ended, one of `op` for [0-9.]+m?s "+
			"\\(end them on error paths too, as by defer, or raise `slots`\\); until then sections only count$", f.errors())
	f.b.query.Store(int32(backend.StatusOK))
}

// slowEnd is a span processor that takes its time.
type slowEnd struct{ sdktrace.SpanProcessor }

func (slowEnd) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (slowEnd) OnEnd(sdktrace.ReadOnlySpan)                     { time.Sleep(timeline.CloseLimit / 2) }

// A polling thread that is only slow has as long as Shutdown's context gives it.
func TestShutdownWaitsForSlowSpans(t *testing.T) {
	f := newBench(t, newScripted(), WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(slowEnd{}))))
	s := f.p.Stream(3, "main")
	for range 3 { // open, so that their spans end when everything is abandoned
		testOp.Start(context.Background(), s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	require.NoError(t, f.p.Shutdown(ctx))
	require.True(t, f.b.closed.Load())
	require.EqualValues(t, 3, f.p.Drops[record.DropShutdown].Load())
}
