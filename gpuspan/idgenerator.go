// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
)

// IDSource draws the ids of spans. It is the SDK's sdktrace.IDGenerator, which this package does not import.
type IDSource interface {
	NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID)
	NewSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID
}

// IDGenerator lets sections know the id of their span at Start, long before the span exists, so that range annotations carry it. Give the same one to
// the TracerProvider and to the profiler:
//
//	ids := gpuspan.NewIDGenerator(nil)
//	tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids), …)
//	prof, err := gpuspan.New(backend, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids), gpuspan.WithAnnotator(ranges))
//
// A nil IDGenerator draws at random.
type IDGenerator struct{ next IDSource }

// NewIDGenerator makes a generator that draws from next, such as one for the ids of a tracing service; nil means at random, as the SDK does.
func NewIDGenerator(next IDSource) *IDGenerator { return &IDGenerator{next: next} }

// NewIDs draws ids for the first span of a trace, or hands out those that were reserved for it.
func (g *IDGenerator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if r := reservationOf(ctx); r != nil && r.taken.CompareAndSwap(false, true) {
		return r.ids.trace, r.ids.span
	}
	return g.drawIDs(ctx)
}

// NewSpanID draws an id for a span of a trace, or hands out the one that was reserved for it.
func (g *IDGenerator) NewSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID {
	if r := reservationOf(ctx); r != nil && r.ids.trace == traceID && r.taken.CompareAndSwap(false, true) {
		return r.ids.span
	}
	return g.drawSpanID(ctx, traceID)
}

func (g *IDGenerator) drawIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	if g != nil && g.next != nil {
		return g.next.NewIDs(ctx)
	}
	for !t.IsValid() {
		binary.NativeEndian.PutUint64(t[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(t[8:], rand.Uint64())
	}
	return t, randomSpanID()
}

func (g *IDGenerator) drawSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID {
	if g != nil && g.next != nil {
		return g.next.NewSpanID(ctx, traceID)
	}
	return randomSpanID()
}

func randomSpanID() (s trace.SpanID) {
	for !s.IsValid() {
		binary.NativeEndian.PutUint64(s[:], rand.Uint64())
	}
	return s
}

// spanIDs are the ids that a section's span will have. Zero: none are reserved.
type spanIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

// fit reports whether ids are reserved, in the trace that the span will be in.
func (i *spanIDs) fit(parent trace.SpanContext) bool {
	return i.span.IsValid() && (!parent.IsValid() || parent.TraceID() == i.trace)
}

// reservation travels in the context in which a span is created. It serves one span: others that span processors start in that context
// get ids of their own.
type reservation struct {
	ids   spanIDs
	taken atomic.Bool
}

type reservationKey struct{}

func withReservation(ctx context.Context, ids spanIDs) context.Context {
	return context.WithValue(ctx, reservationKey{}, &reservation{ids: ids})
}

func reservationOf(ctx context.Context) *reservation {
	if ctx == nil {
		return nil
	}
	r, _ := ctx.Value(reservationKey{}).(*reservation)
	return r
}
