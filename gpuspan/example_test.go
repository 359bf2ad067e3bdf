// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/outputs"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// simulated is a device whose clock the example moves, so that its output is always the same.
func simulated(opts ...gpuspan.Option) (*gpuspan.Profiler, *simgpu.GPU, *simgpu.ManualClock, *tracetest.SpanRecorder) {
	clock := simgpu.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	gpu := simgpu.New(clock, simgpu.WithJitter(0), simgpu.WithTick(0), simgpu.WithClockError(0, 0))
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	prof, err := gpuspan.New(gpu, append(opts, gpuspan.WithTracerProvider(tp))...)
	if err != nil {
		fmt.Println(err)
	}
	return prof, gpu, clock, spans
}

// Operations are made once, usually as package variables.
var prefill = gpuspan.NewOperation("prefill", gpuspan.Category("prefill"), gpuspan.ItemType("token"))

func Example() {
	prof, gpu, clock, spans := simulated()
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	handle := gpu.Stream(0)
	stream := prof.Stream(uintptr(handle), "compute")

	x := prefill.Start(ctx, stream)
	gpu.Launch(handle, simgpu.Kernel{Duration: 3 * time.Millisecond})
	x.EndWith(gpuspan.Work{Items: 512, FLOPs: 2e12, Precision: gpuspan.BF16})

	clock.Advance(10 * time.Millisecond) // the device works; End did not wait for it
	_ = prof.Flush(ctx)
	span := spans.Ended()[0]
	fmt.Println(span.Name(), span.EndTime().Sub(span.StartTime()).Round(10*time.Microsecond))
	// Output: prefill 3ms
}

func ExampleSection_Start() {
	prof, gpu, clock, spans := simulated()
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	stream := prof.Stream(uintptr(gpu.Stream(0)), "compute")
	attention := gpuspan.NewOperation("attention")

	x := prefill.Start(ctx, stream)
	x.Start(attention).End()
	x.End()

	clock.Advance(time.Millisecond)
	_ = prof.Flush(ctx)
	for _, s := range spans.Ended() {
		fmt.Println(s.Name(), "has a parent:", s.Parent().IsValid())
	}
	// Output:
	// prefill has a parent: false
	// attention has a parent: true
}

func ExampleSection_LinkItems() {
	prof, gpu, clock, spans := simulated()
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	stream := prof.Stream(uintptr(gpu.Stream(0)), "compute")
	tracer := sdktrace.NewTracerProvider().Tracer("service")

	x := prefill.Start(ctx, stream)
	for _, tokens := range []int64{100, 300} {
		request, span := tracer.Start(ctx, "POST /generate")
		x.LinkItems(request, tokens)
		span.End()
	}
	x.EndWith(gpuspan.Work{Items: 400})

	clock.Advance(time.Millisecond)
	_ = prof.Flush(ctx)
	for _, l := range spans.Ended()[0].Links() {
		for _, kv := range l.Attributes {
			fmt.Println(kv.Key, kv.Value.AsInterface())
		}
	}
	// Output:
	// gpu.operation.items 100
	// gpu.operation.items 300
}

func ExampleLoop_Steps() {
	prof, gpu, clock, spans := simulated()
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	handle := gpu.Stream(0)
	stream := prof.Stream(uintptr(handle), "train")

	loop := train.NewLoop(prof, "train", stream, train.Items("image"), train.Schedule{Every: 2}, train.TotalSteps(4))
	for _, step := range loop.Steps(ctx) {
		forward := step.Phase(train.Forward)
		gpu.Launch(handle, simgpu.Kernel{Duration: 2 * time.Millisecond})
		forward.End()
		step.SetItems(32)
		clock.Advance(5 * time.Millisecond)
	}

	clock.Advance(time.Millisecond)
	_ = prof.Flush(ctx)
	for _, s := range spans.Ended() {
		if s.Name() != "train" {
			continue
		}
		a := attribute.NewSet(s.Attributes()...)
		index, _ := a.Value("gpu.step.index")
		step, _ := a.Value("gpu.step.duration")
		forward, _ := a.Value("gpu.step.phase.duration.forward")
		fmt.Printf("step %d took %.0f ms, forward %.0f ms\n", index.AsInt64(), 1e3*step.AsFloat64(), 1e3*forward.AsFloat64())
	}
	// Output:
	// step 2 took 5 ms, forward 2 ms
	// step 4 took 5 ms, forward 2 ms
}

// Each run keeps a log of what its sections computed; the first line that differs says where they part.
func Example_outputs() {
	run := func(weight float32) []outputs.Output {
		var log strings.Builder
		prof, gpu, clock, _ := simulated(gpuspan.WithOutputLog(&log))
		stream := prof.Stream(uintptr(gpu.Stream(0)), "compute")
		for _, layer := range []*gpuspan.Operation{gpuspan.NewOperation("layer 1"), gpuspan.NewOperation("layer 2")} {
			x := layer.Start(context.Background(), stream)
			output := []float32{1, 2, 3}
			if layer.Name() == "layer 2" {
				output[1] *= weight
			}
			x.Checksum(outputs.Checksum(output))
			x.End()
		}
		clock.Advance(time.Millisecond)
		_ = prof.Shutdown(context.Background())
		outputs, err := outputs.Read(strings.NewReader(log.String()))
		if err != nil {
			fmt.Println(err)
		}
		return outputs
	}
	a, b := run(1), run(1.0000001)
	if i, ok := outputs.FirstDivergence(a, b); ok {
		fmt.Println("the runs part at", a[i].Operation, "run", a[i].Occurrence)
	}
	// Output: the runs part at layer 2 run 1
}

func ExampleOperation_nil() {
	var prof *gpuspan.Profiler // profiling is off
	stream := prof.Stream(0, "compute")
	x := prefill.Start(context.Background(), stream)
	x.EndWith(gpuspan.Work{Items: 1})
	fmt.Println(x.Timed(), prof.Snapshot().Total())
	// Output: false 0s
}
