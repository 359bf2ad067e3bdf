// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlpsink

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/connector/gpurequestsconnector"
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/otlp"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// Sends a batch of 256 requests from the library through gpu_requests: each request has its usage
// record with its items, and all records add up to the batch's GPU time. With the SDK's default of
// 128 links, the existing records are still right, and the rest is unassigned.
func TestUsageRecordsOfALargeBatchSumToTheBatch(t *testing.T) {
	for name, c := range map[string]struct {
		limit, accounts int // of the SDK; 0: the sink
	}{"sdk": {1024, 256}, "sdk as it is": {128, 128}, "sink": {0, 256}} {
		t.Run(name, func(t *testing.T) {
			const requests = 256
			td := batchOf(t, requests, c.limit)
			batch := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
			require.Equal(t, c.accounts, batch.Links().Len())
			require.EqualValues(t, requests-c.accounts, batch.DroppedLinksCount())
			duration, _ := batch.Attributes().Get("gpu.duration")
			require.InDelta(t, 0.004, duration.Double(), within.Seconds())

			var out consumertest.TracesSink
			f := gpurequestsconnector.NewFactory()
			conn, err := f.CreateTracesToTraces(t.Context(), connectortest.NewNopSettings(f.Type()), f.CreateDefaultConfig(),
				&out)
			require.NoError(t, err)
			require.NoError(t, conn.Start(t.Context(), componenttest.NewNopHost()))
			require.NoError(t, conn.ConsumeTraces(t.Context(), td))
			require.NoError(t, conn.Shutdown(t.Context()))

			sum, known, items := 0.0, 0.0, int64(requests*(requests+1)/2)
			seen := map[uint64]bool{}
			for _, td := range out.AllTraces() {
				for _, rs := range td.ResourceSpans().All() {
					for _, ss := range rs.ScopeSpans().All() {
						for _, s := range ss.Spans().All() {
							id := s.TraceID()
							n := binary.BigEndian.Uint64(id[8:])
							require.False(t, seen[n])
							seen[n] = true
							v, _ := s.Attributes().Get("gpu.operation.items")
							require.EqualValues(t, n, v.Int(), "request %d has as many items", n)
							v, _ = s.Attributes().Get("gpu.request.batch.size")
							require.Equal(t, float64(requests), v.Double())
							v, _ = s.Attributes().Get("gpu.request.duration")
							require.InEpsilon(t, duration.Double()*float64(n)/float64(items), v.Double(), 1e-9)
							sum += v.Double()
							known += float64(n)
						}
					}
				}
			}
			require.Len(t, seen, c.accounts)
			require.InEpsilon(t, duration.Double()*known/float64(items), sum, 1e-9)
		})
	}
}

// batchOf returns the exported spans of a batch of n requests, which have 1, 2, 3 … items.
func batchOf(t *testing.T, n, limit int) ptrace.Traces {
	t.Helper()
	ctx := context.Background()
	c := &client{}
	clock := simgpu.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	gpu := simgpu.New(clock, simgpu.WithJitter(0), simgpu.WithTick(0), simgpu.WithClockError(0, 0))
	opts := []gpuspan.Option{gpuspan.WithErrorHandler(func(error) {})}
	var end func(context.Context) error
	if limit == 0 {
		sink, err := otlp.New(otlp.To(c))
		require.NoError(t, err)
		opts, end = append(opts, gpuspan.WithSink(sink)), sink.Shutdown
	} else {
		exporter, err := otlptrace.New(ctx, c)
		require.NoError(t, err)
		limits := sdktrace.NewSpanLimits()
		limits.LinkCountLimit = limit
		tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithRawSpanLimits(limits))
		opts, end = append(opts, gpuspan.WithTracerProvider(tp)), tp.Shutdown
	}
	p, err := gpuspan.New(gpu, opts...)
	require.NoError(t, err)
	h := gpu.Stream(0)
	x := gpuspan.NewOperation("decode", gpuspan.ItemType("token"), gpuspan.Batched()).Start(ctx,
		p.Stream(h, "main"))
	for i := range n {
		id := trace.TraceID{0: 1}
		binary.BigEndian.PutUint64(id[8:], uint64(i+1))
		x.LinkItems(trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: id, SpanID: trace.SpanID(id[8:]), TraceFlags: trace.FlagsSampled,
		})), int64(i+1))
	}
	gpu.Launch(h, simgpu.Kernel{Duration: 4 * time.Millisecond})
	x.End()
	clock.Advance(10 * time.Millisecond)
	require.NoError(t, p.Shutdown(ctx))
	require.NoError(t, end(ctx))
	require.Len(t, c.requests, 1)
	r := ptraceotlp.NewExportRequest()
	require.NoError(t, r.UnmarshalProto(c.requests[0]))
	return r.Traces()
}
