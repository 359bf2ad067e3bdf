// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// tree returns the report as path → count and items.
func tree(p *gpuspan.Profiler) map[string]string {
	// Snapshot waits 100 ms for the polling thread, which may not be enough on a busy machine
	_ = p.Flush(context.Background())
	out := map[string]string{}
	for _, o := range p.Snapshot().Operations {
		out[strings.Join(o.Path, "/")] = fmt.Sprintf("%d runs, %d items", o.All.Count, o.All.Items)
	}
	return out
}

// unsampledTrace returns the context of an unsampled trace.
func unsampledTrace() context.Context {
	return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(
		trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
}

func TestTheReportsTreeIsTheSameUnderAnySampling(t *testing.T) {
	batch, prefill, attention, copyIn := gpuspan.NewOperation("batch"), gpuspan.NewOperation("prefill"),
		gpuspan.NewOperation("attention"), gpuspan.NewOperation("copy")
	item := gpuspan.Work{Items: 1}
	var want map[string]string
	for _, ratio := range []float64{1, 0, 0.5} {
		r := newRig(t)
		tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.TraceIDRatioBased(ratio)))
		s, _ := r.stream()
		other := r.p.Stream(r.gpu.Stream(0), "other")
		for range 40 {
			ctx, request := tp.Tracer("t").Start(context.Background(), "request")
			x := batch.Start(ctx, s)
			y := x.Start(prefill)
			y.Start(attention).EndWith(item)
			y.StartOn(attention, other).EndWith(item)
			attention.Start(y.Context(ctx), s).EndWith(item)
			y.Add(item)
			y.EndWith(item)
			y.EndWith(item)
			copyIn.Start(x.Context(ctx), s).End()
			x.End()
			attention.Start(ctx, s).EndWith(item) // outermost
			request.End()
			r.clock.Advance(time.Millisecond)
			r.flush()
		}
		got := tree(r.p)
		if want == nil {
			want = got
			require.Equal(t, map[string]string{
				"batch": "40 runs, 0 items", "batch/prefill": "40 runs, 80 items", "batch/prefill/attention": "120 runs, 120 items",
				"batch/copy": "40 runs, 0 items", "attention": "40 runs, 40 items",
			}, got)
		}
		require.Equal(t, want, got, "sampled %v", ratio)
		f, _ := r.p.Stats(attention)
		require.EqualValues(t, 160, f.Count)
	}
}

func TestTheReportsTreeIsTheSameForStepsThatAreSkipped(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	op, inner := gpuspan.NewOperation("op"), gpuspan.NewOperation("inner")
	for ctx, step := range train.NewLoop(r.p, "train", s, train.Schedule{Wait: 1, Warmup: 1, Active: 1},
		train.TotalSteps(6)).Steps(context.Background()) {
		f := step.Phase(train.Forward)
		x := f.Start(op)
		inner.Start(x.Context(ctx), s).End()
		x.End()
		f.End()
		r.clock.Advance(time.Millisecond)
	}
	r.flush()
	require.Equal(t, map[string]string{
		"forward": "6 runs, 0 items", "forward/op": "6 runs, 0 items", "forward/op/inner": "6 runs, 0 items",
	}, tree(r.p))
}

func TestTheReportsTreeIsTheSameWhenThereIsNoSlot(t *testing.T) {
	r := newRig(t, slots(2))
	s, _ := r.stream()
	a, b, c := gpuspan.NewOperation("a"), gpuspan.NewOperation("b"), gpuspan.NewOperation("c")
	for range 5 {
		x := a.Start(context.Background(), s)
		y := x.Start(b)
		z := y.Start(c)
		require.True(t, y.Timed())
		require.False(t, z.Timed())
		z.Start(a).End()
		z.End()
		y.End()
		x.End()
		r.clock.Advance(time.Millisecond)
		r.flush()
	}
	require.Equal(t, map[string]string{
		"a": "5 runs, 0 items", "a/b": "5 runs, 0 items", "a/b/c": "5 runs, 0 items",
		"a/b/c/a": "5 runs, 0 items",
	}, tree(r.p))
}

// Infinite recursion and locations with unbounded children take bounded memory and lose no count.
func TestReportTreeIsBounded(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("recursive")
	x := op.Start(unsampledTrace(), s)
	const deep = 20_000
	for range deep - 1 {
		x = x.Start(op)
	}
	r.flush()
	f, _ := r.p.Stats(op)
	require.EqualValues(t, deep, f.Count)
	outer := gpuspan.NewOperation("outer")
	y := outer.Start(unsampledTrace(), s)
	for i := range 200 {
		y.Start(gpuspan.NewOperation(fmt.Sprint("inner ", i))).EndWith(gpuspan.Work{Items: 1})
	}
	r.flush()
	var n int64
	for _, o := range r.p.Snapshot().Operations {
		if strings.HasPrefix(o.Name, "inner") {
			n += o.All.Items
		}
	}
	require.EqualValues(t, 200, n)
}

func TestReportTreeFromManyGoroutines(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	var ops []*gpuspan.Operation
	for i := range 8 {
		ops = append(ops, gpuspan.NewOperation(fmt.Sprint("op ", i)))
	}
	outer := gpuspan.NewOperation("outer")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 400 {
				x := outer.Start(unsampledTrace(), s)
				y := x.Start(ops[i%8])
				y.Start(ops[(i+1)%8]).EndWith(gpuspan.Work{Items: 1})
				y.End()
				x.End()
			}
		})
	}
	wg.Wait()
	got := tree(r.p)
	require.Len(t, got, 17)
	require.Equal(t, "1600 runs, 0 items", got["outer"])
	for i := range 8 {
		require.Equal(t, "200 runs, 0 items", got[fmt.Sprintf("outer/op %d", i)])
		require.Equal(t, "200 runs, 200 items", got[fmt.Sprintf("outer/op %d/op %d", i, (i+1)%8)])
	}
}

// The enclosing section has the same sums of its chunks whether runs are timed or only counted.
func TestChunksAddUpUnderAnySampling(t *testing.T) {
	for _, ratio := range []float64{1, 0, 0.5} {
		whole, part, stated := gpuspan.NewOperation("whole"), gpuspan.NewOperation("part"), gpuspan.NewOperation("stated")
		in := gpuspan.NewOperation("in", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned))
		r := newRig(t)
		tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.TraceIDRatioBased(ratio)))
		s, _ := r.stream()
		for range 40 {
			ctx, request := tp.Tracer("t").Start(context.Background(), "request")
			x := whole.Start(ctx, s)
			for i := range 2 {
				y := x.Start(part)
				y.Chunk(i, 2)
				z := y.Start(in)
				z.Chunk(0, 1)
				z.EndWith(gpuspan.Work{Bytes: 100, Items: 1})
				y.End()
			}
			x.End()
			x = stated.Start(ctx, s)
			y := x.Start(part)
			y.Chunk(0, 1)
			y.EndWith(gpuspan.Work{Items: 5, FLOPs: 7, Precision: gpuspan.FP16})
			x.EndWith(gpuspan.Work{Items: 1})
			request.End()
			r.clock.Advance(time.Millisecond)
			r.flush()
		}
		require.Equal(t, map[string]string{
			"whole": "40 runs, 80 items", "whole/part": "80 runs, 80 items", "whole/part/in": "80 runs, 80 items",
			"stated": "40 runs, 40 items", "stated/part": "40 runs, 200 items",
		}, tree(r.p), "sampled %v", ratio)
		f, _ := r.p.Stats(whole)
		require.EqualValues(t, 8000, f.PCIe.ToDevice, "sampled %v", ratio)
		require.Zero(t, f.Memory.Total(), "sampled %v", ratio)
		f, _ = r.p.Stats(stated)
		require.Empty(t, f.FLOPs, "sampled %v", ratio)
	}
}
