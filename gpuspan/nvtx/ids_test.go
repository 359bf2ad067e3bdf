// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/nvtx"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// texts returns the texts of all ranges, each of which must have ended.
func texts(t *testing.T, tool *recorder) (out []string) {
	t.Helper()
	open := map[uint64]bool{}
	for _, e := range tool.Events() {
		switch e.Kind {
		case "start":
			open[e.ID] = true
			out = append(out, e.Text)
		case "end":
			require.True(t, open[e.ID])
			delete(open, e.ID)
		}
	}
	require.Empty(t, open)
	return out
}

// A range carries the IDs of its section's span, although that span is created much later.
func TestRangesCarryTheIDsOfTheirOwnSpans(t *testing.T) {
	tool := newRecorder(t)
	ids := gpuspan.NewIDGenerator(nil)
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids), sdktrace.WithSpanProcessor(spans))
	clock := simgpu.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	gpu := simgpu.New(clock)
	prof, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids),
		gpuspan.WithAnnotator(open(t, tool, nvtx.WithIDs(nvtx.IDsInMessage))))
	require.NoError(t, err)
	s, other := prof.Stream(gpu.Stream(0), "main"), prof.Stream(gpu.Stream(0), "other")
	op := gpuspan.NewOperation
	ctx, request := tp.Tracer("t").Start(context.Background(), "request")

	x := op("below_request").Start(ctx, s)
	y := x.Start(op("nested"))
	y.StartOn(op("deeper"), other).End()
	op("by_context").Start(y.Context(ctx), s).End()
	y.End()
	x.End()
	root := op("root").Start(context.Background(), s)
	root.Start(op("in_root")).End()
	tile := root.Start(op("tile", gpuspan.Tile("micro")))
	tile.Start(op("in_tile")).End()
	tile.End()
	root.End()
	for sctx, step := range train.NewLoop(prof, "train", s, train.TotalSteps(2), train.StepTraces()).Steps(ctx) {
		f := step.Phase(train.Forward)
		f.Start(op("in_phase")).End()
		f.End()
		op("in_step").Start(sctx, other).End()
		clock.Advance(time.Millisecond)
	}
	request.End()
	clock.Advance(time.Second)
	require.NoError(t, prof.Shutdown(context.Background()))

	want := map[string]bool{}
	for _, span := range spans.Ended() {
		if span.Name() != "request" {
			sc := span.SpanContext()
			want[span.Name()+" trace_id="+sc.TraceID().String()+" span_id="+sc.SpanID().String()] = true
		}
	}
	require.Len(t, want, 15)
	got := map[string]bool{}
	for _, text := range texts(t, tool) {
		if strings.HasPrefix(text, "tile") { // has no span: uses the enclosing one
			root := find(t, spans, "root").SpanContext()
			require.Equal(t, "tile trace_id="+root.TraceID().String()+" span_id="+root.SpanID().String(), text)
			continue
		}
		got[text] = true
	}
	require.Equal(t, want, got)
	require.Equal(t, find(t, spans, "root").SpanContext().SpanID(), find(t, spans, "in_tile").Parent().SpanID())
}

func find(t *testing.T, spans *tracetest.SpanRecorder, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	for _, s := range spans.Ended() {
		if s.Name() == name {
			return s
		}
	}
	t.Fatalf("no span %q", name)
	return nil
}

// Regardless of the sampler, no ID is issued twice and none is lost: ranges of sections whose span
// is dropped name a span that does not exist, all others the right one.
func TestRangesUnderSamplers(t *testing.T) {
	for name, sampler := range map[string]sdktrace.Sampler{
		"ratio": sdktrace.TraceIDRatioBased(0.5), "parent or ratio": sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.5)),
		"never": sdktrace.NeverSample(),
	} {
		t.Run(name, func(t *testing.T) {
			tool := newRecorder(t)
			tool.Clear()
			ids := gpuspan.NewIDGenerator(nil)
			spans := tracetest.NewSpanRecorder()
			tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids), sdktrace.WithSpanProcessor(spans),
				sdktrace.WithSampler(sampler))
			var errs []error
			prof, err := gpuspan.New(nil, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids),
				gpuspan.WithAnnotator(open(t, tool, nvtx.WithIDs(nvtx.IDsInMessage))),
				gpuspan.WithErrorHandler(func(err error) { errs = append(errs, err) }))
			require.NoError(t, err)
			s := prof.Stream(0, "s")
			op := gpuspan.NewOperation("op")
			for range 50 {
				ctx, request := tp.Tracer("t").Start(context.Background(), "request")
				op.Start(ctx, s).End()
				request.End()
				op.Start(context.Background(), s).End()
				require.NoError(t, prof.Flush(context.Background()))
			}
			require.NoError(t, prof.Shutdown(context.Background()))
			require.Empty(t, errs)
			ranges := map[string]int{}
			for _, text := range texts(t, tool) {
				ranges[text]++
			}
			n := 0
			for _, span := range spans.Ended() {
				if span.Name() == "op" {
					sc := span.SpanContext()
					require.Equal(t, 1, ranges["op trace_id="+sc.TraceID().String()+" span_id="+sc.SpanID().String()])
					n++
				}
			}
			if name != "never" {
				require.Greater(t, n, 20)
			}
		})
	}
}

func TestAProviderWithAnotherGeneratorIsNoticed(t *testing.T) {
	tool := newRecorder(t)
	tp := sdktrace.NewTracerProvider()
	var errs []error
	prof, err := gpuspan.New(nil, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(gpuspan.NewIDGenerator(nil)),
		gpuspan.WithAnnotator(open(t, tool, nvtx.WithIDs(nvtx.IDsInMessage))),
		gpuspan.WithErrorHandler(func(err error) { errs = append(errs, err) }))
	require.NoError(t, err)
	s := prof.Stream(0, "s")
	op := gpuspan.NewOperation("op")
	ctx, request := tp.Tracer("t").Start(context.Background(), "request")
	for range 3 {
		tool.Clear()
		op.Start(ctx, s).End()
		require.NoError(t, prof.Flush(context.Background()))
	}
	request.End()
	require.NoError(t, prof.Shutdown(context.Background()))
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "the TracerProvider does not use the profiler's IDGenerator")
	require.Equal(t, []string{"op trace_id=" + request.SpanContext().TraceID().String() + " span_id=" +
		request.SpanContext().SpanID().String()}, texts(t, tool))
}

// Without a tool, only the provider requests IDs from the generator.
func TestWithoutAToolNoIDIsReserved(t *testing.T) {
	t.Setenv("NVTX_INJECTION64_PATH", "")
	a, err := nvtx.Open()
	require.NoError(t, err)
	drawn := &counting{IDGenerator: gpuspan.NewIDGenerator(nil)}
	ids := gpuspan.NewIDGenerator(drawn)
	tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids))
	prof, err := gpuspan.New(nil, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids), gpuspan.WithAnnotator(a))
	require.NoError(t, err)
	s := prof.Stream(0, "s")
	x := gpuspan.NewOperation("op").Start(context.Background(), s)
	require.Zero(t, drawn.n)
	x.End()
	require.NoError(t, prof.Shutdown(context.Background()))
	require.Equal(t, 1, drawn.n)
}

// counting counts what it draws.
type counting struct {
	*gpuspan.IDGenerator
	n int
}

func (c *counting) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	c.n++
	return c.IDGenerator.NewIDs(ctx)
}
