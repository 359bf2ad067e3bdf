// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/outputs"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestZeroValuesBehaveLikeNil(t *testing.T) {
	ctx := context.Background()
	r := newRig(t)
	live, _ := r.stream()
	op := gpuspan.NewOperation("op")
	p, s, o := &gpuspan.Profiler{}, &gpuspan.Stream{}, &gpuspan.Operation{}
	require.Nil(t, p.Stream(1, "x"))
	require.NoError(t, p.Flush(ctx))
	require.Empty(t, p.Snapshot().Operations)
	require.Empty(t, p.Devices())
	require.False(t, p.Enabled())
	p.SetEnabled(true)
	p.SetVerbosity(settings.VerbosityDebug)
	p.Reset()
	p.Stats(op)
	p.Misuse()
	require.NoError(t, p.Shutdown(ctx))
	require.Empty(t, s.Name())
	require.False(t, s.DeviceTimed())
	s.StartNamed(ctx, "x").End()
	s.EndNamed("x", gpuspan.Work{})
	s.Close()
	require.False(t, op.Start(ctx, s).Timed())
	require.False(t, o.Start(ctx, live).Timed())
	require.Empty(t, o.Name())
	o.RecordMeasured(ctx, live, time.Time{}, 1, gpuspan.Work{})
	op.RecordMeasured(ctx, s, time.Time{}, 1, gpuspan.Work{})
	x := op.Start(ctx, live)
	require.False(t, x.Start(o).Timed())
	require.False(t, x.StartOn(op, s).Timed())
	x.End()
	ran := false
	o.Launch(ctx, live, func() { ran = true })
	require.True(t, ran)
	for _, st := range train.NewLoop(p, "x", s, train.TotalSteps(2)).Steps(ctx) {
		st.PhaseOn(train.Forward, s).End()
	}
	for _, st := range (&train.Loop{}).Steps(ctx) {
		st.Phase(train.Forward).End()
		break
	}
	require.Empty(t, settings.Key{}.Default())
	r.flush()
	require.Len(t, r.named("op"), 1)
}

func TestNilAndZeroValuesDoNothing(t *testing.T) {
	ctx := context.Background()
	var p *gpuspan.Profiler
	var s *gpuspan.Stream
	var o *gpuspan.Operation
	var l *train.Loop
	var st *train.Step
	op := gpuspan.NewOperation("op")
	require.Nil(t, p.Stream(1, "x"))
	require.NoError(t, p.Flush(ctx))
	require.NoError(t, p.Shutdown(ctx))
	p.SetEnabled(true)
	p.SetVerbosity(settings.VerbosityDebug)
	p.Reset()
	require.False(t, p.Enabled())
	require.Empty(t, p.Snapshot().Operations)
	require.Empty(t, p.Devices())
	for _, x := range []gpuspan.Section{{}, o.Start(ctx, s), op.Start(ctx, nil), op.Start(nil, nil)} { //nolint:staticcheck // nil context on purpose
		require.False(t, x.Timed())
		require.Equal(t, gpuspan.Section{}, x.Start(op))
		require.Equal(t, gpuspan.Section{}, x.StartOn(op, s))
		x.Add(gpuspan.Work{Read: 1})
		x.AddCopied(gpuspan.HostToDevice, 1)
		x.Link(ctx)
		x.Chunk(0, 1)
		x.Checksum(1)
		x.SetAttributes(attribute.Bool("x", true))
		require.Equal(t, ctx, x.Context(ctx))
		x.End()
		x.EndWith(gpuspan.Work{Read: 1})
	}
	ran := false
	op.Launch(ctx, nil, func() { ran = true })
	o.Launch(ctx, nil, func() { ran = ran && true })
	require.True(t, ran)
	op.RecordMeasured(ctx, s, time.Now(), time.Second, gpuspan.Work{})
	s.StartNamed(ctx, "x").End()
	s.EndNamed("x", gpuspan.Work{})
	s.Close()
	require.Empty(t, s.Name()+o.Name())
	n := 0
	for range l.Steps(ctx) {
		if n++; n == 3 {
			break
		}
	}
	require.Equal(t, 3, n, "a nil loop still runs its body")
	l.SetEpoch(1)
	st.Phase(train.Forward).End()
	st.AddPhase(train.Comm, time.Second)
	st.SetPhase(train.Comm, time.Second)
	st.AddPhaseAt(train.Comm, time.Now(), time.Second)
	st.SetItems(1)
	st.AddItems(1)
	st.SetModelFLOPs(1)
	st.Cancel()
	st.SetAttributes()
	st.Span().End()
	require.False(t, st.Recording())
	require.Zero(t, st.Index())
}

func TestEndIsIdempotentAlsoAfterTheSlotWasReused(t *testing.T) {
	r := newRig(t, slots(2))
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	first := op.Start(context.Background(), s)
	first.EndWith(gpuspan.Work{Items: 1})
	first.EndWith(gpuspan.Work{Items: 100})
	r.clock.Advance(time.Millisecond)
	r.flush()
	second := op.Start(context.Background(), s)
	first.EndWith(gpuspan.Work{Items: 100}) // the same slot, another section
	first.Add(gpuspan.Work{Items: 100})
	require.True(t, second.Timed())
	second.EndWith(gpuspan.Work{Items: 2})
	r.clock.Advance(time.Millisecond)
	r.flush()
	spans := r.named("op")
	require.Len(t, spans, 2)
	require.EqualValues(t, 1, attrs(spans[0])["gpu.operation.items"].AsInt64())
	require.EqualValues(t, 2, attrs(spans[1])["gpu.operation.items"].AsInt64())
	require.EqualValues(t, 1, attrs(spans[0])["gpu.operation.occurrence"].AsInt64())
	require.NotContains(t, attrs(spans[1]), "gpu.operation.occurrence", "only of the first")
}

func TestUnsampledSectionsCountTheirWorkOnce(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(
		trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
	x := op.Start(ctx, s)
	require.False(t, x.Timed())
	y := x.Start(op)
	y.EndWith(gpuspan.Work{Items: 5})
	x.EndWith(gpuspan.Work{Items: 3, Read: 7, FLOPs: 2, Precision: gpuspan.FP32})
	x.EndWith(gpuspan.Work{Items: 3})
	x.End()
	f, ok := r.p.Stats(op)
	require.True(t, ok)
	require.EqualValues(t, 2, f.Count)
	require.EqualValues(t, 8, f.Items)
	require.EqualValues(t, 7, f.Memory.Read)
	require.Equal(t, 2.0, f.FLOPs["fp32"])
	require.Zero(t, f.Duration.Count)
	require.Empty(t, r.spans.Ended())
}

func TestLaunchIsAGraphAndSurvivesAPanicOfTheApplication(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("decode")
	require.Equal(t, backend.StatusOK, r.gpu.BeginCapture(h))
	inside := op.Start(context.Background(), s) // while capturing
	r.busy(h, 2*time.Millisecond)
	inside.EndWith(gpuspan.Work{Items: 1})
	graph, st := r.gpu.EndCapture(h)
	require.Equal(t, backend.StatusOK, st)
	x := gpuspan.NewOperation("decode", gpuspan.Graph()).Start(context.Background(), s)
	r.gpu.LaunchGraph(h, graph)
	x.EndWith(gpuspan.Work{Items: 9})
	require.PanicsWithValue(t, "application", func() { op.Launch(context.Background(), s, func() { panic("application") }) })
	r.clock.Advance(5 * time.Millisecond)
	r.flush()
	spans := r.named("decode")
	require.Len(t, spans, 3)
	captured, launch, panicked := attrs(spans[0]), attrs(spans[1]), attrs(spans[2])
	require.Equal(t, "captured", captured["gpu.timing.status"].AsString())
	require.Equal(t, "host", captured["gpu.timing.source"].AsString())
	require.NotContains(t, captured, "gpu.duration")
	require.Equal(t, "graph", launch["gpu.operation.type"].AsString())
	require.InDelta(t, 2e-3, launch["gpu.duration"].AsFloat64(), 20e-6)
	require.EqualValues(t, 9, launch["gpu.operation.items"].AsInt64())
	require.Equal(t, "ok", panicked["gpu.timing.status"].AsString())
}

func TestACaptureThatBeginsInsideASectionAbandonsIt(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("op")
	x := op.Start(context.Background(), s)
	require.Equal(t, backend.StatusOK, r.gpu.BeginCapture(h))
	x.End()
	_, st := r.gpu.EndCapture(h)
	require.Equal(t, backend.StatusOK, st)
	r.flush()
	require.Equal(t, "captured", attrs(r.named("op")[0])["gpu.timing.status"].AsString())
	y := op.Start(context.Background(), s) // the stream still works
	y.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Equal(t, "ok", attrs(r.named("op")[1])["gpu.timing.status"].AsString())
	require.Empty(t, r.errs)
}

func TestCopiesStateDirectionAndMemory(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("h2d", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pageable))
	both := gpuspan.NewOperation("both", gpuspan.Attributes(semconv.GPUIOAccessPattern(semconv.GPUIOAccessPatternStrided),
		semconv.GPUZeroCopy(true)))
	x := op.Start(context.Background(), s)
	r.gpu.Copy(h, simgpu.Copy{Bytes: 1 << 20})
	x.EndWith(gpuspan.Work{Bytes: 1 << 20})
	y := both.Start(context.Background(), s)
	y.AddCopied(gpuspan.DeviceToHost, 100)
	y.AddCopied(gpuspan.DeviceToHost, 11)
	y.EndWith(gpuspan.Work{Read: 5})
	r.clock.Advance(10 * time.Millisecond)
	r.flush()
	a := attrs(r.named("h2d")[0])
	require.Equal(t, "copy", a["gpu.operation.type"].AsString())
	require.Equal(t, "host_to_device", a["gpu.copy.direction"].AsString())
	require.Equal(t, "pageable", a["gpu.copy.host_memory"].AsString())
	require.EqualValues(t, 1<<20, a["gpu.io.size"].AsInt64())
	b := attrs(r.named("both")[0])
	require.EqualValues(t, 111, b["gpu.copy.size.device_to_host"].AsInt64())
	require.EqualValues(t, 5, b["gpu.io.read.size"].AsInt64())
	require.Equal(t, "strided", b["gpu.io.access_pattern"].AsString())
	require.True(t, b["gpu.zero_copy"].AsBool())
	f, _ := r.p.Stats(both)
	require.EqualValues(t, 111, f.PCIe.Total())
	require.EqualValues(t, 5, f.Memory.Total())
}

func TestRecordKeepsTheCallersTimes(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("elsewhere")
	start := epoch.Add(-time.Second)
	op.RecordMeasured(context.Background(), s, start, 1500*time.Microsecond, gpuspan.Work{Items: 4})
	r.flush()
	span := r.named("elsewhere")[0]
	require.Equal(t, start, span.StartTime().UTC())
	require.Equal(t, 1500*time.Microsecond, span.EndTime().Sub(span.StartTime()))
	require.Equal(t, 1.5e-3, attrs(span)["gpu.duration"].AsFloat64())
	require.NotContains(t, attrs(span), "gpu.timing.source")

	x := gpuspan.NewOperation("around").Start(context.Background(), s)
	op.RecordMeasured(x.Context(context.Background()), s, start, time.Millisecond, gpuspan.Work{})
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Equal(t, r.named("around")[0].SpanContext().SpanID(), r.named("elsewhere")[1].Parent().SpanID())
}

func TestOptInAttributes(t *testing.T) {
	set := settings.Default()
	set.MemoryUsage, set.CodeLocation, set.StackDepth = true, true, 2
	r := newRig(t, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }), gpuspan.WithAttributes(attribute.String("app", "x")))
	s, _ := r.stream()
	require.True(t, r.gpu.Allocate(0, 1000))
	op := gpuspan.NewOperation("op", gpuspan.Attributes(semconv.GPUOperationShapes("f32[1000,3]"),
		attribute.Int("own", 1)))
	x := op.Start(context.Background(), s)
	_, _, line, _ := runtime.Caller(0)
	require.True(t, r.gpu.Allocate(0, 24))
	x.SetAttributes(semconv.GPUKernelNameKey.String("void gemm<float>(int)"), semconv.GPUKernelModule("libgemm.so"),
		semconv.GPUCacheL2HitRatio(0.25))
	x.Checksum(outputs.Checksum([]float32{1, 2}))
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	a := attrs(r.named("op")[0])
	require.EqualValues(t, 1024, a["gpu.memory.usage"].AsInt64())
	require.EqualValues(t, 24, a["gpu.memory.delta"].AsInt64())
	require.Equal(t, []string{"f32[1000,3]"}, a["gpu.operation.shapes"].AsStringSlice())
	require.Equal(t, "void gemm<float>(int)", a["gpu.kernel.name"].AsString())
	require.Equal(t, "libgemm.so", a["gpu.kernel.module"].AsString())
	require.Equal(t, 0.25, a["gpu.cache.l2.hit_ratio"].AsFloat64())
	require.Len(t, a["gpu.output.checksum"].AsString(), 16)
	require.Equal(t, "x", a["app"].AsString())
	require.EqualValues(t, 1, a["own"].AsInt64())
	require.EqualValues(t, line-1, a["code.line.number"].AsInt64())
	require.Contains(t, a["code.function.name"].AsString(), "TestOptInAttributes")
	require.True(t, strings.HasSuffix(a["code.file.path"].AsString(), "section_test.go"))
	require.Equal(t, 2, strings.Count(a["code.stacktrace"].AsString(), "\n\t"))
}

func TestVerbositySelectsTimedOperations(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	usual, deep := gpuspan.NewOperation("usual"), gpuspan.NewOperation("deep",
		gpuspan.AtVerbosity(settings.VerbosityDebug))
	run := func() (bool, bool) {
		x, y := usual.Start(context.Background(), s), deep.Start(context.Background(), s)
		defer x.End()
		defer y.End()
		return x.Timed(), y.Timed()
	}
	check := func(a, b bool) {
		t.Helper()
		x, y := run()
		require.Equal(t, a, x)
		require.Equal(t, b, y)
	}
	check(true, false)
	r.p.SetVerbosity(settings.VerbosityDebug)
	check(true, true)
	r.p.SetEnabled(false)
	check(false, false)
	r.p.SetVerbosity(settings.VerbosityVerbose) // stored, but does not enable
	check(false, false)
	r.p.SetEnabled(true)
	check(true, false)
	r.p.SetVerbosity(settings.VerbosityOff)
	check(false, false)
	r.p.SetEnabled(true) // of nothing
	check(false, false)
	r.p.SetVerbosity(settings.VerbosityDefault)
	check(true, false)
	r.p.SetEnabled(false) // stays off, regardless of the verbosity
	r.p.SetVerbosity(settings.VerbosityOff)
	r.p.SetVerbosity(settings.VerbosityDebug)
	check(false, false)
	r.clock.Advance(time.Millisecond)
	f, _ := r.p.Stats(deep)
	require.LessOrEqual(t, f.Count, int64(1), "what is off is not counted either")
}

func TestTilesAreStatisticsOnly(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	outer, tile := gpuspan.NewOperation("gemm"), gpuspan.NewOperation("tile", gpuspan.Tile("midi"))
	inner := gpuspan.NewOperation("inner")
	x := outer.Start(context.Background(), s)
	y := x.Start(tile)
	y.Start(inner).End()
	y.End()
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Empty(t, r.named("tile"))
	require.Equal(t, r.named("gemm")[0].SpanContext().SpanID(), r.named("inner")[0].Parent().SpanID(),
		"children hang on the nearest span")
	for _, o := range r.p.Snapshot().Operations {
		if o.Name == "tile" {
			require.Equal(t, "midi", o.Level)
			require.Equal(t, []string{"gemm", "tile"}, o.Path)
			return
		}
	}
	t.Fatal("no statistics of the tile")
}

func TestRootSectionsConsultTheSampler(t *testing.T) {
	r := newRig(t)
	gpu := simgpu.New(r.clock)
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans),
		sdktrace.WithSampler(sdktrace.TraceIDRatioBased(0.5)))
	p, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(tp))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Shutdown(context.Background())) }()
	s := p.Stream(gpu.Stream(0), "main")
	op := gpuspan.NewOperation("op")
	for range 400 {
		op.Start(context.Background(), s).End()
		r.clock.Advance(time.Millisecond)
		flush(t, p)
	}
	n := len(r.named("op"))
	require.InDelta(t, 200, n, 60) // six standard deviations
	f, _ := p.Stats(op)
	require.EqualValues(t, 400, f.Duration.Count, "durations do not depend on the sampler of roots")
}

func TestTheReportIsPrintedAtTheEndOfAnOutermostSection(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	var out strings.Builder
	op := gpuspan.NewOperation("whole run", gpuspan.PrintReport(&out))
	x := op.Start(context.Background(), s)
	x.Start(op).End()
	r.busy(h, 2*time.Millisecond)
	x.End()
	r.clock.Advance(5 * time.Millisecond)
	r.flush()
	require.NoError(t, r.p.Shutdown(context.Background()))
	require.Equal(t, 1, strings.Count(out.String(), "WALL")+strings.Count(out.String(), "wall"), out.String())
	require.Contains(t, out.String(), "whole run")
}
