// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
	"github.com/otelgpu/otelgpu/semconv"
)

// telemetry is the OpenTelemetry SDK of one of the demo's two services, as any service would set it
// up.
type telemetry struct {
	traces  *trace.TracerProvider
	metrics *metric.MeterProvider
}

func newTelemetry(ctx context.Context, conn *grpc.ClientConn, service string, attrs ...attribute.KeyValue) (telemetry,
	error,
) {
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
		traces: trace.NewTracerProvider(trace.WithResource(res), trace.WithBatcher(spans,
			trace.WithBatchTimeout(500*time.Millisecond))),
		metrics: metric.NewMeterProvider(metric.WithResource(res),
			metric.WithReader(metric.NewPeriodicReader(points, metric.WithInterval(2*time.Second)))),
	}, nil
}

func (t telemetry) shutdown(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}

// failure is the reason why a workload ended early.
type failure struct{ error }

// runWorkload runs the service and the training job for about duration or until the context ends,
// and flushes their telemetry.
func runWorkload(ctx context.Context, gpu *simgpu.GPU, socket string, duration time.Duration) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	// If one fails the others end, too: ranks wait for each other.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	run := func(f func() error) {
		all.Go(func() {
			if err := f(); err != nil {
				fail(failure{err})
			}
		})
	}
	run(func() error { return inference(ctx, gpu, conn, duration) })
	ranks := &meeting{all: make(chan struct{})}
	for rank := range devices {
		run(func() error { return training(ctx, gpu, conn, rank, ranks) })
	}
	all.Wait()
	if failed := (failure{}); errors.As(context.Cause(ctx), &failed) {
		return failed.error
	}
	return nil
}

func inference(ctx context.Context, gpu *simgpu.GPU, conn *grpc.ClientConn, duration time.Duration) error {
	t, err := newTelemetry(ctx, conn, "inference", attribute.String("service.instance.id", "inference-0"))
	if err != nil {
		return fmt.Errorf("inference: %w", err)
	}
	return t.with(ctx, gpu, 0, func(p *gpuspan.Profiler, q queue) {
		q.allocate(weightBytes)
		s := &service{
			gpu: q, stream: p.Stream(q.stream, "inference"), tracer: t.traces.Tracer("demo"),
			ops: newOperations(), queue: make(chan *request, 64),
		}
		var worker sync.WaitGroup
		worker.Go(s.work)
		s.arrive(ctx, duration*2/5)
		close(s.queue)
		worker.Wait()
	})
}

// training runs one rank of the job, on the device of its number.
func training(ctx context.Context, gpu *simgpu.GPU, conn *grpc.ClientConn, rank int, ranks *meeting) error {
	t, err := newTelemetry(ctx, conn, "training",
		attribute.String("service.instance.id", fmt.Sprint("training-", rank)),
		semconv.GPUJobIDKey.String("demo"), semconv.GPUJobRankKey.Int(rank),
		semconv.GPUJobWorldSizeKey.Int(devices))
	if err != nil {
		return fmt.Errorf("training: %w", err)
	}
	return t.with(ctx, gpu, rank, func(p *gpuspan.Profiler, q queue) {
		q.allocate(8 * parameters) // weights, gradients and the optimizer's two moments
		stream := p.Stream(q.stream, "training")
		loop := train.NewLoop(p, "train", stream, train.Items("token"), train.ModelDevices(1, gpuspan.BF16))
		t := trainer{gpu: q, stream: stream, loop: loop, ops: newOperations(), rank: rank, ranks: ranks}
		t.run(ctx)
	})
}

// with runs f with a stream of a device and a profiler for it, and flushes everything in the order
// of creation.
func (t telemetry) with(ctx context.Context, gpu *simgpu.GPU, device int, f func(*gpuspan.Profiler, queue)) error {
	// Each profiler has its own backend: profilers do not share one.
	own := &struct{ *simgpu.GPU }{gpu}
	p, err := gpuspan.New(own, gpuspan.WithTracerProvider(t.traces), gpuspan.WithMeterProvider(t.metrics))
	if err == nil {
		f(p, queue{gpu, device, gpu.Stream(device)})
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return errors.Join(err, p.Shutdown(flush), t.shutdown(flush))
}

// Control sequences of a terminal (ECMA-48, and xterm's alternate screen, so that tables do not
// stay in what can be scrolled back).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
)

// watchTable shows the table until the workload or the pipeline ends: on a terminal each second, in
// its current size; elsewhere every 10 s, because printed lines cannot be replaced.
func watchTable(ctx context.Context, done <-chan struct{}, out io.Writer, intro string, table *summarytable.Table,
	terminal *os.File,
) {
	period := 10 * time.Second
	if terminal != nil {
		period = time.Second
		fmt.Fprint(out, enterScreen)
		defer fmt.Fprint(out, leaveScreen)
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		if terminal != nil {
			fmt.Fprint(out, frame(intro, table, summarytable.Terminal(terminal)))
		}
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-tick.C:
			if terminal == nil {
				_ = table.Render(out, summarytable.Format{Rows: 12})
			}
		}
	}
}

// frame returns one screen: as much of the introduction as fits above a table of the given lines.
func frame(intro string, table *summarytable.Table, f summarytable.Format) string {
	lines := strings.Split(strings.TrimSpace(wrap(intro, f.Width)), "\n")
	above := 0
	if f.Height > 0 {
		for _, l := range lines {
			above += 1 + len([]rune(l))/max(f.Width, 1)
		}
		if above+1 > f.Height/3 {
			lines = nil
		} else {
			f.Height -= above + 1
		}
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	if lines != nil {
		b.WriteString("\n")
	}
	_ = table.Render(&b, f)
	return home + strings.ReplaceAll(b.String(), "\n", eraseLine+"\r\n") + eraseBelow
}
