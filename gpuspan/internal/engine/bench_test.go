// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

var (
	benchOp   = section.NewOperation("bench", enginetest.Category("bench"))
	benchWork = work.Work{Read: 1 << 20, Written: 1 << 20, FLOPs: 1e9, Precision: work.BF16}
)

func benchProfiler(b *testing.B, opts ...enginetest.Option) (*engine.Profiler, *section.Stream) {
	b.Helper()
	opts = append([]enginetest.Option{enginetest.WithTracerProvider(tracenoop.NewTracerProvider()), enginetest.WithMeterProvider(noop.NewMeterProvider())},
		opts...)
	backend := enginetest.NewBackend()
	backend.Quick = true
	p, err := engine.New(backend, opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return p, p.Stream(3, "bench", enginetest.NeverCaptured())
}

// inBatches measures n runs of f in batches that fit into a stream's slots, and reads the slots
// back in between. It excludes time and allocations of reading back, which the polling thread
// spends (see BenchmarkPollingShare).
func inBatches(b *testing.B, p *engine.Profiler, f func(n int)) {
	b.Helper()
	b.ReportAllocs()
	const batch = 200
	var total time.Duration
	var batches []time.Duration
	var before, after runtime.MemStats
	var allocations, bytes uint64
	for done := 0; done < b.N; done += batch {
		n := min(batch, b.N-done)
		enginetest.Paused(p, func() {
			runtime.ReadMemStats(&before)
			start := time.Now()
			f(n)
			d := time.Since(start)
			total += d
			if n == batch {
				batches = append(batches, d)
			}
			runtime.ReadMemStats(&after)
			allocations += after.Mallocs - before.Mallocs
			bytes += after.TotalAlloc - before.TotalAlloc
		})
		if err := p.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/op")
	if slices.Sort(batches); len(batches) > 0 {
		b.ReportMetric(float64(batches[len(batches)/2].Nanoseconds())/batch, "median-ns/op")
	}
	b.ReportMetric(float64(allocations)/float64(b.N), "allocs/op")
	b.ReportMetric(float64(bytes)/float64(b.N), "B/op")
	if n := p.Drops()["pool_full"]; n > 0 {
		b.Fatalf("%d sections found no slot: the benchmark measures nothing", n)
	}
}

func BenchmarkSectionNil(b *testing.B) {
	ctx := enginetest.Sampled()
	var s *section.Stream
	b.ReportAllocs()
	for b.Loop() {
		x := benchOp.Start(ctx, s)
		x.EndWith(benchWork)
	}
}

func BenchmarkSectionOff(b *testing.B) {
	p, s := benchProfiler(b)
	p.SetEnabled(false)
	ctx := enginetest.Sampled()
	b.ReportAllocs()
	for b.Loop() {
		x := benchOp.Start(ctx, s)
		x.EndWith(benchWork)
	}
}

func BenchmarkSectionUnsampled(b *testing.B) {
	_, s := benchProfiler(b)
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
	}))
	b.ReportAllocs()
	for b.Loop() {
		x := benchOp.Start(ctx, s)
		x.End()
	}
}

// BenchmarkSectionUnsampledNested measures a section within an untimed one.
func BenchmarkSectionUnsampledNested(b *testing.B) {
	_, s := benchProfiler(b)
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
	}))
	outer := benchOp.Start(ctx, s)
	b.ReportAllocs()
	for b.Loop() {
		x := outer.Start(benchOp)
		x.End()
	}
}

// BenchmarkSectionContext measures passing a section in a context.
func BenchmarkSectionContext(b *testing.B) {
	_, s := benchProfiler(b)
	ctx := enginetest.Sampled()
	x := benchOp.Start(ctx, s)
	defer x.End()
	b.ReportAllocs()
	for b.Loop() {
		benchContext = x.Context(ctx)
	}
}

var benchContext context.Context

func BenchmarkSectionUnsampledWithWork(b *testing.B) {
	_, s := benchProfiler(b)
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
	}))
	b.ReportAllocs()
	for b.Loop() {
		x := benchOp.Start(ctx, s)
		x.EndWith(benchWork)
	}
}

// BenchmarkSectionBookkeeping measures Start and EndWith without a driver: the cost of the library
// itself.
func BenchmarkSectionBookkeeping(b *testing.B) {
	p, s := benchProfiler(b)
	ctx := enginetest.Sampled()
	inBatches(b, p, func(n int) {
		for range n {
			x := benchOp.Start(ctx, s)
			x.EndWith(benchWork)
		}
	})
}

func BenchmarkSectionNested(b *testing.B) {
	p, s := benchProfiler(b)
	ctx := enginetest.Sampled()
	var outer section.Section
	inBatches(b, p, func(n int) {
		outer = benchOp.Start(ctx, s)
		for range n {
			outer.Start(benchOp).EndWith(benchWork)
		}
		outer.End()
	})
}

// BenchmarkOTelSpanInline is the baseline: an SDK span with eight attributes, started and ended in
// the caller.
func BenchmarkOTelSpanInline(b *testing.B) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(discard{})))
	defer func() { _ = tp.Shutdown(context.Background()) }()
	tracer := tp.Tracer("bench")
	ctx := enginetest.Sampled()
	b.ReportAllocs()
	for b.Loop() {
		inlineSpan(ctx, tracer)
	}
}

func inlineSpan(ctx context.Context, tracer trace.Tracer) {
	_, span := tracer.Start(ctx, "bench")
	span.SetAttributes(
		attribute.String("gpu.operation.type", "section"),
		attribute.String("gpu.operation.name", "bench"),
		attribute.String("gpu.operation.category", "bench"),
		attribute.Int64("gpu.io.read.size", 1<<20),
		attribute.Int64("gpu.io.write.size", 1<<20),
		attribute.Int64("gpu.io.size", 2<<20),
		attribute.Float64("gpu.flop.count", 1e9),
		attribute.String("gpu.flop.precision", "bf16"),
	)
	span.End()
}

// BenchmarkSectionLive measures Start and EndWith as in a service, while the polling thread reads
// sections back and creates spans. Bursts of SDK spans alternate with it, and the medians of the
// bursts are reported.
func BenchmarkSectionLive(b *testing.B) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(discard{})))
	defer func() { _ = tp.Shutdown(context.Background()) }()
	p, s := benchProfiler(b, enginetest.WithTracerProvider(tp), enginetest.WithSlots(4096))
	tracer, ctx := tp.Tracer("bench"), enginetest.Sampled()
	const burst = 20
	timed := func(f func()) float64 {
		start := time.Now()
		for range burst {
			f()
		}
		return float64(time.Since(start).Nanoseconds()) / burst
	}
	var sections, spans []float64
	for done := 0; done < b.N; done += burst {
		sections = append(sections, timed(func() { benchOp.Start(ctx, s).EndWith(benchWork) }))
		spans = append(spans, timed(func() { inlineSpan(ctx, tracer) }))
		time.Sleep(time.Millisecond)
	}
	slices.Sort(sections)
	slices.Sort(spans)
	b.ReportMetric(sections[len(sections)/2], "ns/op")
	b.ReportMetric(spans[len(spans)/2]/sections[len(sections)/2], "sections/span")
	b.ReportMetric(float64(p.Drops()["pool_full"]), "dropped")
}

type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }

func (discard) Shutdown(context.Context) error { return nil }

// BenchmarkPollingThread measures reading a section back and creating its span.
func BenchmarkPollingThread(b *testing.B) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(discard{})))
	defer func() { _ = tp.Shutdown(context.Background()) }()
	p, s := benchProfiler(b, enginetest.WithTracerProvider(tp))
	ctx := enginetest.Sampled()
	b.ReportAllocs()
	const batch = 200
	var total time.Duration
	for done := 0; done < b.N; done += batch {
		n := min(batch, b.N-done)
		_ = p.Poller.Call(context.Background(), func() {
			for range n {
				benchOp.Start(ctx, s).EndWith(benchWork)
			}
			start := time.Now()
			p.Poller.Drain(s)
			total += time.Since(start)
		})
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/op")
}
