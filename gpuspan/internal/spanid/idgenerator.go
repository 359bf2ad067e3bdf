// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanid

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

type Generator struct{ next IDSource }

func New(next IDSource) *Generator { return &Generator{next: next} }

func (g *Generator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if r := reservationOf(ctx); r != nil && r.taken.CompareAndSwap(false, true) {
		return r.IDs.Trace, r.IDs.Span
	}
	return g.DrawIDs(ctx)
}

func (g *Generator) NewSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID {
	if r := reservationOf(ctx); r != nil && r.IDs.Trace == traceID && r.taken.CompareAndSwap(false, true) {
		return r.IDs.Span
	}
	return g.DrawSpanID(ctx, traceID)
}

func (g *Generator) DrawIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	if g != nil && g.next != nil {
		return g.next.NewIDs(ctx)
	}
	for !t.IsValid() {
		binary.NativeEndian.PutUint64(t[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(t[8:], rand.Uint64())
	}
	return t, randomSpanID()
}

func (g *Generator) DrawSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID {
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

// IDs are the reserved IDs of a section's span. Zero: none are reserved.
type IDs struct {
	Trace trace.TraceID
	Span  trace.SpanID
}

// Fit reports whether IDs are reserved, in the trace of the span.
func (i *IDs) Fit(parent trace.SpanContext) bool {
	return i.Span.IsValid() && (!parent.IsValid() || parent.TraceID() == i.Trace)
}

// Reservation is passed in the context in which a span is created. It applies to one span: others
// that span processors start in that context get their own IDs.
type Reservation struct {
	IDs   IDs
	taken atomic.Bool
}

type ReservationKey struct{}

func reservationOf(ctx context.Context) *Reservation {
	if ctx == nil {
		return nil
	}
	r, _ := ctx.Value(ReservationKey{}).(*Reservation)
	return r
}
