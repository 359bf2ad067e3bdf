// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sampler_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/sampler"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request returns the context of a request's span.
func request(n byte, sampled bool) context.Context {
	c := trace.SpanContextConfig{TraceID: trace.TraceID{n}, SpanID: trace.SpanID{n}}
	if sampled {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(c))
}

// If some requests of a server are sampled, exactly the batches with a sampled request are
// recorded, with their kernels. All batches are timed.
func TestABatchIsRecordedWithAnyOfItsRequests(t *testing.T) {
	clock := simgpu.NewManualClock(time.Unix(1_700_000_000, 0))
	gpu := simgpu.New(clock)
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans),
		sdktrace.WithSampler(sampler.LinksBased(sdktrace.ParentBased(sdktrace.NeverSample()))))
	p, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(tp))
	require.NoError(t, err)
	s := p.Stream(gpu.Stream(0), "main")
	batch, kernel := gpuspan.NewOperation("batch", gpuspan.Batched()), gpuspan.NewOperation("kernel")

	var want []int64
	for n := range 40 {
		loop := context.Background()
		if n%2 == 1 {
			loop = request(255, false) // the engine's own loop, whose trace is unsampled
		}
		x := batch.Start(loop, s)
		require.True(t, x.Timed())
		sampled := false
		for k := range n % 5 {
			yes := (n*7+k*3)%6 == 0
			sampled = sampled || yes
			x.LinkItems(request(byte(k+1), yes), 10)
		}
		x.Start(kernel).End()
		x.EndWith(gpuspan.Work{Items: int64(n)})
		if sampled {
			want = append(want, int64(n))
		}
		clock.Advance(time.Millisecond)
	}
	require.NoError(t, p.Flush(context.Background()))
	var got []int64
	kernels := 0
	for _, span := range spans.Ended() {
		if span.Name() == "kernel" {
			kernels++
			continue
		}
		for _, kv := range span.Attributes() {
			if kv.Key == "gpu.operation.items" {
				got = append(got, kv.Value.AsInt64())
			}
		}
	}
	require.NotEmpty(t, want)
	require.Less(t, len(want), 30)
	require.Equal(t, want, got)
	require.Equal(t, len(want), kernels)
	for _, o := range p.Snapshot().Operations {
		require.EqualValues(t, 40, o.All.Duration.Count, o.Name)
	}
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestLinksDecideBeforeTheParent(t *testing.T) {
	s := sampler.LinksBased(sdktrace.ParentBased(sdktrace.NeverSample()))
	decide := func(parent context.Context, links ...context.Context) sdktrace.SamplingDecision {
		p := sdktrace.SamplingParameters{ParentContext: parent, TraceID: trace.TraceID{9}, Name: "x"}
		for _, ctx := range links {
			p.Links = append(p.Links, trace.Link{SpanContext: trace.SpanContextFromContext(ctx)})
		}
		return s.ShouldSample(p).Decision
	}
	yes, no := request(1, true), request(2, false)
	require.Equal(t, sdktrace.RecordAndSample, decide(no, no, yes))
	require.Equal(t, sdktrace.Drop, decide(yes, no, no))
	require.Equal(t, sdktrace.RecordAndSample, decide(yes))
	require.Equal(t, sdktrace.Drop, decide(context.Background()))
	require.Contains(t, s.Description(), "LinksBased{ParentBased{root:AlwaysOffSampler")
	require.Equal(t, sdktrace.RecordAndSample, sampler.LinksBased(nil).ShouldSample(
		sdktrace.SamplingParameters{ParentContext: context.Background()}).Decision)
}
