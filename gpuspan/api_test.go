// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// The examples of the library's design document as programs, with stubs for C calls, loaders and
// models. One name differs: the option for the verbosity from which an operation is timed is
// AtVerbosity, because Verbosity is the type.

// cgo launches the work of the inference service below on a simulated device.
type cgo struct {
	gpu   *simgpu.GPU
	clock *simgpu.ManualClock
}

func (c *cgo) busy(s uintptr, d time.Duration) {
	c.gpu.Launch(s, simgpu.Kernel{Duration: d})
}

type request struct{ Ctx context.Context }

type batch struct {
	Bytes, Tokens int64
	Batch, Seq    int
	Requests      []request
}

const heads, headDim = 16, 128

var (
	h2d = gpuspan.NewOperation("h2d.tokens", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned))
	// prefill is declared in example_test.go.
	decode = gpuspan.NewOperation("decode", gpuspan.Category("decode"), gpuspan.ItemType("token"))
	attn   = gpuspan.NewOperation("attention", gpuspan.Category("attention"))

	model = flops.Transformer{Layers: 24, Hidden: 2048, Heads: heads, FFN: 8192, Vocab: 32000}
)

type worker struct {
	C      *cgo
	raw    uintptr // the cudaStream_t of the service
	stream *gpuspan.Stream
}

func (w *worker) run(ctx context.Context, b *batch) {
	x := h2d.Start(ctx, w.stream)
	w.C.busy(w.raw, time.Millisecond) // C.copy_tokens(w.raw, b.host, b.dev, C.size_t(b.Bytes))
	x.EndWith(gpuspan.Work{Bytes: b.Bytes})

	x = prefill.Start(ctx, w.stream)
	for i := range b.Requests {
		x.Link(b.Requests[i].Ctx)
	}
	a := x.Start(attn)
	w.C.busy(w.raw, 2*time.Millisecond) // C.attention(w.raw, b.dev)
	a.EndWith(flops.Attention(b.Batch, heads, b.Seq, b.Seq, headDim, flops.Causal, gpuspan.BF16))
	w.C.busy(w.raw, 3*time.Millisecond) // C.mlp(w.raw, b.dev)
	x.EndWith(gpuspan.Work{
		Items: b.Tokens, FLOPs: model.Prefill(b.Batch, b.Seq, gpuspan.BF16).FLOPs,
		Precision: gpuspan.BF16,
	})

	decode.Launch(ctx, w.stream, func() { w.C.busy(w.raw, 4*time.Millisecond) }) // C.launch_graph(w.raw, w.graph)
}

// An inference service that creates its streams in C.
func Example_inference() {
	prof, gpu, clock, spans := simulated()
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	raw := gpu.Stream(0)
	w := &worker{C: &cgo{gpu, clock}, raw: raw, stream: prof.Stream(raw, "compute")}

	var requests []request
	for i := range 2 {
		sc := trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{byte(i + 1)},
			TraceFlags: trace.FlagsSampled,
		})
		requests = append(requests, request{trace.ContextWithSpanContext(ctx, sc)})
	}
	w.run(requests[0].Ctx, &batch{Bytes: 1 << 20, Tokens: 1024, Batch: 2, Seq: 512, Requests: requests})

	clock.Advance(time.Second)
	_ = prof.Flush(ctx)
	names := map[string]string{}
	for _, s := range spans.Ended() {
		names[s.SpanContext().SpanID().String()] = s.Name()
		fmt.Printf("%-10s %v, %d links, below %s\n", s.Name(), s.EndTime().Sub(s.StartTime()).Round(100*time.Microsecond),
			len(s.Links()), parentName(names, s.Parent()))
	}
	// Output:
	// h2d.tokens 1ms, 0 links, below the request
	// prefill    5ms, 2 links, below the request
	// attention  2ms, 0 links, below prefill
	// decode     4ms, 0 links, below the request
}

func parentName(names map[string]string, parent trace.SpanContext) string {
	if name, ok := names[parent.SpanID().String()]; ok {
		return name
	}
	return "the request"
}

// Stubs of a training program.
type images struct{ N int64 }

type dataLoader struct{ left int }

func (l *dataLoader) Next(context.Context) (images, bool) {
	l.left--
	return images{N: 32}, l.left >= 0
}

type network struct {
	*cgo
	raw uintptr
}

func (n network) Forward(context.Context, images) float64 {
	n.busy(n.raw, 2*time.Millisecond)
	return 0.5
}
func (n network) Backward(context.Context, float64) { n.busy(n.raw, 4*time.Millisecond) }

type commLogger struct{}

func (commLogger) Elapsed() time.Duration { return time.Millisecond }

// A training loop.
func Example_training() {
	prof, gpu, clock, _ := simulated()
	ctx := context.Background()
	defer func() { _ = prof.Shutdown(ctx) }()
	raw := gpu.Stream(0)
	stream := prof.Stream(raw, "train")
	loader, model, comms := &dataLoader{left: 70}, network{&cgo{gpu, clock}, raw}, commLogger{}
	const modelFLOPs = 1e12

	loop := train.NewLoop(prof, "train", stream, train.Items("image"),
		train.Schedule{SkipFirst: 50, Warmup: 1, Active: 3, Repeat: 0, Every: 10})
	for ctx, step := range loop.Steps(ctx) {
		data := step.Phase(train.Data)
		batch, ok := loader.Next(ctx)
		data.End()
		if !ok {
			break
		}
		step.SetItems(batch.N)
		fwd := step.Phase(train.Forward)
		loss := model.Forward(ctx, batch)
		fwd.End()
		bwd := step.Phase(train.Backward)
		model.Backward(ctx, loss)
		bwd.End()
		step.AddPhase(train.Comm, comms.Elapsed())
		step.SetModelFLOPs(modelFLOPs)
		clock.Advance(10 * time.Millisecond) // the example drives the clock of its device
	}

	clock.Advance(time.Second)
	_ = prof.Flush(ctx)
	if err := prof.Snapshot().WriteText(io.Discard); err != nil {
		fmt.Println(err)
	}
	l := prof.Snapshot().Loops[0]
	fmt.Printf("%d steps of %v, %d images\n", l.Steps, l.Duration.Mean.Round(time.Millisecond), l.Items)
	for _, p := range l.Phases {
		fmt.Printf("%s %v\n", p.Name, p.Duration.Mean.Round(100*time.Microsecond))
	}
	// Output:
	// 6 steps of 10ms, 192 images
	// data 0s
	// forward 2ms
	// backward 4ms
	// comm 1ms
}

// Every call of the API: a nil receiver and a disabled profiler do nothing.
func Example_face() {
	prof, err := gpuspan.New(nil) // never nil; without a driver: host clock, and it reports that
	ctx := context.Background()
	s := prof.Stream(0, "host", gpuspan.Sync(settings.SyncDeferred))
	op := gpuspan.NewOperation("op", gpuspan.Category("c"), gpuspan.ItemType("row"),
		gpuspan.Copy(gpuspan.DeviceToHost, gpuspan.Pageable),
		gpuspan.Describe("moves rows"), gpuspan.AtVerbosity(settings.VerbosityDefault), gpuspan.Sync(settings.SyncNone))

	x := op.Start(ctx, s)
	y := x.Start(op) // nested, no context needed
	y.Add(gpuspan.Work{Read: 1})
	y.Link(ctx)
	y.Chunk(0, 2)
	op.Start(y.Context(ctx), s).End() // nested by context
	y.End()
	x.EndWith(gpuspan.Work{Read: 1, Written: 2, Bytes: 3, Items: 4, FLOPs: 5, Precision: gpuspan.FP32})
	x.End()

	s.StartNamed(ctx, "by title")
	s.EndNamed("by title", gpuspan.Work{Items: 1})
	op.RecordMeasured(ctx, s, time.Now(), time.Millisecond, gpuspan.Work{})

	prof.SetEnabled(false)
	fmt.Println("off:", op.Start(ctx, s).Timed())
	prof.SetEnabled(true)
	_ = prof.Flush(ctx)
	figures, _ := prof.Stats(op)
	var report strings.Builder
	err = errors.Join(err, prof.Snapshot().WriteText(&report), prof.Shutdown(ctx))
	fmt.Println("runs:", figures.Count, "report:", strings.Contains(report.String(), "by title"), "error:", err)
	// Output:
	// off: false
	// runs: 4 report: true error: <nil>
}
