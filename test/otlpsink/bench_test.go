// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlpsink

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/otlp"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

var (
	op   = gpuspan.NewOperation("decode", gpuspan.Category("decode"), gpuspan.ItemType("token"))
	work = gpuspan.Work{Read: 1 << 20, Written: 1 << 20, Items: 8, FLOPs: 1e9, Precision: gpuspan.BF16}
)

var parent = trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
	TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
}))

// TestASectionAllocatesNothing includes all goroutines: caller, polling thread, emitter and sender.
func TestASectionAllocatesNothing(t *testing.T) {
	sink, err := otlp.New(otlp.To(&client{discard: true}))
	require.NoError(t, err)
	set := settings.Default()
	set.Slots, set.Report = 4096, false
	p, err := gpuspan.New(newDevice(), gpuspan.WithSink(sink), gpuspan.WithSettings(func(s *settings.Settings) { *s = set }),
		gpuspan.WithMeterProvider(noop.NewMeterProvider()))
	require.NoError(t, err)
	s := p.Stream(3, "main", gpuspan.NeverCaptured())
	run := func(n int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			for range 1000 {
				op.Start(parent, s).EndWith(work)
			}
			require.NoError(t, p.Flush(context.Background()))
		}
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	run(10) // buffers grow to their size
	require.Less(t, run(20), uint64(20_000/10), "allocations of 20,000 sections, including twenty flushes")
	require.NoError(t, p.Shutdown(context.Background()))
	require.NoError(t, sink.Shutdown(context.Background()))
}

// BenchmarkSectionToBytes measures a section from Start to OTLP bytes without waiting: a thousand
// are started, then flushed. Use it for profiling; TestCostOfASection includes the cost of waking
// threads.
func BenchmarkSectionToBytes(b *testing.B) {
	c := &client{discard: true}
	sink, err := otlp.New(otlp.To(c))
	require.NoError(b, err)
	set := settings.Default()
	set.Slots, set.Report = 4096, false
	p, err := gpuspan.New(newDevice(), gpuspan.WithSink(sink), gpuspan.WithSettings(func(s *settings.Settings) { *s = set }),
		gpuspan.WithMeterProvider(noop.NewMeterProvider()))
	require.NoError(b, err)
	s := p.Stream(3, "main", gpuspan.NeverCaptured())
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		for range min(1000, b.N-done) {
			op.Start(parent, s).EndWith(work)
			done++
		}
		require.NoError(b, p.Flush(context.Background()))
	}
	b.StopTimer()
	require.NoError(b, p.Shutdown(context.Background()))
	require.NoError(b, sink.Shutdown(context.Background()))
	require.EqualValues(b, b.N, sink.Stats().Sent)
}
