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
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/outputs"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// simulated returns a device whose clock the example controls, so that its output is reproducible.
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

// Create operations once, usually as package variables.
var prefill = gpuspan.NewOperation("prefill", gpuspan.Category("prefill"), gpuspan.ItemType("token"))

func Example() {
	prof, gpu, clock, spans := simulated()
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	handle := gpu.Stream(0)
	stream := prof.Stream(handle, "compute")

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
	stream := prof.Stream(gpu.Stream(0), "compute")
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
	stream := prof.Stream(gpu.Stream(0), "compute")
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

// A loop divides a training run into steps, and those into phases.
func Example_loop() {
	prof, gpu, clock, spans := simulated()
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	handle := gpu.Stream(0)
	stream := prof.Stream(handle, "train")

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

// Each run logs checksums of what its sections computed; the first differing line shows where two
// runs diverge.
func Example_outputs() {
	run := func(weight float32) []outputs.Output {
		var log strings.Builder
		prof, gpu, clock, _ := simulated(gpuspan.WithOutputLog(&log))
		stream := prof.Stream(gpu.Stream(0), "compute")
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

// New takes a backend and the application's providers; Shutdown exports the spans of ended
// sections.
func ExampleNew() {
	clock := simgpu.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	gpu := simgpu.New(clock) // cuda.Open() on a machine with a GPU
	tp := sdktrace.NewTracerProvider()
	prof, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(tp), gpuspan.WithErrorHandler(func(err error) {
		fmt.Println(err)
	}))
	if err != nil {
		fmt.Println(err) // the profiler still works, with host times
	}
	fmt.Println(prof.Source(), len(prof.Devices()), prof.Enabled())
	fmt.Println(prof.Shutdown(context.Background()), prof.Enabled())
	// Output:
	// simulated 1 true
	// <nil> false
}

func ExampleWithSettings() {
	prof, gpu, _, _ := simulated(gpuspan.WithSettings(func(s *settings.Settings) { s.Verbosity = settings.VerbosityOff }))
	defer func() { _ = prof.Shutdown(context.Background()) }()
	stream := prof.Stream(gpu.Stream(0), "compute")

	fmt.Println(prefill.Start(context.Background(), stream).Timed())
	prof.SetVerbosity(settings.VerbosityDefault) // while the program runs
	x := prefill.Start(context.Background(), stream)
	fmt.Println(x.Timed())
	x.End()
	// Output:
	// false
	// true
}

func ExampleProfiler_Snapshot() {
	prof, gpu, clock, _ := simulated()
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	handle := gpu.Stream(0)
	stream := prof.Stream(handle, "compute")

	for range 3 {
		x := prefill.Start(ctx, stream)
		gpu.Launch(handle, simgpu.Kernel{Duration: 2 * time.Millisecond})
		x.EndWith(gpuspan.Work{Items: 100})
		clock.Advance(5 * time.Millisecond)
	}

	summary := prof.Snapshot() // needs no spans
	figures, _ := summary.ByName("prefill")
	fmt.Println(figures.Count, "runs,", summary.Total().Round(100*time.Microsecond))
	// Output: 3 runs, 6ms
}

// A host operation, timed as by an SDK span.
func ExampleOperation_RecordMeasured() {
	prof, gpu, _, spans := simulated()
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	stream := prof.Stream(gpu.Stream(0), "compute")
	queue := gpuspan.NewOperation("queue", gpuspan.HostWork())

	start := time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)
	queue.RecordMeasured(ctx, stream, start, 250*time.Millisecond, gpuspan.Work{Items: 4})
	_ = prof.Flush(ctx)
	span := spans.Ended()[0]
	fmt.Println(span.Name(), span.StartTime().UTC().Format(time.TimeOnly), span.EndTime().Sub(span.StartTime()))
	// Output: queue 00:00:01 250ms
}

// Names that are only known at run time, such as layers of a loaded model.
func ExampleStream_StartNamed() {
	prof, gpu, clock, spans := simulated(gpuspan.WithNamed(func(name string) []gpuspan.OperationOption {
		if strings.HasPrefix(name, "layers.") {
			return []gpuspan.OperationOption{gpuspan.Category("layer")}
		}
		return nil
	}))
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	stream := prof.Stream(gpu.Stream(0), "compute")

	for _, layer := range []string{"layers.0", "layers.1"} {
		stream.StartNamed(ctx, layer)
		stream.EndNamed(layer, gpuspan.Work{FLOPs: 1e9})
	}

	clock.Advance(time.Millisecond)
	_ = prof.Flush(ctx)
	for _, s := range spans.Ended() {
		set := attribute.NewSet(s.Attributes()...)
		category, _ := set.Value("gpu.operation.category")
		fmt.Println(s.Name(), category.AsString())
	}
	// Output:
	// layers.0 layer
	// layers.1 layer
}

// A scheduler that needs a section's time requests it before the section ends, and can wait for it.
func ExampleElapsed_Get() {
	prof, gpu, clock, _ := simulated()
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	handle := gpu.Stream(0)
	stream := prof.Stream(handle, "compute")

	x := prefill.Start(ctx, stream)
	gpu.Launch(handle, simgpu.Kernel{Duration: 3 * time.Millisecond})
	elapsed := x.Elapsed()
	x.End()
	_, known := elapsed.Get()
	fmt.Println("known:", known)

	clock.Advance(10 * time.Millisecond)
	_ = prof.Flush(ctx)
	<-elapsed.Done()
	d, known := elapsed.Get()
	fmt.Println("known:", known, d.Round(10*time.Microsecond))
	// Output:
	// known: false
	// known: true 3ms
}

// Functions called within a section find it in their context.
func ExampleSection_Context() {
	prof, gpu, clock, spans := simulated()
	stream := prof.Stream(gpu.Stream(0), "compute")
	decode := gpuspan.NewOperation("decode")
	attention := func(ctx context.Context) { decode.Start(ctx, stream).End() }

	ctx := context.Background()
	x := prefill.Start(ctx, stream)
	attention(x.Context(ctx))
	x.End()

	clock.Advance(time.Millisecond)
	_ = prof.Shutdown(ctx)
	outer, inner := spans.Ended()[0], spans.Ended()[1]
	fmt.Println(inner.Name(), "in", outer.Name(), inner.Parent().SpanID() == outer.SpanContext().SpanID())
	// Output: decode in prefill true
}

// The context of a request carries its stream.
func ExampleContextWithStream() {
	prof, gpu, _, _ := simulated()
	defer func() { _ = prof.Shutdown(context.Background()) }()
	ctx := gpuspan.ContextWithStream(context.Background(), prof.Stream(gpu.Stream(0), "compute"))
	fmt.Println(gpuspan.StreamFromContext(ctx).Name())
	// Output: compute
}

// printed prints the ranges that it is given, as a tool's annotator would open and close them.
type printed struct{ open []string }

func (a *printed) RangeStart(o *gpuspan.Operation, _ trace.SpanContext) uint64 {
	a.open = append(a.open, o.Name())
	fmt.Println("start", o.Name(), o.Info().Category)
	return uint64(len(a.open))
}

func (a *printed) RangeEnd(id uint64) { fmt.Println("end", a.open[id-1]) }

// An annotator gets every section as a range, on the goroutine that starts and ends it.
func ExampleAnnotator() {
	prof, gpu, _, _ := simulated(gpuspan.WithAnnotator(&printed{}))
	defer func() { _ = prof.Shutdown(context.Background()) }()
	stream := prof.Stream(gpu.Stream(0), "compute")

	x := prefill.Start(context.Background(), stream)
	x.Start(gpuspan.NewOperation("attention", gpuspan.Category("layer"))).End()
	x.End()
	// Output:
	// start prefill prefill
	// start attention layer
	// end attention
	// end prefill
}

// With one generator in the profiler and in the SDK, an annotator knows the span of a section
// before the span exists.
func ExampleIDGenerator() {
	ids := gpuspan.NewIDGenerator(nil)
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids), sdktrace.WithSpanProcessor(spans))
	seen, gpu := &spanOfRange{}, simgpu.New(nil)
	prof, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids),
		gpuspan.WithAnnotator(seen))
	if err != nil {
		fmt.Println(err)
	}
	prefill.Start(context.Background(), prof.Stream(gpu.Stream(0), "compute")).End()
	_ = prof.Shutdown(context.Background())
	fmt.Println(spans.Ended()[0].SpanContext().SpanID() == seen.span)
	// Output: true
}

type spanOfRange struct{ span trace.SpanID }

func (a *spanOfRange) RangeStart(_ *gpuspan.Operation, sc trace.SpanContext) uint64 {
	a.span = sc.SpanID()
	return 1
}

func (*spanOfRange) RangeEnd(uint64) {}

// A copy states its direction and the kind of host memory once; each run states its bytes.
func ExampleCopy() {
	prof, gpu, clock, spans := simulated()
	ctx := context.Background()
	handle := gpu.Stream(0)
	stream := prof.Stream(handle, "copies")
	upload := gpuspan.NewOperation("upload weights", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned))

	x := upload.Start(ctx, stream)
	gpu.Launch(handle, simgpu.Kernel{Duration: 2 * time.Millisecond})
	x.EndWith(gpuspan.Work{Bytes: 100 << 20})

	clock.Advance(10 * time.Millisecond)
	_ = prof.Shutdown(ctx)
	for _, kv := range spans.Ended()[0].Attributes() {
		switch kv.Key {
		case "gpu.copy.direction", "gpu.copy.host_memory", "gpu.io.size":
			fmt.Println(kv.Key, kv.Value.String())
		}
	}
	// Unordered output:
	// gpu.copy.direction host_to_device
	// gpu.copy.host_memory pinned
	// gpu.io.size 104857600
}

// Work that is known in parts is added up.
func ExampleWork() {
	prof, gpu, clock, _ := simulated()
	ctx := context.Background()
	stream := prof.Stream(gpu.Stream(0), "compute")

	x := prefill.Start(ctx, stream)
	for range 4 { // layers
		x.Add(gpuspan.Work{Read: 1 << 20, FLOPs: 2e9, Precision: gpuspan.BF16})
	}
	x.EndWith(gpuspan.Work{Items: 512})

	clock.Advance(time.Millisecond)
	_ = prof.Flush(ctx)
	figures, _ := prof.Stats(prefill)
	fmt.Println(figures.Items, "tokens,", figures.Memory.Read>>20, "MiB")
	_ = prof.Shutdown(ctx)
	// Output: 512 tokens, 4 MiB
}

// Times that a server process reports belong to its device, without a backend in this process.
func ExampleOnDevice() {
	spans := tracetest.NewSpanRecorder()
	prof, err := gpuspan.New(nil, gpuspan.WithTracerProvider(
		sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	if err != nil {
		fmt.Println(err)
	}
	server := prof.Stream(0, "server", gpuspan.OnDevice(backend.Device{
		UUID: "GPU-3c8e9d6f-1111-2222-3333-444455556666", Model: "NVIDIA H200",
	}))
	prefill.RecordMeasured(context.Background(), server, time.Now(), 40*time.Millisecond, gpuspan.Work{Items: 512})
	_ = prof.Shutdown(context.Background())
	span := spans.Ended()[0]
	scope := span.InstrumentationScope().Attributes
	id, _ := scope.Value("hw.id")
	fmt.Println(span.EndTime().Sub(span.StartTime()), id.AsString())
	// Output: 40ms GPU-3c8e9d6f-1111-2222-3333-444455556666
}
