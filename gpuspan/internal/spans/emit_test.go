// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spans"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// Parents are exported first, in whatever order they were read; children of a discarded section
// become children of the outermost one.
func TestTheSpansOfANest(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s := f.P.Stream(3, "main")
	ops := map[uint64]*section.Operation{}
	made := func(id, parent uint64, depth int32, w work.Work) *section.Record {
		ops[id] = section.NewOperation(string(rune('0' + id)))
		r := &section.Record{ID: id, Parent: parent, Depth: depth, Op: f.P.State(ops[id]), Work: w}
		r.StartNs, r.EndNs = int64(id), int64(id)+1
		return r
	}
	require.NoError(t, f.P.Emitter.Call(context.Background(), func() {
		n := &section.Nest{Stream: s, Root: made(1, 0, 0, work.Work{})}
		n.Held = []*section.Record{
			made(4, 3, 3, work.Work{FLOPs: 7}), made(3, 2, 2, work.Work{}), made(2, 1, 1, work.Work{}),
			made(5, 99, 1, work.Work{FLOPs: 1}),
		}
		f.P.Emitter.EmitNest(n)
		require.Equal(t, float64(7), n.Root.ChildFLOPs, "of sections that know their parents")
	}))
	below := map[string]string{}
	names := map[string]string{}
	for _, span := range f.Spans.Ended() {
		names[span.SpanContext().SpanID().String()] = span.Name()
		below[span.Name()] = names[span.Parent().SpanID().String()]
	}
	require.Equal(t, map[string]string{"1": "", "2": "1", "3": "2", "4": "3", "5": "1"}, below)
}

// A turn emits a limited number of a stream's sections, each once, and none that were read after
// the given time.
func TestTheEmitterLimitsEachStream(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s := f.P.Stream(3, "main")
	const n = 2*spans.EmitBudget + 3
	require.NoError(t, f.P.Emitter.Call(context.Background(), func() {
		for i := range int64(n) {
			q := section.Stamped{Read: i}
			q.Op, q.Ctx, q.StartNs, q.EndNs = f.P.State(enginetest.Op), context.Background(), i+1, i+2
			s.Emits = append(s.Emits, q)
		}
		s.InFlight.Store(n)
		e := f.P.Emitter
		made := func() int { return len(f.Spans.Ended()) }
		require.False(t, e.Turn(s, -1))
		require.Zero(t, made())
		require.False(t, e.Turn(s, 4))
		require.Equal(t, 5, made())
		require.True(t, e.Turn(s, n))
		require.Equal(t, 5+spans.EmitBudget, made())
		require.EqualValues(t, n-made(), s.InFlight.Load())
		for e.Turn(s, n) {
		}
		for _, q := range s.Emitting[:cap(s.Emitting)] {
			require.Nil(t, q.Ctx, "what is made keeps nothing alive")
		}
	}))
	spans := f.Spans.Ended()
	require.Len(t, spans, n)
	require.True(t, slices.IsSortedFunc(spans, func(a, b sdktrace.ReadOnlySpan) int {
		return a.StartTime().Compare(b.StartTime())
	}))
	require.Zero(t, s.InFlight.Load())
}

// Exporters and receivers reject a whole batch if one string is not valid UTF-8.
func TestSpansHaveOnlyValidUTF8(t *testing.T) {
	const bad = "a\xff"
	list := []attribute.KeyValue{
		attribute.String("s", bad), attribute.StringSlice("l", []string{"ok", bad}), attribute.String("k\xfe", "v"),
	}
	b := enginetest.NewBackend()
	b.List[0].Model = bad
	f := enginetest.New(t, b, func(c *section.Config) { c.Attributes = list })
	s := f.P.Stream(3, bad)
	op := section.NewOperation(bad, func(c *section.OperationConfig) {
		c.Attributes = list
		c.Info.Category, c.Info.ItemType, c.Info.Description = bad, bad, bad
	})
	x := op.Start(context.Background(), s)
	x.SetAttributes(list...)
	x.EndWith(work.Work{Items: 1})
	for _, st := range f.P.Loop(bad, s, enginetest.TotalSteps(1), func(c *spans.LoopConfig) {
		c.ItemType, c.Attributes = bad, list
	}).Steps(context.Background()) {
		st.SetAttributes(list...)
		st.SetItems(1)
		st.AddPhase(bad, 1)
	}
	f.Flush(t)
	require.Len(t, f.Spans.Ended(), 2)
	all := func(kv []attribute.KeyValue) {
		for _, a := range kv {
			require.True(t, utf8.ValidString(string(a.Key)), "%q", a.Key)
			require.True(t, utf8.ValidString(fmt.Sprint(a.Value.AsInterface())), "%q: %q", a.Key, a.Value.AsInterface())
		}
	}
	for _, x := range f.Spans.Ended() {
		require.True(t, utf8.ValidString(x.Name()))
		all(x.Attributes())
		set := x.InstrumentationScope().Attributes
		all(set.ToSlice())
	}
}
