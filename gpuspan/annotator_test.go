// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// ranges is an annotator that keeps account.
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
	for _, step := range r.p.Loop("train", s, gpuspan.TotalSteps(1)).Steps(context.Background()) {
		step.Phase(gpuspan.Forward).End()
		r.clock.Advance(time.Millisecond)
	}
	op.Start(ctx, s) // forgotten: Shutdown ends its range
	r.clock.Advance(time.Millisecond)
	r.flush()
	assert.NoError(t, r.p.Shutdown(context.Background()))
	assert.Equal(t, []string{"op", "inner", "train", "forward", "op"}, a.seen)
	assert.Empty(t, a.open)
	assert.Equal(t, request.SpanContext().TraceID(), a.trace[0])
	assert.Equal(t, request.SpanContext().TraceID(), a.trace[1])
	assert.Equal(t, r.named("train")[0].SpanContext().TraceID(), a.trace[2])
	assert.Equal(t, a.trace[2], a.trace[3])
}
