// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

func TestStartAndEndDoNotAllocate(t *testing.T) {
	p, err := New(newScripted(), WithSlots(1<<12), WithTracerProvider(tracenoop.NewTracerProvider()),
		WithMeterProvider(metricnoop.NewMeterProvider()))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Shutdown(context.Background())) }()
	s := p.Stream(3, "main")
	op := record.NewOperation("op")
	flags := func(f trace.TraceFlags) context.Context {
		return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(
			trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: f}))
	}
	sampled, unsampled := flags(trace.FlagsSampled), flags(0)
	w := work.Work{Read: 1, Written: 2, Items: 3, FLOPs: 4, Precision: work.BF16}
	s.StartNamed(sampled, "known")
	s.EndNamed("known", w)
	for _, tt := range []struct {
		name string
		f    func()
	}{
		{"sampled", func() { op.Start(sampled, s).EndWith(w) }},
		{"root", func() { op.Start(context.Background(), s).EndWith(w) }},
		{"unsampled", func() { op.Start(unsampled, s).EndWith(w) }},
		{"unsampled, nested", func() {
			x := op.Start(unsampled, s)
			x.Start(op).EndWith(w)
			x.End()
		}},
		{"nested", func() {
			x := op.Start(sampled, s)
			y := x.Start(op)
			y.Add(w)
			y.Chunk(1, 2)
			y.EndWith(w)
			x.End()
		}},
		{"named", func() { s.StartNamed(sampled, "known"); s.EndNamed("known", w) }},
		{"nil", func() { op.Start(sampled, nil).EndWith(w) }},
	} {
		paused(p, func() { // what the polling thread allocates for spans is not the caller's
			require.Zero(t, testing.AllocsPerRun(100, tt.f), tt.name)
		})
		flush(t, p)
	}
	require.Zero(t, p.Drops[record.DropPoolFull].Load())
}
