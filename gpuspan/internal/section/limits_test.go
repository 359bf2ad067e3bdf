// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestNestedContextsStayFlat(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s := f.P.Stream(3, "x")
	ctx, op := context.Background(), section.NewOperation("op")
	for range 1000 {
		x := op.Start(ctx, s)
		ctx = x.Context(ctx)
		x.End()
	}
	depth := 0
	for at := trace.SpanFromContext(ctx); ; depth++ {
		in, ok := at.(*section.ContextSpan)
		if !ok {
			break
		}
		at = in.Span
	}
	require.Equal(t, 1, depth)
}

// End checks that the section is current before it calls the driver: after Shutdown, the call would
// leave a context that nothing releases.
func TestEndedSectionsAllocateNothing(t *testing.T) {
	set := settings.Default()
	set.MemoryUsage = true
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set))
	s, closed := f.P.Stream(3, "main"), f.P.Stream(4, "closed")
	x := enginetest.Op.Start(context.Background(), s)
	x.End()
	require.EqualValues(t, 2, f.B.Asked.Load())
	x.End()
	require.EqualValues(t, 2, f.B.Asked.Load(), "it has ended")

	y, z := enginetest.Op.Start(context.Background(), s), enginetest.Op.Start(context.Background(), closed)
	within := y.Start(enginetest.Op)
	require.EqualValues(t, 5, f.B.Asked.Load())
	closed.Close()
	z.End()
	enginetest.Op.Start(context.Background(), closed).End()
	require.EqualValues(t, 5, f.B.Asked.Load(), "the stream may not exist any more")
	require.NoError(t, f.P.Shutdown(context.Background()))
	within.End()
	y.End()
	enginetest.Op.Start(context.Background(), s).End()
	require.EqualValues(t, 5, f.B.Asked.Load(), "there is no context any more")
	require.Zero(t, f.B.BoundNow.Load())
}

func TestAFullPoolDropsAndCountsButNeverBlocks(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSlots(4))
	f.B.QueryStatus.Store(int32(backend.StatusNotReady))
	s := f.P.Stream(3, "main")
	for range 10 {
		enginetest.Op.Start(context.Background(), s).EndWith(work.Work{Items: 1})
	}
	require.EqualValues(t, 6, f.P.Drops()["pool_full"])
	f.B.QueryStatus.Store(int32(backend.StatusOK))
	f.Flush(t)
	require.Len(t, f.Spans.Ended(), 4)
	fig, _ := f.P.Stats(enginetest.Op)
	require.EqualValues(t, 10, fig.Count)
	require.EqualValues(t, 10, fig.Items)
	require.EqualValues(t, 4, fig.Duration.Count)
	require.EqualValues(t, 6, f.P.Snapshot().Dropped["pool_full"])
	f.P.Reset()
	require.Empty(t, f.P.Snapshot().Dropped)
	require.True(t, enginetest.Op.Start(context.Background(), s).Timed(), "slots come back")
}

// Each section is timed or dropped, also within one that was dropped.
func TestSectionsWithinADroppedOneAreDropped(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSlots(4))
	f.B.QueryStatus.Store(int32(backend.StatusNotReady))
	s, ctx := f.P.Stream(3, "main"), context.Background()
	for range 5 {
		x := enginetest.Op.Start(ctx, s)
		y := x.Start(enginetest.Op)
		z := y.StartOn(enginetest.Op, s)
		enginetest.Op.Start(z.Context(ctx), s).End()
		z.EndWith(work.Work{Items: 1})
		z.EndWith(work.Work{Items: 1})
		y.End()
		x.End()
	}
	require.EqualValues(t, 16, f.P.Drops()["pool_full"])
	s.Close()
	enginetest.Op.Start(ctx, s).Start(enginetest.Op).End()
	require.EqualValues(t, 2, f.P.Drops()["shutdown"])
	f.B.QueryStatus.Store(int32(backend.StatusOK))
	f.Flush(t)
	require.Len(t, f.Spans.Ended(), 4)
	fig, _ := f.P.Stats(enginetest.Op)
	require.EqualValues(t, 22, fig.Count)
	require.EqualValues(t, 5, fig.Items)

	unsampled := trace.ContextWithSpanContext(ctx, trace.SpanContext{}.WithTraceID(trace.TraceID{1}))
	enginetest.Op.Start(unsampled, f.P.Stream(4, "other")).Start(enginetest.Op).End()
	require.EqualValues(t, 16, f.P.Drops()["pool_full"], "unsampled sections are not dropped")
}

func TestMissingEndsAreRecoveredSoon(t *testing.T) {
	for _, limit := range []func(*settings.Settings){
		func(set *settings.Settings) { set.NestDeadline = time.Millisecond },
		func(set *settings.Settings) { set.OpenLimit = time.Millisecond },
	} {
		forgottenEnds(t, limit)
	}
}

func forgottenEnds(t *testing.T, limit func(*settings.Settings)) {
	set := settings.Default()
	set.Slots = 16
	limit(&set)
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set))
	s := f.P.Stream(3, "main")
	for range 16 {
		enginetest.Op.Start(context.Background(), s)
	}
	time.Sleep(2 * time.Millisecond)
	timed := 0
	for range 100 {
		x := enginetest.Op.Start(context.Background(), s)
		if x.Timed() {
			timed++
		}
		x.End()
		require.NoError(t, f.P.Poller.Call(context.Background(), f.P.Poller.Pass))
	}
	f.Flush(t)
	require.GreaterOrEqual(t, timed, 95)
	require.EqualValues(t, 100-timed, f.P.Statuses()["timeout"], "each that was taken back is counted")
}
