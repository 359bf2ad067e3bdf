// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package train_test

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// simulated returns a profiler over a device whose clock the example controls.
func simulated() (*gpuspan.Profiler, *simgpu.GPU, *simgpu.ManualClock, *tracetest.SpanRecorder) {
	clock := simgpu.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	gpu := simgpu.New(clock, simgpu.WithJitter(0), simgpu.WithTick(0), simgpu.WithClockError(0, 0))
	spans := tracetest.NewSpanRecorder()
	prof, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(
		sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	if err != nil {
		fmt.Println(err)
	}
	return prof, gpu, clock, spans
}

// A schedule records some of the steps; the loop's body is the same for all.
func ExampleLoop_Steps() {
	prof, gpu, clock, spans := simulated()
	ctx := context.Background()
	stream := prof.Stream(gpu.Stream(0), "train")

	loop := train.NewLoop(prof, "train", stream, train.TotalSteps(6), train.Schedule{SkipFirst: 2, Active: 1, Every: 2})
	for _, step := range loop.Steps(ctx) {
		if step.Recording() {
			fmt.Println("step", step.Index(), "is recorded")
		}
		clock.Advance(time.Millisecond)
	}
	clock.Advance(time.Millisecond)
	_ = prof.Shutdown(ctx)
	fmt.Println(len(spans.Ended()), "spans")
	// Output:
	// step 4 is recorded
	// step 6 is recorded
	// 2 spans
}

// A step is divided into phases; time outside of phases is the rest.
func ExampleStep_Phase() {
	prof, gpu, clock, spans := simulated()
	ctx := context.Background()
	handle := gpu.Stream(0)
	stream := prof.Stream(handle, "train")

	loop := train.NewLoop(prof, "train", stream, train.TotalSteps(1), train.Items("token"))
	for _, step := range loop.Steps(ctx) {
		forward := step.Phase(train.Forward)
		gpu.Launch(handle, simgpu.Kernel{Duration: 2 * time.Millisecond})
		forward.End()
		backward := step.Phase(train.Backward)
		gpu.Launch(handle, simgpu.Kernel{Duration: 4 * time.Millisecond})
		backward.End()
		step.SetItems(4096)
		clock.Advance(6 * time.Millisecond)
	}
	clock.Advance(time.Millisecond)
	_ = prof.Shutdown(ctx)
	for _, s := range spans.Ended() {
		if s.Name() != "train" {
			continue
		}
		set := attribute.NewSet(s.Attributes()...)
		for _, key := range []attribute.Key{"gpu.step.phase.duration.forward", "gpu.step.phase.duration.backward"} {
			v, _ := set.Value(key)
			fmt.Printf("%s %.0f ms\n", key, 1e3*v.AsFloat64())
		}
	}
	// Output:
	// gpu.step.phase.duration.forward 2 ms
	// gpu.step.phase.duration.backward 4 ms
}
