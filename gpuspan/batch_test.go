// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
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

// iteration returns the span of a batch of n requests with 1, 2, 3 … items; odd selects the
// unsampled ones.
func iteration(t *testing.T, r *rig, n int, odd func(int) bool) sdktrace.ReadOnlySpan {
	t.Helper()
	s, _ := r.stream()
	x := gpuspan.NewOperation("batch", gpuspan.Batched()).Start(context.Background(), s)
	for i := range n {
		x.LinkItems(requestContext(i, odd == nil || !odd(i)), int64(i+1))
	}
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	spans := r.named("batch")
	return spans[len(spans)-1]
}

func requestContext(i int, sampled bool) context.Context {
	id := trace.TraceID{15: byte(i), 14: byte(i >> 8), 0: 1}
	return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: trace.SpanID{1, 6: id[14], 7: id[15]}, TraceFlags: trace.TraceFlags(0).WithSampled(sampled),
	}))
}

// withLinks returns an option for a provider with a limit of links per span.
func withLinks(spans *tracetest.SpanRecorder, limit int) gpuspan.Option {
	l := sdktrace.NewSpanLimits()
	l.LinkCountLimit = limit
	return gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans),
		sdktrace.WithRawSpanLimits(l)))
}

func TestABatchOf256RequestsKeepsEveryLinkAndItsItems(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	r := newRig(t, withLinks(spans, 1024))
	r.spans = spans
	span := iteration(t, r, 256, nil)
	require.Len(t, span.Links(), 256)
	shares := 0.0
	for i, l := range span.Links() {
		require.Equal(t, trace.SpanContextFromContext(requestContext(i, true)), l.SpanContext)
		require.EqualValues(t, i+1, l.Attributes[0].Value.AsInt64())
		shares += l.Attributes[1].Value.AsFloat64()
	}
	require.InDelta(t, 1, shares, 1e-12)
	require.Len(t, iteration(t, r, 256, nil).Links()[0].Attributes, 1,
		"shares follow from items where all links are known to stay")
	require.NotContains(t, attrs(span), "gpu.batch.size", "the number of links")
	require.Empty(t, r.errs)
}

// The SDK keeps the last links, sampled or not, and shifts all others for each new one.
func TestLinkLimitOfTheSDKIsDetectedCountedAndReported(t *testing.T) {
	r, reader := metricRig(t)
	notSampled := func(i int) bool { return i%2 == 1 }
	first := iteration(t, r, 256, notSampled)
	require.Len(t, first.Links(), 128)
	require.Equal(t, 128, first.DroppedLinks())
	require.EqualValues(t, 256, attrs(first)["gpu.batch.size"].AsInt64())
	require.Equal(t, 129/(256*257/2.), first.Links()[0].Attributes[1].Value.AsFloat64())
	require.Len(t, r.errs, 1)
	require.EqualError(t, r.errs[0],
		"gpuspan: the span of a batch of 256 requests links to 128 of them, usage records of the others lack it "+
			"(the tracer provider keeps as many; set OTEL_SPAN_LINK_COUNT_LIMIT or SpanLimits.LinkCountLimit to 1024)")

	second := iteration(t, r, 256, notSampled)
	require.Len(t, second.Links(), 128)
	require.Zero(t, second.DroppedLinks(), "the limit is known")
	require.EqualValues(t, 256, attrs(second)["gpu.batch.size"].AsInt64())
	for i, l := range second.Links() {
		require.Equal(t, trace.SpanContextFromContext(requestContext(2*i, true)), l.SpanContext,
			"the recorded ones")
		require.Equal(t, float64(2*i+1)/(256*257/2), l.Attributes[1].Value.AsFloat64(), "a share of the whole batch")
	}
	require.EqualValues(t, map[string]int64{"": 256}, ints(collect(t, reader)["gpuspan.links.dropped"]))
}

func TestABatchBeyondTheBoundOfLinksStatesHowManyAreMissing(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	r := newRig(t, withLinks(spans, -1))
	r.spans = spans
	span := iteration(t, r, 1500, func(i int) bool { return i < 476 })
	require.Len(t, span.Links(), 1024)
	for _, l := range span.Links() {
		require.True(t, l.SpanContext.IsSampled(), "a sampled request replaces an unsampled one")
	}
	require.EqualValues(t, 1500, attrs(span)["gpu.batch.size"].AsInt64())
	require.Len(t, r.errs, 1)
	require.ErrorContains(t, r.errs[0], "(gpuspan keeps at most 1,024)")
}
