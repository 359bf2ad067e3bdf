// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
)

var _ sdktrace.IDGenerator = (*gpuspan.IDGenerator)(nil)

func TestIDGeneratorDrawsValidIDsThatDiffer(t *testing.T) {
	ctx := context.Background()
	for _, g := range []*gpuspan.IDGenerator{
		nil, gpuspan.NewIDGenerator(nil),
		gpuspan.NewIDGenerator(gpuspan.NewIDGenerator(nil)),
	} {
		traces, spans := map[trace.TraceID]bool{}, map[trace.SpanID]bool{}
		for range 1000 {
			tid, sid := g.NewIDs(ctx)
			require.True(t, tid.IsValid())
			require.True(t, sid.IsValid())
			traces[tid], spans[sid] = true, true
			spans[g.NewSpanID(ctx, tid)] = true
			spans[g.NewSpanID(nil, tid)] = true //nolint:staticcheck // nil context on purpose
		}
		require.Len(t, traces, 1000)
		require.Len(t, spans, 3000)
	}
}

// numbered generates IDs 1, 2, 3 …, so that a test can see where an ID comes from, and can be made
// to panic.
type numbered struct {
	mu     sync.Mutex
	n      byte
	broken bool
}

func (g *numbered) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.broken {
		panic("generator")
	}
	g.n++
	return trace.SpanID{7: g.n}
}

func (g *numbered) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	s := g.NewSpanID(ctx, trace.TraceID{})
	return trace.TraceID{15: s[7]}, s
}

// nosy is a span processor that starts another span in the context of each section's.
type nosy struct {
	tracer func() trace.Tracer
	inner  trace.SpanContext
}

func (n *nosy) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	if s.Name() != "nosy" {
		_, span := n.tracer().Start(ctx, "nosy")
		n.inner = span.SpanContext()
		span.End()
	}
}

func (*nosy) OnEnd(sdktrace.ReadOnlySpan)      {}
func (*nosy) Shutdown(context.Context) error   { return nil }
func (*nosy) ForceFlush(context.Context) error { return nil }

func TestReservedIDsComeFromTheNextGeneratorAndServeOneSpan(t *testing.T) {
	ids := gpuspan.NewIDGenerator(&numbered{})
	spans := tracetest.NewSpanRecorder()
	var tp *sdktrace.TracerProvider
	n := &nosy{tracer: func() trace.Tracer { return tp.Tracer("nosy") }}
	tp = sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids), sdktrace.WithSpanProcessor(n),
		sdktrace.WithSpanProcessor(spans))
	a := &ranges{open: map[uint64]string{}}
	r := newRig(t, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids), gpuspan.WithAnnotator(a))
	s, _ := r.stream()
	x := gpuspan.NewOperation("op").Start(context.Background(), s)
	x.Start(gpuspan.NewOperation("inner")).End()
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Equal(t, []trace.SpanID{{7: 1}, {7: 2}}, a.span)
	byName := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		byName[s.Name()] = s
	}
	require.Equal(t, trace.TraceID{15: 1}, byName["op"].SpanContext().TraceID())
	require.Equal(t, trace.SpanID{7: 1}, byName["op"].SpanContext().SpanID())
	require.Equal(t, trace.SpanID{7: 2}, byName["inner"].SpanContext().SpanID())
	require.Greater(t, n.inner.SpanID()[7], byte(2))
	require.Empty(t, r.errs)
}

func TestAGeneratorThatPanicsCostsTheIDs(t *testing.T) {
	source := &numbered{}
	ids := gpuspan.NewIDGenerator(source)
	a := &ranges{open: map[uint64]string{}}
	r := newRig(t, gpuspan.WithIDGenerator(ids), gpuspan.WithAnnotator(a))
	s, _ := r.stream()
	ctx, request := r.tp.Tracer("test").Start(context.Background(), "request")
	source.broken = true
	require.NotPanics(t, func() { gpuspan.NewOperation("op").Start(ctx, s).End() })
	request.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.named("op"), 1)
	require.Equal(t, []trace.SpanID{request.SpanContext().SpanID()}, a.span)
	require.NotEmpty(t, r.errs)
	require.ErrorContains(t, r.errs[0], "recovered while an id was drawn: generator")
}
