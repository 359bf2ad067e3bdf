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

	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestWhichSectionsArePlain(t *testing.T) {
	f := newBench(t, newScripted())
	s, ctx := f.p.Stream(3, "main"), context.Background()
	for name, c := range map[string]struct {
		run   func()
		plain bool
	}{
		"work":         {func() { testOp.Start(ctx, s).EndWith(Work{Items: 1, FLOPs: 2, Precision: BF16}) }, true},
		"waited for":   {func() { NewOperation("w", Sync(settings.SyncImmediate)).Start(ctx, s).End() }, true},
		"attributes":   {func() { x := testOp.Start(ctx, s); x.SetAttributes(attribute.Int("a", 1)); x.End() }, false},
		"a link":       {func() { x := testOp.Start(ctx, s); x.Link(sampledContext()); x.End() }, false},
		"asked for":    {func() { x := testOp.Start(ctx, s); x.Elapsed(); x.End() }, false},
		"a chunk":      {func() { x := testOp.Start(ctx, s); x.Chunk(0, 2); x.End() }, false},
		"in another":   {func() { x := testOp.Start(ctx, s); x.Start(testOp).End(); x.End() }, false},
		"of host time": {func() { NewOperation("h", Sync(settings.SyncNone)).Start(ctx, s).End() }, false},
	} {
		paused(f.p, func() {
			c.run()
			f.p.poller.pass()
			require.Len(t, s.unplaced, 1, name)
			require.Equal(t, c.plain, s.unplaced[0].nest == nil, name)
			f.p.poller.place(true)
		})
		f.flush(t)
		require.Len(t, s.free, len(s.slots), name)
	}
}

func TestPlainSectionsAreNumberedAsTheyCome(t *testing.T) {
	a, b := newOpState(NewOperation("a")), newOpState(NewOperation("b"))
	a.outermost.untimed.count.Add(10)
	a.timed.count.Add(1)
	var c counted
	var got []int64
	for _, x := range []struct {
		op *opState
		w  Work
	}{
		{a, Work{Items: 1}},
		{a, Work{Items: 2, FLOPs: 4}},
		{a, Work{FLOPs: 8, Precision: BF16}},
		{b, Work{Read: 3}},
		{a, Work{Items: 5}},
	} {
		got = append(got, c.number(x.op, &x.w))
	}
	require.EqualValues(t, 4, a.timed.count.Load(), "the last one is not added yet")
	c.add()
	c.add()
	require.Equal(t, []int64{12, 13, 14, 1, 15}, got)
	sum := a.timed.load()
	require.EqualValues(t, []int64{5, 8}, []int64{sum.count, sum.items})
	require.Equal(t, []float64{4, 8}, []float64{sum.flops[PrecisionUnset], sum.flops[BF16]})
	require.EqualValues(t, []int64{1, 3}, []int64{b.timed.count.Load(), b.timed.read.Load()})
}

// A turn takes a budget of a stream's sections, none that were read later than is wanted, and each once.
func TestAStreamsTurnOfTheEmitter(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "main")
	const n = 2*emitBudget + 3
	require.NoError(t, f.p.emitter.call(context.Background(), func() {
		for i := range int64(n) {
			q := queued{read: i}
			q.op, q.ctx, q.startNs, q.endNs = f.p.state(testOp), context.Background(), i+1, i+2
			s.emits = append(s.emits, q)
		}
		s.inFlight.Store(n)
		e := f.p.emitter
		made := func() int { return len(f.spans.Ended()) }
		require.False(t, e.turn(s, -1))
		require.Zero(t, made())
		require.False(t, e.turn(s, 4))
		require.Equal(t, 5, made())
		require.True(t, e.turn(s, n))
		require.Equal(t, 5+emitBudget, made())
		require.EqualValues(t, n-made(), s.inFlight.Load())
		for e.turn(s, n) {
		}
		for _, q := range s.emitting[:cap(s.emitting)] {
			require.Nil(t, q.ctx, "what is made keeps nothing alive")
		}
	}))
	spans := f.spans.Ended()
	require.Len(t, spans, n)
	require.True(t, slices.IsSortedFunc(spans, func(a, b sdktrace.ReadOnlySpan) int {
		return a.StartTime().Compare(b.StartTime())
	}))
	require.Zero(t, s.inFlight.Load())
}
