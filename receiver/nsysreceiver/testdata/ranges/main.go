// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command ranges makes NVTX ranges of sections on a simulated device, and prints of each its operation, trace and span
// id.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/nvtx"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

type printer struct{}

func (printer) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		fmt.Println(s.Name(), s.SpanContext().TraceID(), s.SpanContext().SpanID())
	}
	return nil
}

func (printer) Shutdown(context.Context) error { return nil }

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		nvtx.Exit(1)
	}
	nvtx.Exit(0)
}

func run(count string) error {
	runtime.LockOSThread() // a range belongs to the launches of the thread that began and ended it
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	ids := gpuspan.NewIDGenerator(nil)
	tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids), sdktrace.WithSyncer(printer{}))
	ranges, err := nvtx.Open()
	if err != nil {
		return err
	}
	gpu := simgpu.New(nil)
	prof, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids),
		gpuspan.WithAnnotator(ranges))
	if err != nil {
		return err
	}
	stream := prof.Stream(uintptr(gpu.Stream(0)), "main")
	var ops []*gpuspan.Operation
	for _, name := range []string{"prefill", "decode", "sample", "copy"} {
		ops = append(ops, gpuspan.NewOperation(name))
	}
	ctx := context.Background()
	for i := range n {
		ops[i%len(ops)].Start(ctx, stream).End()
		if i%100 == 99 { // a stream holds so many that are not read
			if err := prof.Flush(ctx); err != nil {
				return err
			}
		}
	}
	if err := prof.Shutdown(ctx); err != nil {
		return err
	}
	return tp.Shutdown(ctx)
}
