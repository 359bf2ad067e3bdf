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
	require.EqualValues(t, 3, attrs(span)["gpu.batch.size"].AsInt64())
	for i, l := range span.Links() {
		require.Equal(t, want[i].SpanID(), l.SpanContext.SpanID())
	}
	require.Equal(t, []attribute.KeyValue{attribute.Int64("gpu.operation.items", 10), attribute.Float64("gpu.batch.share", 0.25)}, span.Links()[0].Attributes)
	require.Equal(t, 0.75, span.Links()[1].Attributes[1].Value.AsFloat64())
	require.Empty(t, span.Links()[2].Attributes)
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
