// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// An evaluation runs its own steps within a training step on the same stream. Later sections belong
// to the training step again, even if they start without a context.
func TestStepsWithinAStepGiveTheStreamBack(t *testing.T) {
	r, reader := metricRig(t)
	s, h := r.stream()
	outer := train.NewLoop(r.p, "train", s, train.TotalSteps(4), train.Schedule{Every: 2})
	eval := train.NewLoop(r.p, "eval", s, train.TotalSteps(2), train.Schedule{Wait: 1, Active: 1})
	op, after := gpuspan.NewOperation("op"), gpuspan.NewOperation("after")
	for ctx := range outer.Steps(context.Background()) {
		for range eval.Steps(ctx) {
			x := op.Start(context.Background(), s)
			r.busy(h, time.Millisecond)
			x.EndWith(gpuspan.Work{FLOPs: 5, Precision: gpuspan.FP32})
		}
		x := after.Start(context.Background(), s)
		r.busy(h, 3*time.Millisecond)
		x.EndWith(gpuspan.Work{FLOPs: 7, Precision: gpuspan.FP32})
		r.clock.Advance(10 * time.Millisecond)
	}
	r.flush()
	steps, sections := r.named("train"), r.named("after")
	require.Len(t, steps, 2, "the second of each two")
	require.Len(t, sections, 2, "steps that are not recorded have no spans below them")
	for i, step := range steps {
		a := attrs(step)
		require.Equal(t, step.SpanContext().SpanID(), sections[i].Parent().SpanID())
		require.InDelta(t, 3e-3, a["gpu.step.covered.duration"].AsFloat64(), 20e-6, "the evaluation's sections are its own")
		require.Equal(t, 7.0, a["gpu.flop.count"].AsFloat64())
	}
	evals := r.named("eval")
	require.Len(t, evals, 4, "its schedule goes on from one run to the next")
	require.Equal(t, []int64{2, 4, 6, 8}, indexes(evals))
	require.Len(t, r.named("op"), 4)
	m := ints(collect(t, reader)["gpu.operation.count"])
	require.Equal(t, map[string]int64{"train ": 4, "eval ": 8, "op ": 8, "after ": 4}, m)
}

func indexes(steps []sdktrace.ReadOnlySpan) (out []int64) {
	for _, s := range steps {
		out = append(out, attrs(s)["gpu.step.index"].AsInt64())
	}
	return out
}

// Every step counts: skipped, warm-up, recorded, or without a slot. Steps while profiling is off do
// not.
func TestEveryStepCounts(t *testing.T) {
	r, reader := metricRig(t, slots(2))
	s, _ := r.stream()
	loop := train.NewLoop(r.p, "train", s, train.Items("row"), train.Schedule{SkipFirst: 2, Wait: 1, Warmup: 1, Active: 2})
	n := 0
	run := func(steps int) {
		for _, step := range loop.Steps(context.Background()) {
			if steps == 0 {
				break // the loader has no more data
			}
			steps, n = steps-1, n+1
			step.SetItems(1)
			r.clock.Advance(time.Millisecond)
			r.flush()
		}
	}
	run(7)
	run(3)
	r.p.SetEnabled(false)
	run(2)
	r.p.SetEnabled(true)
	full := gpuspan.NewOperation("full")
	x, y := full.Start(context.Background(), s), full.Start(context.Background(), s)
	run(2)
	x.End()
	y.End()
	require.Equal(t, 14, n)
	m := ints(collect(t, reader)["gpu.operation.count"])
	require.EqualValues(t, 12, m["train "])
	names := map[string]bool{}
	for _, o := range r.p.Snapshot().Operations {
		names[o.Name] = true
	}
	require.NotContains(t, names, "train", "steps have a separate table")
}

// A program that needs only reports and metrics has no tracer; its steps are still timed.
func TestWithoutATracerStepsAreTimed(t *testing.T) {
	r, reader := metricRig(t, gpuspan.WithTracerProvider(noop.NewTracerProvider()))
	s, h := r.stream()
	op := gpuspan.NewOperation("op")
	for ctx, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(3)).Steps(context.Background()) {
		require.False(t, step.Recording())
		x := step.Phase(train.Forward)
		y := op.Start(ctx, s)
		r.busy(h, 2*time.Millisecond)
		y.End()
		x.End()
		step.SetItems(5)
		r.clock.Advance(10 * time.Millisecond)
	}
	r.flush()
	loops := r.p.Snapshot().Loops
	require.Len(t, loops, 1)
	require.EqualValues(t, 3, loops[0].Steps)
	require.EqualValues(t, 15, loops[0].Items)
	counts := map[string]int64{}
	for _, p := range collect(t, reader)["gpu.operation.duration"] {
		name, _ := p.attributes.Value("gpu.operation.name")
		counts[name.AsString()] = int64(p.count)
	}
	require.Equal(t, map[string]int64{"train": 3, "forward": 3, "op": 3}, counts)
}

// A program may create a loop for each evaluation: memory is bounded, and all steps belong to one
// operation.
func TestLoopsOfOneNameAreOneOperation(t *testing.T) {
	set := settings.Default()
	set.Names = 2
	r, reader := metricRig(t, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }))
	s, _ := r.stream()
	loops := []string{"eval", "train", "test", "test"}
	for range 5000 {
		loops = append(loops, "eval")
	}
	for _, name := range loops {
		for range train.NewLoop(r.p, name, s, train.TotalSteps(1), train.Schedule{SkipFirst: 1}).Steps(context.Background()) {
		}
	}
	op := gpuspan.NewOperation("op")
	op.Start(context.Background(), s).End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.named("op"), 1)
	m := ints(collect(t, reader)["gpu.operation.count"])
	require.Equal(t, map[string]int64{"eval ": 5001, "train ": 1, "(other) ": 2, "op ": 1}, m)
	require.EqualValues(t, 2, r.p.Misuse()["name_overflow"])
	require.Zero(t, r.p.Misuse()["operation_overflow"])
}
