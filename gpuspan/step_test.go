// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

func (r *rig) named(name string) (out []sdktrace.ReadOnlySpan) {
	for _, s := range r.spans.Ended() {
		if s.Name() == name {
			out = append(out, s)
		}
	}
	return out
}

func identity(t *testing.T, a map[string]attribute.Value) {
	t.Helper()
	sum := 0.0
	for k, v := range a {
		if strings.HasPrefix(k, "gpu.step.phase.duration.") {
			sum += v.AsFloat64()
			require.GreaterOrEqual(t, v.AsFloat64(), 0.0, k)
		}
	}
	overlap, other := a["gpu.step.overlap.duration"].AsFloat64(), a["gpu.step.other.duration"].AsFloat64()
	require.GreaterOrEqual(t, overlap, 0.0)
	require.GreaterOrEqual(t, other, 0.0)
	require.InDelta(t, a["gpu.step.duration"].AsFloat64(), sum-overlap+other, 1e-12)
}

func TestStepsAreTimedFromBoundaryToBoundary(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	loop := train.NewLoop(r.p, "train", s, train.Items("image"), train.TotalSteps(3))
	op := gpuspan.NewOperation("matmul")
	for ctx, step := range loop.Steps(context.Background()) {
		fwd := step.Phase(train.Forward)
		x := op.Start(ctx, s)
		r.busy(h, 2*time.Millisecond)
		x.EndWith(gpuspan.Work{FLOPs: 5e9, Precision: gpuspan.BF16})
		fwd.End()
		bwd := step.Phase(train.Backward)
		r.busy(h, 4*time.Millisecond)
		bwd.End()
		step.SetItems(32)
		step.SetModelFLOPs(1e10)
		r.clock.Advance(10 * time.Millisecond)
	}
	r.flush()
	steps := r.named("train")
	require.Len(t, steps, 3)
	for i, s := range steps {
		a := attrs(s)
		identity(t, a)
		require.Equal(t, "step", a["gpu.operation.type"].AsString())
		require.EqualValues(t, i+1, a["gpu.step.index"].AsInt64())
		require.InDelta(t, 2e-3, a["gpu.step.phase.duration.forward"].AsFloat64(), 10e-6)
		require.InDelta(t, 4e-3, a["gpu.step.phase.duration.backward"].AsFloat64(), 10e-6)
		require.InDelta(t, 10e-3, a["gpu.step.duration"].AsFloat64(), 10e-6, i)
		require.InDelta(t, 6e-3, a["gpu.step.covered.duration"].AsFloat64(), 20e-6)
		require.EqualValues(t, 32, a["gpu.step.items"].AsInt64())
		require.Equal(t, 5e9, a["gpu.flop.count"].AsFloat64())
		require.Equal(t, "bf16", a["gpu.flop.precision"].AsString())
	}
	for _, name := range []string{"forward", "backward", "matmul"} {
		spans := r.named(name)
		require.Len(t, spans, 3, name)
		for i := range spans {
			require.Equal(t, steps[i].SpanContext().SpanID(), spans[i].Parent().SpanID(), name)
			require.Equal(t, steps[i].SpanContext().TraceID(), spans[i].SpanContext().TraceID(), name)
		}
	}
	// Steps follow each other on the device without a gap.
	total := 0.0
	for _, s := range steps {
		total += attrs(s)["gpu.step.duration"].AsFloat64()
	}
	require.InDelta(t, 30e-3, total, 10e-6)
	loops := r.p.Snapshot().Loops
	require.Len(t, loops, 1)
	require.EqualValues(t, 3, loops[0].Steps)
	require.EqualValues(t, 96, loops[0].Items)
}

func TestOverlappingPhasesCountOnceInTheUnion(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	h2 := r.gpu.Stream(0)
	comm := r.p.Stream(h2, "comm")
	loop := train.NewLoop(r.p, "train", s, train.TotalSteps(1))
	for _, step := range loop.Steps(context.Background()) {
		b := step.Phase(train.Backward)
		c := step.PhaseOn(train.Comm, comm)
		r.busy(h, 5*time.Millisecond)
		b.End()
		r.clock.Advance(2 * time.Millisecond) // communication ends after 2 ms of the 5
		c.End()
		r.clock.Advance(8 * time.Millisecond)
	}
	r.flush()
	a := attrs(r.named("train")[0])
	identity(t, a)
	require.InDelta(t, 5e-3, a["gpu.step.phase.duration.backward"].AsFloat64(), 10e-6)
	require.InDelta(t, 2e-3, a["gpu.step.phase.duration.comm"].AsFloat64(), 10e-6)
	require.InDelta(t, 2e-3, a["gpu.step.overlap.duration"].AsFloat64(), 10e-6)
	require.InDelta(t, 5e-3, a["gpu.step.other.duration"].AsFloat64(), 10e-6)
}

func TestPhasesMeasuredElsewhereKeepTheIdentity(t *testing.T) {
	for _, tt := range []struct {
		name           string
		apply          func(*train.Step, time.Time)
		comm           float64
		overlap, other float64 // ms
	}{
		{
			"added fits beside the measured", func(s *train.Step, _ time.Time) { s.AddPhase(train.Comm, 3*time.Millisecond) }, 3,
			0, 1,
		},
		{"added is more than there is room for", func(s *train.Step,
			_ time.Time,
		) {
			s.AddPhase(train.Comm, 6*time.Millisecond)
		}, 6, 2, 0},
		{
			"added is more than the step", func(s *train.Step, _ time.Time) { s.AddPhase(train.Comm, 30*time.Millisecond) }, 10,
			6, 0,
		},
		{"set is more than the step", func(s *train.Step, _ time.Time) { s.SetPhase(train.Comm, time.Hour) }, 10, 6, 0},
		{"set first, added after", func(s *train.Step, _ time.Time) {
			s.SetPhase(train.Comm, time.Millisecond)
			s.AddPhase(train.Comm, 3*time.Millisecond)
		}, 1, 0, 3},
		{"added to a measured phase", func(s *train.Step, start time.Time) {
			s.AddPhaseAt(train.Comm, start.Add(time.Millisecond), 2*time.Millisecond)
			s.AddPhase(train.Comm, 3*time.Millisecond)
		}, 5, 2, 1},
		{"added twice", func(s *train.Step, _ time.Time) {
			s.AddPhase(train.Comm, time.Millisecond)
			s.AddPhase(train.Comm, time.Millisecond)
		}, 2, 0, 2},
		{"set wins over added", func(s *train.Step, _ time.Time) {
			s.AddPhase(train.Comm, 3*time.Millisecond)
			s.SetPhase(train.Comm, time.Millisecond)
		}, 1, 0, 3},
		{"placed inside the measured", func(s *train.Step, start time.Time) {
			s.AddPhaseAt(train.Comm, start.Add(time.Millisecond), 2*time.Millisecond)
		}, 2, 2, 4},
		{"placed across the end is clipped", func(s *train.Step, start time.Time) {
			s.AddPhaseAt(train.Comm, start.Add(9*time.Millisecond), 5*time.Millisecond)
		}, 1, 0, 3},
		{"negative is ignored", func(s *train.Step, _ time.Time) { s.AddPhase(train.Comm, -time.Second) }, math.NaN(), 0, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			s, h := r.stream()
			loop := train.NewLoop(r.p, "train", s, train.TotalSteps(1))
			for _, step := range loop.Steps(context.Background()) {
				start := r.clock.Now()
				x := step.Phase(train.Forward)
				r.busy(h, 6*time.Millisecond)
				x.End()
				tt.apply(step, start)
				r.clock.Advance(10 * time.Millisecond)
			}
			r.flush()
			a := attrs(r.named("train")[0])
			identity(t, a)
			if v, ok := a["gpu.step.phase.duration.comm"]; ok {
				require.InDelta(t, tt.comm, v.AsFloat64()*1e3, 0.02)
			} else {
				require.True(t, math.IsNaN(tt.comm))
			}
			require.InDelta(t, tt.overlap, a["gpu.step.overlap.duration"].AsFloat64()*1e3, 0.02)
			require.InDelta(t, tt.other, a["gpu.step.other.duration"].AsFloat64()*1e3, 0.02)
		})
	}
}

func TestScheduleDecidesWhichStepsAreRecorded(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("work")
	loop := train.NewLoop(r.p, "train", s, train.Schedule{SkipFirst: 1, Wait: 1, Warmup: 1, Active: 2},
		train.TotalSteps(9))
	for ctx, step := range loop.Steps(context.Background()) {
		_ = step
		x := op.Start(ctx, s)
		r.busy(h, time.Millisecond)
		x.EndWith(gpuspan.Work{Items: 1})
		r.clock.Advance(2 * time.Millisecond)
	}
	r.flush()
	var got []int64
	for _, s := range r.named("train") {
		got = append(got, attrs(s)["gpu.step.index"].AsInt64())
	}
	require.Equal(t, []int64{4, 5, 8, 9}, got)
	require.Len(t, r.named("work"), 4, "sections of other steps leave no spans")
	f, ok := r.p.Stats(op)
	require.True(t, ok)
	require.EqualValues(t, 4, f.Duration.Count)
	require.EqualValues(t, 9, f.Count)
	require.EqualValues(t, 9, f.Items)
}

func TestALoopLeftWithoutItemsHasNoLastStep(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	loop := train.NewLoop(r.p, "train", s, train.Items("image"))
	n := 0
	for _, step := range loop.Steps(context.Background()) {
		d := step.Phase(train.Data)
		n++
		d.End()
		if n > 2 {
			break // the loader has no more data
		}
		step.SetItems(8)
		r.busy(h, time.Millisecond)
		r.clock.Advance(2 * time.Millisecond)
	}
	r.flush()
	require.Len(t, r.named("train"), 2)
	extra := r.named("train (no step)")
	require.Len(t, extra, 1)
	require.NotContains(t, attrs(extra[0]), "gpu.operation.type")
	require.EqualValues(t, 2, r.p.Snapshot().Loops[0].Steps)
}

func TestUnsampledStepsAreNotTimed(t *testing.T) {
	r := newRig(t)
	gpu := simgpu.New(r.clock)
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans), sdktrace.WithSampler(sdktrace.NeverSample()))
	p, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(tp))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Shutdown(context.Background())) }()
	h := gpu.Stream(0)
	s := p.Stream(h, "main")
	op := gpuspan.NewOperation("work")
	for ctx, step := range train.NewLoop(p, "train", s, train.TotalSteps(5)).Steps(context.Background()) {
		require.False(t, step.Recording())
		x := op.Start(ctx, s)
		require.False(t, x.Timed())
		x.EndWith(gpuspan.Work{Items: 3})
	}
	f, ok := p.Stats(op)
	require.True(t, ok)
	require.EqualValues(t, 5, f.Count)
	require.EqualValues(t, 15, f.Items)
	require.Empty(t, r.spans.Ended())
}
