// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// ranges is an annotator that records its calls.
type ranges struct {
	mu    sync.Mutex
	next  uint64
	open  map[uint64]string
	seen  []string
	trace []trace.TraceID
	span  []trace.SpanID
}

func (a *ranges) RangeStart(o *gpuspan.Operation, sc trace.SpanContext) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next++
	a.open[a.next] = o.Name()
	a.seen = append(a.seen, o.Name())
	a.trace = append(a.trace, sc.TraceID())
	a.span = append(a.span, sc.SpanID())
	return a.next
}

func (a *ranges) RangeEnd(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.open[id]; !ok {
		a.seen = append(a.seen, "ended twice")
	}
	delete(a.open, id)
}

func TestOneAnnotationGivesSpanAndRange(t *testing.T) {
	a := &ranges{open: map[uint64]string{}}
	r := newRig(t, gpuspan.WithAnnotator(a))
	s, _ := r.stream()
	op, inner := gpuspan.NewOperation("op"), gpuspan.NewOperation("inner")
	ctx, request := r.tp.Tracer("test").Start(context.Background(), "request")
	x := op.Start(ctx, s)
	x.Start(inner).End()
	x.End()
	x.End()
	request.End()
	for _, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(1)).Steps(context.Background()) {
		step.Phase(train.Forward).End()
		r.clock.Advance(time.Millisecond)
	}
	op.Start(ctx, s) // never ended: Shutdown ends its range
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.NoError(t, r.p.Shutdown(context.Background()))
	require.Equal(t, []string{"op", "inner", "train", "forward", "op"}, a.seen)
	require.Empty(t, a.open)
	require.Equal(t, request.SpanContext().TraceID(), a.trace[0])
	require.Equal(t, request.SpanContext().TraceID(), a.trace[1])
	require.Equal(t, r.named("train")[0].SpanContext().TraceID(), a.trace[2])
	require.Equal(t, a.trace[2], a.trace[3])
}

// Every started range ends exactly once, whenever the profiler is shut down.
func TestRangesEndWhenTheProfilerShutsDownInTheirMidst(t *testing.T) {
	for range 20 {
		a := &ranges{open: map[uint64]string{}}
		ids := gpuspan.NewIDGenerator(nil)
		tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids))
		p, err := gpuspan.New(nil, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids), gpuspan.WithAnnotator(a),
			slots(64), gpuspan.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		s := p.Stream(0, "s")
		op, inner := gpuspan.NewOperation("op"), gpuspan.NewOperation("inner")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for p.Enabled() {
					x := op.Start(context.Background(), s)
					x.Start(inner).End()
					x.End()
					op.Start(context.Background(), s) // forgotten
				}
			})
		}
		require.Eventually(t, func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.seen) > 10
		}, time.Minute, 100*time.Microsecond)
		require.NoError(t, p.Shutdown(context.Background()))
		wg.Wait()
		require.Empty(t, a.open)
		require.NotContains(t, a.seen, "ended twice")
	}
}
