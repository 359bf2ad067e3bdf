// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
)

type IDSource interface {
	NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID)
	NewSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID
}

type IDGenerator struct{ next IDSource }

func NewIDGenerator(next IDSource) *IDGenerator { return &IDGenerator{next: next} }

func (g *IDGenerator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if r := reservationOf(ctx); r != nil && r.taken.CompareAndSwap(false, true) {
		return r.ids.trace, r.ids.span
	}
	return g.drawIDs(ctx)
}

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

// reservation travels in the context in which a span is created. It serves one span: others that span processors start
// in that context get ids of their own.
type reservation struct {
	ids   spanIDs
	taken atomic.Bool
}

type reservationKey struct{}

func reservationOf(ctx context.Context) *reservation {
	if ctx == nil {
		return nil
	}
	r, _ := ctx.Value(reservationKey{}).(*reservation)
	return r
}
