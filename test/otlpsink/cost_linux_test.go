// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlpsink

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/otlp"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// cpu is the processor time of the process.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var op = gpuspan.NewOperation("decode", gpuspan.Category("decode"), gpuspan.ItemType("token"))

// variant runs n sections or spans and returns how many of them there were, and what it sent. All end with the bytes of OTLP.
type variant struct {
	name string
	run  func(ctx context.Context, t *testing.T, c *client, n int) int
}

// rate is how many sections a second are started: as many as a busy service has.
const rate = 20_000

// paced calls f n times, in bursts of a millisecond.
func paced(n int, f func()) {
	begin := time.Now()
	for i := range n {
		if i%(rate/1000) == 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / rate)))
		}
		f()
	}
}

func sections(ctx context.Context, t *testing.T, n int, opts ...gpuspan.Option) int {
	set := settings.Default()
	set.Slots, set.Report = 4096, false
	p, err := gpuspan.New(newDevice(), append(opts, gpuspan.WithSettings(set), gpuspan.WithMeterProvider(noop.NewMeterProvider()))...)
	require.NoError(t, err)
	s := p.Stream(3, "main", gpuspan.NeverCaptured())
	w := gpuspan.Work{Read: 1 << 20, Written: 1 << 20, Items: 8, FLOPs: 1e9, Precision: gpuspan.BF16}
	timed := 0
	paced(n, func() {
		x := op.Start(ctx, s)
		if x.Timed() {
			timed++
		}
		x.EndWith(w)
	})
	require.NoError(t, p.Shutdown(context.Background()))
	return timed
}

func sdk(t *testing.T, c *client) *sdktrace.TracerProvider {
	exporter, err := otlptrace.New(context.Background(), c)
	require.NoError(t, err)
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(1<<17)))
}

func inline(ctx context.Context, t *testing.T, c *client, n int) int {
	tp := sdk(t, c)
	tracer := tp.Tracer("inline")
	paced(n, func() {
		_, span := tracer.Start(ctx, "decode")
		span.SetAttributes(
			attribute.String("gpu.operation.type", "section"), attribute.String("gpu.operation.name", "decode"),
			attribute.String("gpu.operation.category", "decode"), attribute.Int64("gpu.io.read.size", 1<<20),
			attribute.Int64("gpu.io.write.size", 1<<20), attribute.Int64("gpu.io.size", 2<<20),
			attribute.Float64("gpu.flop.count", 1e9), attribute.String("gpu.flop.precision", "bf16"),
		)
		span.End()
	})
	require.NoError(t, tp.Shutdown(context.Background()))
	return n
}

var variants = []variant{
	{"a span of the SDK in the caller, eight attributes", inline},
	{"gpuspan, SDK", func(ctx context.Context, t *testing.T, c *client, n int) int {
		tp := sdk(t, c)
		defer func() { require.NoError(t, tp.Shutdown(context.Background())) }()
		return sections(ctx, t, n, gpuspan.WithTracerProvider(tp))
	}},
	{"gpuspan, sink", func(ctx context.Context, t *testing.T, c *client, n int) int {
		s, err := otlp.New(otlp.To(c))
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Shutdown(context.Background())) }()
		return sections(ctx, t, n, gpuspan.WithSink(s))
	}},
	{"gpuspan, no spans made", func(ctx context.Context, t *testing.T, _ *client, n int) int {
		return sections(ctx, t, n, gpuspan.WithSink((*otlp.Sink)(nil)))
	}},
}

// TestCostOfASpan prints what a section costs the process, from Start to the bytes of OTLP. OTLPSINK_SECTIONS sets how many of each there are; the default only
// shows that it works.
func TestCostOfASpan(t *testing.T) {
	n := 2000
	if v := os.Getenv("OTLPSINK_SECTIONS"); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	}))
	var base float64
	for _, v := range variants {
		if only := os.Getenv("OTLPSINK_ONLY"); only != "" && !strings.Contains(v.name, only) {
			continue
		}
		idle := cpu(t)
		paced(n, func() {})
		idle = cpu(t) - idle
		c := &client{discard: true}
		before := cpu(t)
		done := v.run(ctx, t, c, n)
		spent := cpu(t) - before - idle
		require.Positive(t, done, v.name)
		each := float64(spent.Nanoseconds()) / float64(done) / 1e3
		if base == 0 {
			base = each
		}
		if os.Getenv("OTLPSINK_SECTIONS") != "" {
			fmt.Printf("| %s | %d | %.2f | %.2f | %d |\n", v.name, done, each, each/base, c.bytes/done)
		}
	}
}
