// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu_test

import (
	"context"
	"fmt"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// A test of an instrumented program needs no GPU: the test moves the clock.
func ExampleNew() {
	clock := simgpu.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	gpu := simgpu.New(clock, simgpu.WithJitter(0), simgpu.WithTick(0), simgpu.WithClockError(0, 0))
	spans := tracetest.NewSpanRecorder()
	prof, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(
		sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	if err != nil {
		fmt.Println(err)
	}
	handle := gpu.Stream(0)
	x := gpuspan.NewOperation("matmul").Start(context.Background(), prof.Stream(handle, "compute"))
	gpu.Launch(handle, simgpu.Kernel{Duration: 7 * time.Millisecond})
	x.End()
	clock.Advance(10 * time.Millisecond)
	_ = prof.Shutdown(context.Background())
	span := spans.Ended()[0]
	fmt.Println(span.Name(), span.EndTime().Sub(span.StartTime()).Round(10*time.Microsecond))
	// Output: matmul 7ms
}
