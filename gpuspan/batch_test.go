// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/require"
)

func TestABatchLinksToItsRequests(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("batch")
	x := op.Start(context.Background(), s)
	var want []trace.SpanContext
	for i, items := range []int64{10, 30, 0} {
		ctx, req := r.tp.Tracer("test").Start(context.Background(), "request")
		if i == 2 {
			x.Link(ctx)
		} else {
			x.LinkItems(ctx, items)
		}
		want = append(want, req.SpanContext())
		req.End()
	}
	x.Link(context.Background()) // no span, no link
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	span := r.named("batch")[0]
	require.Len(t, span.Links(), 3)
	require.NotContains(t, attrs(span), "gpu.batch.size", "the number of links")
	for i, l := range span.Links() {
		require.Equal(t, want[i].SpanID(), l.SpanContext.SpanID())
	}
	require.Equal(t, []attribute.KeyValue{attribute.Int64("gpu.operation.items", 10)}, span.Links()[0].Attributes)
	require.Equal(t, []attribute.KeyValue{attribute.Int64("gpu.operation.items", 30)}, span.Links()[1].Attributes)
	require.Empty(t, span.Links()[2].Attributes)
}

func TestLinksOfEqualPartsOfTheItemsStateNothing(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	for _, c := range []struct {
		name   string
		of     gpuspan.Work
		shares []int64
		stated int
	}{
		{"equal", gpuspan.Work{Items: 12}, []int64{4, 4, 4}, 0},
		{"one", gpuspan.Work{Items: 7}, []int64{7}, 0},
		{"unknown", gpuspan.Work{}, []int64{0, 0}, 0},
		{"of other items", gpuspan.Work{Items: 13}, []int64{4, 4, 4}, 3},
		{"of none", gpuspan.Work{}, []int64{4, 4}, 2},
		{"unequal", gpuspan.Work{Items: 12}, []int64{4, 8}, 2},
	} {
		x := gpuspan.NewOperation(c.name).Start(context.Background(), s)
		for _, n := range c.shares {
			ctx, request := r.tp.Tracer("test").Start(context.Background(), "request")
			x.LinkItems(ctx, n)
			request.End()
		}
		x.EndWith(c.of)
		r.clock.Advance(time.Millisecond)
		r.flush()
		stated := 0
		for i, l := range r.named(c.name)[0].Links() {
			if len(l.Attributes) > 0 {
				stated++
				require.Equal(t, []attribute.KeyValue{attribute.Int64("gpu.operation.items", c.shares[i])}, l.Attributes, c.name)
			}
		}
		require.Equal(t, c.stated, stated, c.name)
	}
}

func TestABatchOfMoreRequestsThanLinks(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	x := gpuspan.NewOperation("batch").Start(context.Background(), s)
	for range 300 {
		ctx, request := r.tp.Tracer("test").Start(context.Background(), "request")
		x.LinkItems(ctx, 2)
		request.End()
	}
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	span := r.named("batch")[0]
	require.Len(t, span.Links(), 128)
	require.EqualValues(t, 300, attrs(span)["gpu.batch.size"].AsInt64())
	require.InDelta(t, 1.0/300, span.Links()[0].Attributes[1].Value.AsFloat64(), 1e-12, "a share of the whole batch")
}
