// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
)

// IDSource draws the ids of spans. It is the SDK's sdktrace.IDGenerator, which this package does not import.
type IDSource interface {
	NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID)
	NewSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID
}

// IDGenerator lets sections know the id of their span at Start, long before the span exists, so that range annotations
// carry it. Give the same one to the TracerProvider and to the profiler:
//
//	ids := gpuspan.NewIDGenerator(nil)
//	tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids), …)
//	prof, err := gpuspan.New(backend, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids), gpuspan.WithAnnotator(ranges))
//
// A nil IDGenerator draws at random.
type IDGenerator engine.IDGenerator

// NewIDGenerator makes a generator that draws from next, such as one for the ids of a tracing service; nil means at
// random, as the SDK does.
func NewIDGenerator(next IDSource) *IDGenerator { return (*IDGenerator)(engine.NewIDGenerator(next)) }

// NewIDs draws ids for the first span of a trace, or hands out those that were reserved for it.
func (g *IDGenerator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	return (*engine.IDGenerator)(g).NewIDs(ctx)
}

// NewSpanID draws an id for a span of a trace, or hands out the one that was reserved for it.
func (g *IDGenerator) NewSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID {
	return (*engine.IDGenerator)(g).NewSpanID(ctx, traceID)
}
