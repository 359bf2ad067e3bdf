// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

func TestAStepSpanIsLiveAndEndsAfterTheDevice(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	var hostEnd time.Time
	for ctx, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(1)).Steps(context.Background()) {
		require.True(t, step.Recording())
		require.Equal(t, step.Span().SpanContext(), trace.SpanContextFromContext(ctx))
		_, host := r.tp.Tracer("test").Start(ctx, "host work")
		host.End()
		r.busy(h, 20*time.Millisecond)
		hostEnd = r.clock.Now()
	}
	require.Empty(t, r.named("train"), "the device has not finished")
	r.clock.Advance(50 * time.Millisecond)
	r.flush()
	step := r.named("train")[0]
	require.Equal(t, step.SpanContext().SpanID(), r.named("host work")[0].Parent().SpanID())
	require.Greater(t, step.EndTime().Sub(hostEnd), 19*time.Millisecond)
	a := attrs(step)
	require.InDelta(t, 20e-3, a["gpu.step.duration"].AsFloat64(), 20e-6)
	require.InDelta(t, 0, a["gpu.step.host.duration"].AsFloat64(), 20e-6)
}

func TestAPanicInTheBodyEndsTheStep(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	loop := train.NewLoop(r.p, "train", s)
	require.PanicsWithValue(t, "application", func() {
		for range loop.Steps(context.Background()) {
			panic("application")
		}
	})
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.named("train"), 1)
	n := 0
	for range loop.Steps(context.Background()) { // and the loop can continue
		if n++; n == 2 {
			break
		}
		r.clock.Advance(time.Millisecond)
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.named("train"), 3)
}

func TestStepsStopWithTheirContext(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	for range train.NewLoop(r.p, "train", s).Steps(ctx) {
		if n++; n == 3 {
			cancel()
		}
	}
	require.Equal(t, 3, n)
	r.clock.Advance(time.Millisecond)
}

func TestStepNumbersEpochsAndTraces(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	ctx, run := r.tp.Tracer("test").Start(context.Background(), "run")
	loop := train.NewLoop(r.p, "train", s, train.FirstStep(101), train.TotalSteps(2), train.StepTraces())
	for epoch := range 2 { // counted from 0, as many do
		loop.SetEpoch(int64(epoch))
		for _, step := range loop.Steps(ctx) {
			step.AddItems(2)
			step.AddItems(3)
			r.clock.Advance(time.Millisecond)
		}
	}
	run.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	steps := r.named("train")
	require.Len(t, steps, 4)
	traces := map[trace.TraceID]bool{}
	for i, s := range steps {
		a := attrs(s)
		require.EqualValues(t, 101+i, a["gpu.step.index"].AsInt64())
		require.Contains(t, a, "gpu.step.epoch")
		require.EqualValues(t, i/2, a["gpu.step.epoch"].AsInt64())
		require.EqualValues(t, 5, a["gpu.step.items"].AsInt64())
		require.False(t, s.Parent().IsValid())
		require.Len(t, s.Links(), 1)
		require.Equal(t, run.SpanContext().SpanID(), s.Links()[0].SpanContext.SpanID())
		traces[s.SpanContext().TraceID()] = true
	}
	require.Len(t, traces, 4)
}

func TestDeclaredPhasesAreOnEveryStep(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	for range train.NewLoop(r.p, "train", s, train.TotalSteps(1),
		train.Phases(train.Data, "augment")).Steps(context.Background()) {
		r.clock.Advance(time.Millisecond)
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	a := attrs(r.named("train")[0])
	require.Equal(t, 0.0, a["gpu.step.phase.duration.augment"].AsFloat64())
	require.Contains(t, a, "gpu.step.phase.duration.data")
	require.NotContains(t, a, "gpu.step.phase.duration.forward")
}

func TestStepsWithoutADeviceAreHostTimed(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	p, err := gpuspan.New(nil, gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	require.NoError(t, err)
	s := p.Stream(0, "cpu")
	for _, step := range train.NewLoop(p, "train", s, train.TotalSteps(3)).Steps(context.Background()) {
		f := step.Phase(train.Forward)
		time.Sleep(3 * time.Millisecond)
		f.End()
	}
	require.NoError(t, p.Shutdown(context.Background()))
	n := 0
	for _, s := range spans.Ended() {
		if s.Name() != "train" {
			continue
		}
		n++
		a := attrs(s)
		identity(t, a)
		require.Equal(t, "host", a["gpu.timing.source"].AsString())
		require.GreaterOrEqual(t, a["gpu.step.phase.duration.forward"].AsFloat64(), 3e-3)
		require.GreaterOrEqual(t, a["gpu.step.duration"].AsFloat64(), a["gpu.step.phase.duration.forward"].AsFloat64())
	}
	require.Equal(t, 3, n)
}

func TestAStepWithoutASlotStillHasItsSpan(t *testing.T) {
	r := newRig(t, slots(2))
	s, h := r.stream()
	op := gpuspan.NewOperation("op")
	a, b := op.Start(context.Background(), s), op.Start(context.Background(), s)
	r.busy(h, time.Millisecond)
	for _, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(2)).Steps(context.Background()) {
		step.SetItems(3)
	}
	a.End()
	b.End()
	require.Len(t, r.named("train"), 2)
	at := attrs(r.named("train")[0])
	require.Equal(t, "dropped", at["gpu.timing.status"].AsString())
	require.EqualValues(t, 3, at["gpu.step.items"].AsInt64())
	require.NotContains(t, at, "gpu.step.duration")
	r.clock.Advance(10 * time.Millisecond)
}

func TestSectionsOfAStepAreFoundWithoutItsContext(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("op")
	for range train.NewLoop(r.p, "train", s, train.TotalSteps(1)).Steps(context.Background()) {
		x := op.Start(context.Background(), s) // deep inside a library that has no context
		r.busy(h, 2*time.Millisecond)
		x.EndWith(gpuspan.Work{FLOPs: 7})
		r.clock.Advance(3 * time.Millisecond)
	}
	r.clock.Advance(10 * time.Millisecond)
	r.flush()
	step := r.named("train")[0]
	require.Equal(t, step.SpanContext().SpanID(), r.named("op")[0].Parent().SpanID())
	require.InDelta(t, 2e-3, attrs(step)["gpu.step.covered.duration"].AsFloat64(), 20e-6)
	require.Equal(t, 7.0, attrs(step)["gpu.flop.count"].AsFloat64())
}

func TestPhasesFromManyGoroutines(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	comm := r.p.Stream(r.gpu.Stream(0), "comm")
	for _, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(20)).Steps(context.Background()) {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				ph := []train.Phase{train.Forward, train.Comm, "x", "y"}[i]
				step.PhaseOn(ph, comm).End()
				step.AddPhase(ph, time.Microsecond)
				step.SetItems(1)
			})
		}
		wg.Wait()
		r.clock.Advance(time.Millisecond)
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.named("train"), 20)
	for _, s := range r.named("train") {
		identity(t, attrs(s))
	}
}

func TestSeveralDevices(t *testing.T) {
	spec := simgpu.DefaultSpec()
	clock := simgpu.NewManualClock(epoch)
	gpu := simgpu.New(clock, simgpu.WithDevices(spec, spec), simgpu.WithJitter(0))
	spans := tracetest.NewSpanRecorder()
	p, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	require.NoError(t, err)
	require.Len(t, p.Devices(), 2)
	op := gpuspan.NewOperation("op")
	var streams []*gpuspan.Stream
	for d := range 2 {
		h := gpu.Stream(d)
		s := p.Stream(h, "x")
		streams = append(streams, s)
		x := op.Start(context.Background(), s)
		gpu.Launch(h, simgpu.Kernel{Duration: time.Duration(d+1) * time.Millisecond})
		x.End()
	}
	clock.Advance(10 * time.Millisecond)
	for _, step := range train.NewLoop(p, "train", streams[0], train.TotalSteps(1)).Steps(context.Background()) {
		c := step.PhaseOn(train.Comm, streams[1]) // cannot be compared with events of the step's device
		clock.Advance(4 * time.Millisecond)
		c.End()
		clock.Advance(4 * time.Millisecond)
	}
	clock.Advance(time.Second)
	require.NoError(t, p.Shutdown(context.Background()))
	for _, s := range spans.Ended() {
		a := attrs(s)
		switch s.Name() {
		case "op":
			d := a["gpu.device.ordinal"].AsInt64()
			require.InDelta(t, float64(d+1)*1e-3, a["gpu.duration"].AsFloat64(), 50e-6)
			require.NotEmpty(t, a["hw.id"].AsString())
		case "train":
			identity(t, a)
			require.InDelta(t, 4e-3, a["gpu.step.phase.duration.comm"].AsFloat64(), 50e-6)
		}
	}
}

func TestPhaseNamesAreBounded(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	n := 0
	for _, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(10)).Steps(context.Background()) {
		for range 10 {
			n++
			step.AddPhase(train.Phase(fmt.Sprint("phase_", n)), time.Microsecond)
		}
		r.clock.Advance(time.Millisecond)
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	keys := map[string]bool{}
	for _, s := range r.named("train") {
		a := attrs(s)
		identity(t, a)
		for k := range a {
			if strings.HasPrefix(k, "gpu.step.phase.duration.") {
				keys[k] = true
			}
		}
	}
	require.Len(t, keys, 65)
	require.Contains(t, keys, "gpu.step.phase.duration.overflow")
}

// All spellings of a phase are one phase, and use one of the 64 names.
func TestSpellingsOfAPhaseAreOnePhase(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	for _, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(1)).Steps(context.Background()) {
		for i := range 64 {
			step.AddPhase(train.Phase(fmt.Sprint("Phase ", i)), time.Microsecond)
			step.PhaseOn(train.Phase(fmt.Sprint("PHASE-", i)), s).End()
			step.AddPhase(train.Phase(fmt.Sprint("phase_", i)), time.Microsecond)
		}
		r.clock.Advance(time.Millisecond)
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	a := attrs(r.named("train")[0])
	identity(t, a)
	var phases int
	for k := range a {
		if strings.HasPrefix(k, "gpu.step.phase.duration.phase_") {
			phases++
		}
	}
	require.Equal(t, 64, phases)
	_, overflow := a["gpu.step.phase.duration.overflow"]
	require.False(t, overflow)
}
