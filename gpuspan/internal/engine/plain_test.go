// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/export"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/timeline"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestWhichSectionsArePlain(t *testing.T) {
	f := newBench(t, newScripted())
	s, ctx := f.p.Stream(3, "main"), context.Background()
	for name, c := range map[string]struct {
		run   func()
		plain bool
	}{
		"work":         {func() { testOp.Start(ctx, s).EndWith(work.Work{Items: 1, FLOPs: 2, Precision: work.BF16}) }, true},
		"waited for":   {func() { record.NewOperation("w", Sync(settings.SyncImmediate)).Start(ctx, s).End() }, true},
		"attributes":   {func() { x := testOp.Start(ctx, s); x.SetAttributes(attribute.Int("a", 1)); x.End() }, false},
		"a link":       {func() { x := testOp.Start(ctx, s); x.Link(sampledContext()); x.End() }, false},
		"asked for":    {func() { x := testOp.Start(ctx, s); x.Elapsed(); x.End() }, false},
		"a chunk":      {func() { x := testOp.Start(ctx, s); x.Chunk(0, 2); x.End() }, false},
		"in another":   {func() { x := testOp.Start(ctx, s); x.Start(testOp).End(); x.End() }, false},
		"of host time": {func() { record.NewOperation("h", Sync(settings.SyncNone)).Start(ctx, s).End() }, false},
	} {
		paused(f.p, func() {
			c.run()
			f.p.poller.Pass()
			require.Len(t, s.Unplaced, 1, name)
			require.Equal(t, c.plain, s.Unplaced[0].Nest == nil, name)
			f.p.poller.Place(true)
		})
		f.flush(t)
		require.Len(t, s.Free, len(s.Slots), name)
	}
}

func TestPlainSectionsAreNumberedAsTheyCome(t *testing.T) {
	a, b := record.NewOpState(record.NewOperation("a")), record.NewOpState(record.NewOperation("b"))
	a.Outermost.Untimed.Count.Add(10)
	a.Timed.Count.Add(1)
	var c timeline.Counted
	var got []int64
	for _, x := range []struct {
		op *record.OpState
		w  work.Work
	}{
		{a, work.Work{Items: 1}},
		{a, work.Work{Items: 2, FLOPs: 4}},
		{a, work.Work{FLOPs: 8, Precision: work.BF16}},
		{b, work.Work{Read: 3}},
		{a, work.Work{Items: 5}},
	} {
		got = append(got, c.Number(x.op, &x.w))
	}
	require.EqualValues(t, 4, a.Timed.Count.Load(), "the last one is not added yet")
	c.Add()
	c.Add()
	require.Equal(t, []int64{12, 13, 14, 1, 15}, got)
	sum := a.Timed.Load()
	require.EqualValues(t, []int64{5, 8}, []int64{sum.Count, sum.Items})
	require.Equal(t, []float64{4, 8}, []float64{sum.FLOPs[work.PrecisionUnset], sum.FLOPs[work.BF16]})
	require.EqualValues(t, []int64{1, 3}, []int64{b.Timed.Count.Load(), b.Timed.Read.Load()})
}

// A turn takes a budget of a stream's sections, none that were read later than is wanted, and each once.
func TestAStreamsTurnOfTheEmitter(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "main")
	const n = 2*export.EmitBudget + 3
	require.NoError(t, f.p.emitter.Call(context.Background(), func() {
		for i := range int64(n) {
			q := record.Stamped{Read: i}
			q.Op, q.Ctx, q.StartNs, q.EndNs = f.p.State(testOp), context.Background(), i+1, i+2
			s.Emits = append(s.Emits, q)
		}
		s.InFlight.Store(n)
		e := f.p.emitter
		made := func() int { return len(f.spans.Ended()) }
		require.False(t, e.Turn(s, -1))
		require.Zero(t, made())
		require.False(t, e.Turn(s, 4))
		require.Equal(t, 5, made())
		require.True(t, e.Turn(s, n))
		require.Equal(t, 5+export.EmitBudget, made())
		require.EqualValues(t, n-made(), s.InFlight.Load())
		for e.Turn(s, n) {
		}
		for _, q := range s.Emitting[:cap(s.Emitting)] {
			require.Nil(t, q.Ctx, "what is made keeps nothing alive")
		}
	}))
	spans := f.spans.Ended()
	require.Len(t, spans, n)
	require.True(t, slices.IsSortedFunc(spans, func(a, b sdktrace.ReadOnlySpan) int {
		return a.StartTime().Compare(b.StartTime())
	}))
	require.Zero(t, s.InFlight.Load())
}
