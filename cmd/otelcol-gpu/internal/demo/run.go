// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/semconv"

	"go.opentelemetry.io/otel/attribute"
)

// telemetry is the OpenTelemetry SDK of one of the demo's two services, as any service would set it up.
type telemetry struct {
	traces  *trace.TracerProvider
	metrics *metric.MeterProvider
}

func newTelemetry(ctx context.Context, conn *grpc.ClientConn, service string, attrs ...attribute.KeyValue) (telemetry, error) {
	spans, err := otlptracegrpc.New(ctx, otlptracegrpc.WithGRPCConn(conn))
	if err != nil {
		return telemetry{}, err
	}
	points, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithGRPCConn(conn))
	if err != nil {
		return telemetry{}, errors.Join(err, spans.Shutdown(ctx))
	}
	res := resource.NewSchemaless(append(attrs, attribute.String("service.name", service))...)
	return telemetry{
		traces: trace.NewTracerProvider(trace.WithResource(res), trace.WithBatcher(spans, trace.WithBatchTimeout(500*time.Millisecond))),
		metrics: metric.NewMeterProvider(metric.WithResource(res),
			metric.WithReader(metric.NewPeriodicReader(points, metric.WithInterval(2*time.Second)))),
	}, nil
}

func (t telemetry) profiler(gpu *simgpu.GPU) (*gpuspan.Profiler, error) {
	return gpuspan.New(gpu, gpuspan.WithTracerProvider(t.traces), gpuspan.WithMeterProvider(t.metrics))
}

func (t telemetry) shutdown(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}

// runWorkload runs both services until the context ends and flushes what they have measured.
func runWorkload(ctx context.Context, gpu *simgpu.GPU, socket string) (err error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	gpu.Allocate(0, weightBytes+8*int64(parameters))

	var all sync.WaitGroup
	var mu sync.Mutex
	run := func(f func() error) {
		all.Add(1)
		go func() {
			defer all.Done()
			if e := f(); e != nil {
				mu.Lock()
				defer mu.Unlock()
				err = errors.Join(err, e)
			}
		}()
	}
	run(func() error { return inference(ctx, gpu, conn) })
	run(func() error { return training(ctx, gpu, conn) })
	all.Wait()
	return err
}

func inference(ctx context.Context, gpu *simgpu.GPU, conn *grpc.ClientConn) error {
	t, err := newTelemetry(ctx, conn, "inference", attribute.String("service.instance.id", "inference-0"))
	if err != nil {
		return fmt.Errorf("inference: %w", err)
	}
	return t.with(ctx, gpu, func(p *gpuspan.Profiler) {
		raw := gpu.Stream(0)
		s := &service{
			gpu: gpu, stream: p.Stream(uintptr(raw), "inference"), raw: raw, tracer: t.traces.Tracer("demo"),
			ops: newOperations(), queue: make(chan request, 64),
		}
		var worker sync.WaitGroup
		worker.Add(1)
		go func() {
			defer worker.Done()
			s.work()
		}()
		s.arrive(ctx)
		close(s.queue)
		worker.Wait()
	})
}

func training(ctx context.Context, gpu *simgpu.GPU, conn *grpc.ClientConn) error {
	t, err := newTelemetry(ctx, conn, "training",
		attribute.String("service.instance.id", "training-0"),
		semconv.GPUJobIDKey.String("demo"), semconv.GPUJobRankKey.Int(0), semconv.GPUJobWorldSizeKey.Int(1))
	if err != nil {
		return fmt.Errorf("training: %w", err)
	}
	return t.with(ctx, gpu, func(p *gpuspan.Profiler) {
		raw := gpu.Stream(0)
		stream := p.Stream(uintptr(raw), "training")
		tr := &trainer{gpu: gpu, stream: stream, raw: raw, loop: p.Loop("train", stream, gpuspan.ItemType("token"), gpuspan.ModelDevices(1, gpuspan.BF16)), ops: newOperations()}
		tr.run(ctx)
	})
}

// with runs f with a profiler and flushes everything in the order in which it was made.
func (t telemetry) with(ctx context.Context, gpu *simgpu.GPU, f func(*gpuspan.Profiler)) error {
	p, err := t.profiler(gpu)
	if err == nil {
		f(p)
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return errors.Join(err, p.Shutdown(flush), t.shutdown(flush))
}
