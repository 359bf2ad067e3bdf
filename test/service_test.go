// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
	"github.com/otelgpu/otelgpu/semconv"
)

// The service's work on the device. Kernels have fixed durations, so that derived values are known:
// 1.2 GB in at least 2 ms is at most 0.6 TB/s.
const (
	copyBytes     = int64(64 << 20)
	prefillFLOPs  = 4e11
	prefillTime   = 4 * time.Millisecond
	decodeBytes   = int64(1.2e9)
	decodeTime    = 2 * time.Millisecond
	decodeTokens  = int64(16)
	decodeCount   = 3
	copyBack      = int64(4096)
	queuedTime    = 5 * time.Millisecond
	stepCount     = 3
	stepItems     = int64(512)
	stepFLOPs     = 1e12
	forwardTime   = 3 * time.Millisecond
	backwardTime  = 5 * time.Millisecond
	requestName   = "POST /v1/generate"
	secondRequest = "POST /v1/generate (batched)"
	queuedRequest = "POST /v1/queue"
)

// service is an instrumented inference service on a simulated device. It keeps its sent spans.
type service struct {
	gpu      *simgpu.GPU
	raw      backend.StreamHandle
	profiler *gpuspan.Profiler
	stream   *gpuspan.Stream
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	sent     *tracetest.InMemoryExporter
}

func newService(t *testing.T, endpoint string) *service {
	t.Helper()
	return newServiceWithMeters(t, endpoint, noop.NewMeterProvider())
}

// newServiceWithMeters sends no spans if the endpoint is empty.
func newServiceWithMeters(t *testing.T, endpoint string, meters metric.MeterProvider) *service {
	t.Helper()
	s := &service{sent: tracetest.NewInMemoryExporter()}
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String(string(semconv.ServiceNameKey), "inference"),
			attribute.String(string(semconv.HostIDKey), "fdbf79e8af94cb7f9e8df36789187052"),
			attribute.String(string(semconv.GPUJobIDKey), "e2e"),
		)),
		sdktrace.WithSyncer(s.sent),
	}
	if endpoint != "" {
		otlp, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure())
		require.NoError(t, err)
		options = append(options, sdktrace.WithBatcher(otlp))
	}
	s.provider = sdktrace.NewTracerProvider(options...)
	s.tracer = s.provider.Tracer("service")
	spec := simgpu.DefaultSpec()
	spec.Model = "NVIDIA H100 80GB HBM3"
	s.gpu = simgpu.New(nil, simgpu.WithDevices(spec), simgpu.WithJitter(0))
	s.raw = s.gpu.Stream(0)
	var err error
	s.profiler, err = gpuspan.New(s.gpu, gpuspan.WithTracerProvider(s.provider), gpuspan.WithMeterProvider(meters))
	require.NoError(t, err)
	s.stream = s.profiler.Stream(s.raw, "main")
	require.True(t, s.stream.DeviceTimed())
	return s
}

// close flushes everything; after it sent holds all spans.
func (s *service) close(t *testing.T) tracetest.SpanStubs {
	t.Helper()
	require.NoError(t, s.profiler.Shutdown(t.Context()))
	require.NoError(t, s.provider.ForceFlush(t.Context()))
	spans := s.sent.GetSpans() // before Shutdown, which empties the exporter
	require.NoError(t, s.provider.Shutdown(t.Context()))
	return spans
}

// request serves two requests in one batch and returns the trace ID of the first one.
func (s *service) request(t *testing.T) trace.TraceID {
	t.Helper()
	h2d := gpuspan.NewOperation("h2d.tokens", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned))
	prefill := gpuspan.NewOperation("prefill", gpuspan.Category("prefill"), gpuspan.ItemType("token"))
	attention := gpuspan.NewOperation("attention", gpuspan.Category("attention"))
	decode := gpuspan.NewOperation("decode", gpuspan.Category("decode"), gpuspan.ItemType("token"))

	other, otherSpan := s.tracer.Start(t.Context(), secondRequest, trace.WithSpanKind(trace.SpanKindServer))
	ctx, span := s.tracer.Start(t.Context(), requestName, trace.WithSpanKind(trace.SpanKindServer))

	x := h2d.Start(ctx, s.stream)
	s.gpu.Copy(s.raw, simgpu.Copy{Bytes: copyBytes, Direction: gpuspan.HostToDevice})
	x.EndWith(gpuspan.Work{Bytes: copyBytes})

	x = prefill.Start(ctx, s.stream)
	x.Link(other)
	a := x.Start(attention)
	s.gpu.Launch(s.raw, simgpu.Kernel{Duration: prefillTime})
	a.EndWith(gpuspan.Work{FLOPs: prefillFLOPs, Precision: gpuspan.BF16})
	s.gpu.Launch(s.raw, simgpu.Kernel{Duration: prefillTime / 2})
	x.End()

	for range decodeCount {
		x = decode.Start(ctx, s.stream)
		s.gpu.Launch(s.raw, simgpu.Kernel{Duration: decodeTime})
		x.EndWith(gpuspan.Work{Read: decodeBytes, Items: decodeTokens})
	}
	// Declared without work: as short as an empty section, so it has no rate.
	x = gpuspan.NewOperation("d2h.skipped", gpuspan.Copy(gpuspan.DeviceToHost, gpuspan.Pinned)).Start(ctx, s.stream)
	x.EndWith(gpuspan.Work{Bytes: copyBack})
	s.gpu.Wait(s.raw)
	span.End()
	otherSpan.End()
	return span.SpanContext().TraceID()
}

// queue responds as soon as the work is launched, so device spans end after the request's span. Its
// times are explicit, so that their order does not depend on the machine.
func (s *service) queue(t *testing.T) trace.TraceID {
	t.Helper()
	embed := gpuspan.NewOperation("embed")
	answered := time.Now()
	ctx, span := s.tracer.Start(t.Context(), queuedRequest, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(answered.Add(-time.Minute)))
	for range 2 {
		x := embed.Start(ctx, s.stream)
		s.gpu.Launch(s.raw, simgpu.Kernel{Duration: queuedTime})
		x.End()
	}
	span.End(trace.WithTimestamp(answered))
	s.gpu.Wait(s.raw)
	return span.SpanContext().TraceID()
}

// train runs a few steps of a loop below one span and returns the trace ID.
func (s *service) train(t *testing.T) trace.TraceID {
	t.Helper()
	ctx, span := s.tracer.Start(t.Context(), "fit")
	loop := train.NewLoop(s.profiler, "train", s.stream, train.Items("image"), train.TotalSteps(stepCount),
		train.ModelDevices(1, gpuspan.BF16))
	for _, step := range loop.Steps(ctx) {
		phase := step.Phase(train.Forward)
		s.gpu.Launch(s.raw, simgpu.Kernel{Duration: forwardTime})
		phase.End()
		phase = step.Phase(train.Backward)
		s.gpu.Launch(s.raw, simgpu.Kernel{Duration: backwardTime})
		phase.End()
		step.SetItems(stepItems)
		step.SetModelFLOPs(stepFLOPs)
		s.gpu.Wait(s.raw)
	}
	span.End()
	return span.SpanContext().TraceID()
}
