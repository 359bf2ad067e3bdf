// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// hostTimed returns a profiler without a driver, so that only the library's own cost is measured.
// Its goroutines sleep until the slots run out.
func hostTimed(tb testing.TB, slots int) (*gpuspan.Profiler, *gpuspan.Stream) {
	tb.Helper()
	p, err := gpuspan.New(nil, set(func(s *settings.Settings) { s.Slots = slots }),
		gpuspan.WithTracerProvider(tracenoop.NewTracerProvider()), gpuspan.WithMeterProvider(metricnoop.NewMeterProvider()),
		gpuspan.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, p.Shutdown(context.Background())) })
	return p, p.Stream(0, "main")
}

func remoteParent(flags trace.TraceFlags) context.Context {
	return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(
		trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: flags}))
}

// The public types must not allocate more than package record, so the test uses them.
func TestAllocationsOfThePublicAPI(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	_, s := hostTimed(t, 1<<14)
	op := gpuspan.NewOperation("op")
	sampled, unsampled := remoteParent(trace.FlagsSampled), remoteParent(0)
	w := gpuspan.Work{Read: 1, Written: 2, Items: 3, FLOPs: 4, Precision: gpuspan.BF16}
	for _, tt := range []struct {
		name string
		want float64
		run  func()
	}{
		{"sampled", 0, func() { op.Start(sampled, s).EndWith(w) }},
		{"root", 0, func() { op.Start(context.Background(), s).EndWith(w) }},
		{"unsampled", 0, func() { op.Start(unsampled, s).EndWith(w) }},
		{"nested", 0, func() {
			x := op.Start(sampled, s)
			x.Start(op).EndWith(w)
			x.End()
		}},
		{"context", 2, func() {
			x := op.Start(sampled, s)
			_ = x.Context(sampled)
			x.End()
		}},
		{"nil stream", 0, func() { op.Start(sampled, nil).EndWith(w) }},
	} {
		const runs = 100 // far fewer than slots, so that no other goroutine wakes up for them
		got := testing.AllocsPerRun(runs, tt.run)
		for i := 0; i < 4 && got > tt.want; i++ { // on a busy machine one wakes up for the time, and allocates, too
			got = min(got, testing.AllocsPerRun(runs, tt.run))
		}
		require.Equal(t, tt.want, got, tt.name)
	}
}

// A slot allocates its rarely used part once, so the test uses slots that already have it.
func TestElapsedCostsTwoAllocations(t *testing.T) {
	_, s := hostTimed(t, 256)
	op := gpuspan.NewOperation("op")
	var open []gpuspan.Section
	for range 101 {
		x := op.Start(context.Background(), s)
		x.Checksum(1) // allocates the rarely used part
		open = append(open, x)
	}
	i := 0
	require.Equal(t, 2.0, testing.AllocsPerRun(100, func() {
		open[i].Elapsed()
		i++
	}))
	for _, x := range open {
		x.End()
	}
}

// BenchmarkSection measures Start and EndWith through the public types, without a driver. Compare
// it with BenchmarkSDKSpan of the same run.
func BenchmarkSection(b *testing.B) {
	p, s := hostTimed(b, 1<<12)
	op := gpuspan.NewOperation("op")
	ctx := remoteParent(trace.FlagsSampled)
	w := gpuspan.Work{Read: 1 << 20, Written: 1 << 20, FLOPs: 1e9, Precision: gpuspan.BF16}
	const batch = 1 << 10 // no more than half of the slots, so that the polling thread is not woken
	b.ReportAllocs()
	for done := 0; done < b.N; done += batch {
		for range min(batch, b.N-done) {
			op.Start(ctx, s).EndWith(w)
		}
		b.StopTimer()
		require.NoError(b, p.Flush(context.Background()))
		b.StartTimer()
	}
}

// BenchmarkSDKSpan measures starting and ending an SDK span with eight attributes.
func BenchmarkSDKSpan(b *testing.B) {
	tp := sdktrace.NewTracerProvider()
	tracer := tp.Tracer("bench")
	ctx := remoteParent(trace.FlagsSampled)
	b.ReportAllocs()
	for b.Loop() {
		_, span := tracer.Start(ctx, "op")
		span.SetAttributes(
			attribute.String("gpu.operation.type", "section"),
			attribute.String("gpu.operation.name", "op"),
			attribute.String("gpu.operation.category", "op"),
			attribute.Int64("gpu.io.read.size", 1<<20),
			attribute.Int64("gpu.io.write.size", 1<<20),
			attribute.Int64("gpu.io.size", 2<<20),
			attribute.Float64("gpu.flop.count", 1e9),
			attribute.String("gpu.flop.precision", "bf16"),
		)
		span.End()
	}
}
