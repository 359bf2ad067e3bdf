// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlpsink

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/otlp"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// cpu returns the CPU time of the process.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// variant creates a pipeline that ends with OTLP bytes. run starts n sections or spans, waits for
// their bytes and returns how many there were.
type variant struct {
	name string
	make func(t *testing.T, c *client) (run func(n int) int, stop func())
}

// rate is the number of sections per second, as in a busy service.
const rate = 20_000

// paced calls f n times, in bursts of five milliseconds. Its own cost is subtracted, and the
// remainder is small compared to the measurement.
func paced(n int, f func()) {
	begin := time.Now()
	for i := range n {
		if i%(rate/200) == 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / rate)))
		}
		f()
	}
}

func sections(t *testing.T, flush, end func(), opts ...gpuspan.Option) (run func(int) int, stop func()) {
	set := settings.Default()
	set.Slots, set.Report = 4096, false
	p, err := gpuspan.New(newDevice(), append(opts, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }),
		gpuspan.WithMeterProvider(noop.NewMeterProvider()))...)
	require.NoError(t, err)
	s := p.Stream(3, "main", gpuspan.NeverCaptured())
	run = func(n int) (timed int) {
		paced(n, func() {
			x := op.Start(parent, s)
			if x.Timed() {
				timed++
			}
			x.EndWith(work)
		})
		require.NoError(t, p.Flush(context.Background()))
		flush()
		return timed
	}
	return run, func() {
		require.NoError(t, p.Shutdown(context.Background()))
		end()
	}
}

func sdk(t *testing.T, c *client) (tp *sdktrace.TracerProvider, flush, stop func()) {
	exporter, err := otlptrace.New(context.Background(), c)
	require.NoError(t, err)
	tp = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(1<<17)))
	return tp, func() { require.NoError(t, tp.ForceFlush(context.Background())) },
		func() { require.NoError(t, tp.Shutdown(context.Background())) }
}

// inline creates SDK spans in the calling code.
func inline(span func(trace.Tracer)) func(*testing.T, *client) (func(int) int, func()) {
	return func(t *testing.T, c *client) (func(int) int, func()) {
		tp, flush, stop := sdk(t, c)
		tracer := tp.Tracer("inline")
		return func(n int) int {
			paced(n, func() { span(tracer) })
			flush()
			return n
		}, stop
	}
}

// narrow creates the span of a program that times on the host.
func narrow(tracer trace.Tracer) {
	_, span := tracer.Start(parent, "decode")
	span.SetAttributes(
		attribute.String("gpu.operation.type", "section"), attribute.String("gpu.operation.name", "decode"),
		attribute.String("gpu.operation.category", "decode"), attribute.Int64("gpu.io.read.size", 1<<20),
		attribute.Int64("gpu.io.write.size", 1<<20), attribute.Int64("gpu.io.size", 2<<20),
		attribute.Float64("gpu.flop.count", 1e9), attribute.String("gpu.flop.precision", "bf16"),
	)
	span.End()
}

// wide creates a span with the attributes of a section and given times: the minimum cost with the
// SDK.
func wide(kv []attribute.KeyValue) func(trace.Tracer) {
	return func(tracer trace.Tracer) {
		start := time.Now()
		_, span := tracer.Start(parent, "decode", trace.WithTimestamp(start))
		span.SetAttributes(kv...)
		span.End(trace.WithTimestamp(start.Add(time.Microsecond)))
	}
}

// attributesOfASection returns the attributes of the second run: the first run has an additional
// one.
func attributesOfASection(t *testing.T) []attribute.KeyValue {
	spans := tracetest.NewSpanRecorder()
	run, stop := sections(t, func() {}, func() {}, gpuspan.WithTracerProvider(
		sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	require.Equal(t, 2, run(2))
	stop()
	return spans.Ended()[1].Attributes()
}

// driver measures the device of this test: two records per section and their reading back. The
// measurements of gpuspan include it, although it is not gpuspan's cost.
func driver(*testing.T, *client) (func(int) int, func()) {
	d := newDevice()
	start, end := &backend.Call{Args: [2]uintptr{1, 3}}, &backend.Call{Args: [2]uintptr{2, 3}}
	return func(n int) int {
		paced(n, func() {
			d.Record(start)
			d.Record(end)
			d.Elapsed(3, 1)
			d.Elapsed(1, 2)
		})
		return n
	}, func() {}
}

func variants(t *testing.T) []variant {
	kv := attributesOfASection(t)
	return []variant{
		{"a span of the SDK in the caller, eight attributes", inline(narrow)},
		{fmt.Sprintf("the same with the %d attributes of a section", len(kv)), inline(wide(kv))},
		{"gpuspan, SDK", func(t *testing.T, c *client) (func(int) int, func()) {
			tp, flush, stop := sdk(t, c)
			return sections(t, flush, stop, gpuspan.WithTracerProvider(tp))
		}},
		{"gpuspan, sink", func(t *testing.T, c *client) (func(int) int, func()) {
			s, err := otlp.New(otlp.To(c))
			require.NoError(t, err)
			return sections(t, func() { require.NoError(t, s.Flush(context.Background())) },
				func() { require.NoError(t, s.Shutdown(context.Background())) }, gpuspan.WithSink(s))
		}},
		{"gpuspan, no spans made", func(t *testing.T, _ *client) (func(int) int, func()) {
			return sections(t, func() {}, func() {}, gpuspan.WithSink((*otlp.Sink)(nil)))
		}},
		{"the device of this test, without gpuspan", driver},
	}
}

// rounds is the number of runs of each variant.
const rounds = 9

// TestCostOfASection prints the cost of a section to the process, from Start to OTLP bytes: CPU
// time of the process without the pacing. The variants alternate, and each figure is the median of
// the rounds, so that other work on the machine affects all of them equally. OTLPSINK_SECTIONS sets
// the number of sections of each; the default only shows that it works.
func TestCostOfASection(t *testing.T) {
	n, figures := 2000, os.Getenv("OTLPSINK_SECTIONS")
	if figures != "" {
		var err error
		n, err = strconv.Atoi(figures)
		require.NoError(t, err)
	}
	type found struct {
		each, ratio []float64
		done, bytes int
	}
	variants := variants(t)
	out := make([]found, len(variants))
	for range rounds {
		idle := cpu(t)
		paced(n/rounds, func() {})
		idle = cpu(t) - idle
		for i, v := range variants {
			c := &client{discard: true}
			run, stop := v.make(t, c)
			warm := run(n / rounds / 10)
			before := cpu(t)
			done := run(n / rounds)
			spent := cpu(t) - before - idle
			stop()
			require.Positive(t, done, v.name)
			f := &out[i]
			f.each = append(f.each, float64(spent.Nanoseconds())/float64(done)/1e3)
			f.ratio = append(f.ratio, f.each[len(f.each)-1]/out[0].each[len(f.each)-1])
			f.done, f.bytes = f.done+done, c.bytes/(warm+done)
		}
	}
	for i, f := range out {
		slices.Sort(f.each)
		slices.Sort(f.ratio)
		if figures != "" {
			fmt.Printf("| %s | %d | %.2f | %.3f (%.3f to %.3f) | %d |\n", variants[i].name, f.done, f.each[rounds/2],
				f.ratio[rounds/2], f.ratio[1], f.ratio[rounds-2], f.bytes)
		}
	}
}
