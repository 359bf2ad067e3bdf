// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

func TestNestedSectionsHaveTheRightParents(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	a, b, c := gpuspan.NewOperation("a"), gpuspan.NewOperation("b"), gpuspan.NewOperation("c")
	ctx, request := r.tp.Tracer("test").Start(context.Background(), "request")
	xa := a.Start(ctx, s)
	xb := xa.Start(b)
	xc := b.Start(xb.Context(ctx), s) // by context
	_, host := r.tp.Tracer("test").Start(xb.Context(ctx), "host")
	host.End()
	r.busy(h, time.Millisecond)
	xc.End()
	xb.End()
	xd := xa.Start(c)
	xd.End()
	xa.End()
	request.End()
	r.clock.Advance(5 * time.Millisecond)
	r.flush()

	bs := r.named("b")
	require.Len(t, bs, 2)
	outer, inner := bs[0], bs[1]
	if outer.Parent().SpanID() == inner.SpanContext().SpanID() {
		outer, inner = inner, outer
	}
	root := r.named("a")[0]
	require.Equal(t, request.SpanContext().SpanID(), root.Parent().SpanID())
	require.Equal(t, root.SpanContext().SpanID(), outer.Parent().SpanID())
	require.Equal(t, outer.SpanContext().SpanID(), inner.Parent().SpanID())
	require.Equal(t, root.SpanContext().SpanID(), r.named("c")[0].Parent().SpanID())
	require.Equal(t, request.SpanContext().SpanID(), r.named("host")[0].Parent().SpanID(), "host spans become siblings")

	// Parents are created before their children.
	seen := map[trace.SpanID]bool{}
	for _, s := range r.spans.Started() {
		if p := s.Parent(); p.IsValid() {
			require.True(t, seen[p.SpanID()], s.Name())
		}
		seen[s.SpanContext().SpanID()] = true
	}
	require.False(t, inner.StartTime().Before(outer.StartTime()))
	require.False(t, inner.EndTime().After(outer.EndTime().Add(time.Microsecond)))
}

func TestInnerSectionsDoNotWaitForTheOuterOnesSlot(t *testing.T) {
	r := newRig(t, slots(4))
	s, h := r.stream()
	outer, inner := gpuspan.NewOperation("outer"), gpuspan.NewOperation("inner")
	x := outer.Start(context.Background(), s)
	for range 50 {
		y := x.Start(inner)
		require.True(t, y.Timed())
		r.busy(h, 10*time.Microsecond)
		y.End()
		r.clock.Advance(100 * time.Microsecond)
		r.flush()
	}
	require.Empty(t, r.named("inner"), "a nest waits until its outermost section resolves")
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.named("inner"), 50)
	require.Len(t, r.named("outer"), 1)
}

func TestSectionsNestAcrossStreamsAndGoroutines(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("outer")
	inner := gpuspan.NewOperation("inner")
	x := op.Start(context.Background(), s)
	var wg sync.WaitGroup
	for range 4 {
		h := r.gpu.Stream(0)
		other := r.p.Stream(h, "other")
		wg.Go(func() {
			for range 10 {
				y := x.StartOn(inner, other)
				y.Start(inner).End()
				y.End()
			}
		})
	}
	wg.Wait()
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.named("inner"), 80)
	root := r.named("outer")[0].SpanContext()
	n := 0
	for _, s := range r.named("inner") {
		require.Equal(t, root.TraceID(), s.SpanContext().TraceID())
		if s.Parent().SpanID() == root.SpanID() {
			n++
		}
	}
	require.Equal(t, 40, n)
}

func TestASectionWithinAnEndedOneOnlyCounts(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	op, inner := gpuspan.NewOperation("outer"), gpuspan.NewOperation("inner")
	x := op.Start(context.Background(), s)
	x.End()
	y := x.Start(inner)
	require.False(t, y.Timed())
	y.EndWith(gpuspan.Work{Items: 2})
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Empty(t, r.named("inner"))
	f, ok := r.p.Stats(inner)
	require.True(t, ok)
	require.EqualValues(t, 1, f.Count)
	require.EqualValues(t, 2, f.Items)
}

func TestANestDoesNotWaitForeverForAForgottenEnd(t *testing.T) {
	set := settings.Default()
	set.NestDeadline = time.Second
	r := newRig(t, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }))
	s, _ := r.stream()
	op, inner := gpuspan.NewOperation("outer"), gpuspan.NewOperation("inner")
	x := op.Start(context.Background(), s)
	late := x.Start(inner)
	x.Start(inner).End()
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Empty(t, r.named("outer"))
	r.clock.Advance(2 * time.Second)
	r.flush()
	require.Len(t, r.named("outer"), 1)
	require.Len(t, r.named("inner"), 1)
	late.End() // after all
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.named("inner"), 2)
	require.Equal(t, map[string]string{"outer": "1 runs, 0 items", "outer/inner": "2 runs, 0 items"}, tree(r.p))
	for _, s := range r.named("inner") {
		require.Equal(t, r.named("outer")[0].SpanContext().SpanID(), s.Parent().SpanID())
	}
}

func TestChunksAddUpOnTheOuterSection(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	op, part := gpuspan.NewOperation("whole"), gpuspan.NewOperation("part")
	x := op.Start(context.Background(), s)
	for i := range 3 {
		y := x.Start(part)
		y.Chunk(i, 3)
		r.busy(h, time.Millisecond)
		y.EndWith(gpuspan.Work{Read: 100, Written: 10, Items: 4, FLOPs: 1000, Precision: gpuspan.FP16})
	}
	x.End()
	r.clock.Advance(10 * time.Millisecond)
	r.flush()
	a := attrs(r.named("whole")[0])
	require.EqualValues(t, 300, a["gpu.io.read.size"].AsInt64())
	require.EqualValues(t, 30, a["gpu.io.write.size"].AsInt64())
	require.NotContains(t, a, "gpu.io.size", "the sum of the two")
	require.EqualValues(t, 12, a["gpu.operation.items"].AsInt64())
	require.Equal(t, 3000.0, a["gpu.flop.count"].AsFloat64())
	require.EqualValues(t, 3, a["gpu.chunk.count"].AsInt64())
	require.NotContains(t, a, "gpu.chunk.index")
	for i, s := range r.named("part") {
		require.EqualValues(t, i, attrs(s)["gpu.chunk.index"].AsInt64())
		require.EqualValues(t, 3, attrs(s)["gpu.chunk.count"].AsInt64())
	}
}

// Copied bytes of chunks are not device memory traffic of the enclosing section, and nested chunks
// add up at every level.
func TestChunksOfCopiesAndOfChunksAddUp(t *testing.T) {
	r, reader := metricRig(t)
	s, h := r.stream()
	whole, part := gpuspan.NewOperation("whole"), gpuspan.NewOperation("part")
	in := gpuspan.NewOperation("in", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned))
	upload := gpuspan.NewOperation("upload", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned))
	x := whole.Start(context.Background(), s)
	for i := range 2 {
		y := x.Start(part)
		y.Chunk(i, 2)
		for j := range 3 {
			z := y.Start(in)
			z.Chunk(j, 3)
			r.busy(h, time.Millisecond)
			z.EndWith(gpuspan.Work{Bytes: 100, Items: 1})
			z = y.Start(part)
			z.Chunk(j, 3)
			z.AddCopied(gpuspan.DeviceToHost, 7)
			z.EndWith(gpuspan.Work{Read: 10, FLOPs: 50, Precision: gpuspan.FP16})
		}
		y.End()
	}
	x.End()
	x = upload.Start(context.Background(), s)
	y := x.Start(in)
	y.Chunk(0, 1)
	y.EndWith(gpuspan.Work{Bytes: 1000})
	x.End()
	r.clock.Advance(20 * time.Millisecond)
	r.flush()
	a := attrs(r.named("whole")[0])
	require.EqualValues(t, 60, a["gpu.io.read.size"].AsInt64())
	require.EqualValues(t, 600, a["gpu.copy.size.host_to_device"].AsInt64())
	require.EqualValues(t, 42, a["gpu.copy.size.device_to_host"].AsInt64())
	require.EqualValues(t, 6, a["gpu.operation.items"].AsInt64())
	require.Equal(t, 300.0, a["gpu.flop.count"].AsFloat64())
	require.EqualValues(t, 2, a["gpu.chunk.count"].AsInt64())
	f, _ := r.p.Stats(whole)
	require.EqualValues(t, 60, f.Memory.Read)
	require.EqualValues(t, 600, f.PCIe.ToDevice)
	require.EqualValues(t, 42, f.PCIe.FromDevice)
	require.EqualValues(t, 1000, attrs(r.named("upload")[0])["gpu.io.size"].AsInt64(), "a copy in chunks is a copy")
	f, _ = r.p.Stats(upload)
	require.EqualValues(t, 1000, f.PCIe.ToDevice)
	require.Zero(t, f.Memory.Total())
	// Metrics count each byte once, where it was declared.
	require.Equal(t, map[string]int64{"in host_to_device ": 1600, "part ": 60, "part device_to_host ": 42},
		ints(collect(t, reader)["gpu.operation.io"]))
}

func TestTheContextOfAnEndedSectionIsStillGood(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	op, later := gpuspan.NewOperation("op"), gpuspan.NewOperation("later")
	ctx, request := r.tp.Tracer("test").Start(context.Background(), "request")
	x := op.Start(ctx, s)
	inner := x.Context(ctx)
	x.End()
	later.Start(inner, s).End()
	request.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.named("later"), 1)
	require.Equal(t, request.SpanContext().SpanID(), r.named("later")[0].Parent().SpanID())
	require.Zero(t, r.p.Misuse()["stale_parent"])
}

// A section may do work outside its chunks: the step includes all of it.
func TestChunksAreNotAllThatASectionComputes(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	whole, part, rest := gpuspan.NewOperation("whole"), gpuspan.NewOperation("part"), gpuspan.NewOperation("rest")
	for ctx := range train.NewLoop(r.p, "step", s, train.TotalSteps(1)).Steps(context.Background()) {
		x := whole.Start(ctx, s)
		y := x.Start(part)
		y.Chunk(0, 1)
		y.EndWith(gpuspan.Work{FLOPs: 100})
		x.Start(rest).EndWith(gpuspan.Work{FLOPs: 11})
		x.End()
		r.clock.Advance(time.Millisecond)
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Equal(t, 100.0, attrs(r.named("whole")[0])["gpu.flop.count"].AsFloat64())
	require.Equal(t, 111.0, attrs(r.named("step")[0])["gpu.flop.count"].AsFloat64())
}
