// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package benchmarks

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// Each request covers a window of time, with consecutive sections of spanLength on every device.
const (
	devices    = 8
	spanLength = 2 * time.Millisecond
	window     = batchSize / devices * spanLength
	warm       = 60 // requests before the measurement: longer than gpu_join delays the first
	sampleRate = 100 * time.Millisecond
	history    = 2 * time.Minute // history of samples in the rings
)

func deviceID(i int) string { return fmt.Sprintf("GPU-3b1c2f4e-8a67-4d1f-9b3c-5f0e9d7a6c2%d", i) }

// requests returns the batch of sections() as OTLP protobuf, on eight devices and with times from
// zero on.
func requests(tb testing.TB) []byte {
	td := sections()
	rnd := rand.New(rand.NewPCG(3, 4))
	for i, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		start := time.Duration(i/devices) * spanLength
		took := spanLength - time.Duration(rnd.Int64N(int64(spanLength/8)))
		s.SetStartTimestamp(pcommon.Timestamp(start))
		s.SetEndTimestamp(pcommon.Timestamp(start + took))
		s.Attributes().PutStr("hw.id", deviceID(i%devices))
		s.Attributes().PutDouble("gpu.duration", took.Seconds())
		if *costWide {
			stateAll(s, int64(i))
		}
	}
	wire, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(tb, err)
	return wire
}

// stateAll adds attributes that a span may inherit from its scope or that follow from others:
// producers without scope attributes write them on each span.
func stateAll(s ptrace.Span, i int64) {
	a := s.Attributes()
	a.PutStr("gpu.operation.name", s.Name())
	a.PutInt("gpu.operation.occurrence", i)
	a.PutStr("hw.model", "NVIDIA H100 80GB HBM3")
	a.PutStr("hw.vendor", "NVIDIA")
	a.PutStr("gpu.pci.bdf", "0000:17:00.0")
	a.PutInt("gpu.device.ordinal", i%devices)
	a.PutStr("gpu.timing.source", "cuda_event")
	a.PutStr("gpu.timing.status", "ok")
	a.PutDouble("gpu.timing.error", 2.1e-6)
	a.PutDouble("gpu.end.delay", float64(900_000+i*i%20_000)/1e9)
	a.PutDouble("gpu.host.duration", float64(41_000+i*i%20_000)/1e9)
	read, _ := a.Get("gpu.io.read.size")
	write, _ := a.Get("gpu.io.write.size")
	a.PutInt("gpu.io.size", read.Int()+write.Int())
}

// attributesOf returns the number of attributes of each span of a request.
func attributesOf(tb testing.TB, wire []byte) int {
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(wire)
	require.NoError(tb, err)
	return td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().Len()
}

// samplesHost has a gpu_samples extension and its writers.
type samplesHost struct {
	component.Host
	id      component.ID
	ext     component.Component
	writers [devices]devicesamples.DeviceWriter
	next    time.Time // of the next samples
	zero    time.Time
}

func newSamplesHost(tb testing.TB) *samplesHost {
	f := gpusamplesextension.NewFactory()
	ext, err := f.Create(context.Background(), extensiontest.NewNopSettings(f.Type()), f.CreateDefaultConfig())
	require.NoError(tb, err)
	h := &samplesHost{
		Host: componenttest.NewNopHost(), id: component.NewID(f.Type()), ext: ext,
		zero: time.Now().Add(-history),
	}
	h.next = h.zero
	require.NoError(tb, ext.Start(context.Background(), h))
	tb.Cleanup(func() { require.NoError(tb, ext.Shutdown(context.Background())) })
	for i := range h.writers {
		h.writers[i], err = ext.(devicesamples.Writer).Register(component.MustNewID("gpu"), devicesamples.Device{
			ID: deviceID(i), Interval: sampleRate, Source: "dcgm",
		})
		require.NoError(tb, err)
	}
	return h
}

func (h *samplesHost) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{h.id: h.ext}
}

// writeUntil writes all fields of every device at 10 Hz, all of them varying except the throttle
// reasons, which are 0.
func (h *samplesHost) writeUntil(now time.Time) {
	for ; !h.next.After(now); h.next = h.next.Add(sampleRate) {
		s := devicesamples.Sample{Time: h.next.UnixNano()}
		for f := range devicesamples.NumFields {
			v := h.next.Sub(h.zero).Seconds()
			if devicesamples.Field(f).Kind() == devicesamples.KindInterval { // ratios
				v = math.Mod(v, 10) / 10
			}
			s.Set(devicesamples.Field(f), v)
		}
		t := h.next.Sub(h.zero).Seconds() // the power in W, too, so the counter is its integral
		s.Set(devicesamples.Energy, t*t/2)
		s.Set(devicesamples.Throttle, 0)
		for _, w := range h.writers {
			w.Write([]devicesamples.Sample{s})
		}
	}
}

// cost is the cost of one span.
type cost struct {
	cpu    float64 // ns, user and system, of the whole process with its garbage collector
	allocs float64
	bytes  float64
}

func (c cost) minus(d cost) cost { return cost{c.cpu - d.cpu, c.allocs - d.allocs, c.bytes - d.bytes} }

// measure streams requests through a pipeline on a virtual clock, so that gpu_join holds each
// request for as long as in production without a delay in real time; every pipeline includes
// decoding the request and writing the samples.
func measure(t *testing.T, wire []byte, n int, build func(*testing.T, *samplesHost, consumer.Traces) consumer.Traces,
	out consumer.ConsumeTracesFunc,
) (c cost) {
	synctest.Test(t, func(t *testing.T) {
		host := newSamplesHost(t)
		var came atomic.Int64
		sink, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
			came.Add(int64(td.SpanCount()))
			return out(ctx, td)
		})
		require.NoError(t, err)
		first := build(t, host, sink)
		feed := func(from, to int) {
			for i := from; i < to; i++ {
				time.Sleep(window)
				now := time.Now()
				host.writeUntil(now)
				td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(wire)
				if err != nil {
					t.Fatal(err)
				}
				number(td, uint64(i), now.Add(-window))
				if err := first.ConsumeTraces(context.Background(), td); err != nil {
					t.Fatal(err)
				}
			}
		}
		feed(0, warm)
		synctest.Wait()
		runtime.GC()
		before := came.Load()
		var m0, m1 runtime.MemStats
		runtime.ReadMemStats(&m0)
		cpu := processCPU(t)
		feed(warm, warm+n)
		synctest.Wait()
		cpu = processCPU(t) - cpu
		runtime.ReadMemStats(&m1)
		spans := float64(n * batchSize)
		require.InDelta(t, spans, came.Load()-before, 2*batchSize, "as many spans must leave as come")
		c = cost{float64(cpu) / spans, float64(m1.Mallocs-m0.Mallocs) / spans, float64(m1.TotalAlloc-m0.TotalAlloc) / spans}
	})
	return c
}

// number sets the IDs and times of the spans of the n-th request.
func number(td ptrace.Traces, n uint64, from time.Time) {
	rnd := rand.New(rand.NewPCG(n, 5))
	shift := pcommon.Timestamp(from.UnixNano())
	var traces [devices]pcommon.TraceID
	var callers [devices]pcommon.SpanID
	for i, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		on := i % devices
		if i/devices%traceSpans == 0 {
			traces[on], callers[on] = traceID(rnd), spanID(rnd)
		}
		s.SetTraceID(traces[on])
		s.SetSpanID(spanID(rnd))
		s.SetParentSpanID(callers[on])
		s.SetStartTimestamp(s.StartTimestamp() + shift)
		s.SetEndTimestamp(s.EndTimestamp() + shift)
	}
}

// processCPU returns the CPU time of this process, user and system, on all its threads.
func processCPU(tb testing.TB) int64 {
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}
