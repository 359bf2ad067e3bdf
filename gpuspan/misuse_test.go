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

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// Impossible values are omitted, whether sections are timed or only counted: counters never
// decrease, and no sum becomes NaN.
func TestImpossibleWorkIsOmitted(t *testing.T) {
	r, reader := metricRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	good := gpuspan.Work{Read: 1, Written: 2, Bytes: 3, Items: 4, FLOPs: 5, Precision: gpuspan.FP16}
	contexts := []context.Context{context.Background(), unsampledTrace()}
	for _, ctx := range contexts {
		for _, bad := range []gpuspan.Work{
			{Read: -1},
			{Written: math.MinInt64},
			{Bytes: -3},
			{Items: -4},
			{FLOPs: -5},
			{FLOPs: math.NaN()},
			{FLOPs: math.Inf(1)},
			{FLOPs: math.MaxFloat64},
			{Read: math.MaxInt64, Written: 1 << 53, Items: math.MaxInt64},
			{FLOPs: 1, Precision: 99},
		} {
			x := op.Start(ctx, s)
			x.Add(bad)
			x.AddCopied(gpuspan.HostToDevice, -7)
			x.EndWith(bad)
		}
		op.Start(ctx, s).EndWith(good)
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.EqualValues(t, 2*3*10, r.p.Misuse()["invalid_work"])
	spans := r.named("op")
	require.Len(t, spans, 11)
	for _, span := range spans[:9] {
		for key := range attrs(span) {
			require.False(t, strings.HasPrefix(key, "gpu.io") || strings.HasPrefix(key, "gpu.flop") ||
				strings.HasPrefix(key, "gpu.copy") || key == "gpu.operation.items", key)
		}
	}
	require.Equal(t, 2.0, attrs(spans[9])["gpu.flop.count"].AsFloat64(), "of an unknown precision, but a count")
	require.NotContains(t, attrs(spans[9]), "gpu.flop.precision")
	m := collect(t, reader)
	require.Equal(t, map[string]int64{"op ": 12}, ints(m["gpu.operation.io"]))
	require.Equal(t, map[string]int64{"op ": 8}, ints(m["gpu.operation.items"]))
	f, _ := r.p.Stats(op)
	require.Equal(t, map[string]float64{"fp16": 10, "": 4}, f.FLOPs)
}

func TestPhaseNamesBecomePartsOfAttributeNames(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	for _, step := range train.NewLoop(r.p, "", s, train.TotalSteps(1),
		train.Phases("", "All Reduce/2.0")).Steps(context.Background()) {
		step.AddPhase("all_reduce_2_0", time.Microsecond)
		step.AddPhase("All Reduce/2.0", time.Microsecond)
		x := step.Phase("ALL REDUCE 2_0")
		r.clock.Advance(time.Millisecond)
		x.End()
		step.SetItems(-5)
		step.AddItems(-5)
		step.SetModelFLOPs(math.Inf(1))
		step.SetModelFLOPs(math.NaN())
		step.AddPhase(train.Comm, -time.Second)
		step.SetPhase(train.Comm, -time.Second)
		step.AddPhaseAt(train.Comm, r.clock.Now(), -time.Second)
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	a := attrs(r.named("step")[0])
	identity(t, a)
	var phases []string
	for key := range a {
		if strings.HasPrefix(key, "gpu.step.phase.duration.") {
			phases = append(phases, key)
		}
	}
	require.ElementsMatch(t, []string{"gpu.step.phase.duration.unnamed", "gpu.step.phase.duration.all_reduce_2_0"}, phases)
	require.InDelta(t, 1e-3+2e-6, a["gpu.step.phase.duration.all_reduce_2_0"].AsFloat64(), 5e-6)
	require.NotContains(t, a, "gpu.step.items")
	require.NotContains(t, a, "gpu.step.model.flop.count")
	require.Len(t, r.named("all_reduce_2_0"), 1)
	require.EqualValues(t, 7, r.p.Misuse()["invalid_work"])
}

func TestARecordOfAnImpossibleTimeOnlyCounts(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	for _, bad := range []struct {
		start time.Time
		d     time.Duration
	}{
		{time.Time{}, -1},
		{r.clock.Now(), math.MaxInt64},
		{time.Unix(0, math.MinInt64), time.Second},
		{time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC), time.Second},
	} {
		op.RecordMeasured(context.Background(), s, bad.start, bad.d, gpuspan.Work{Items: 1})
	}
	r.flush()
	require.Empty(t, r.named("op"))
	require.EqualValues(t, 4, r.p.Misuse()["invalid_work"])
	f, _ := r.p.Stats(op)
	require.EqualValues(t, 4, f.Items)
}

func TestARecordWithoutAStartHasJustEnded(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	gpuspan.NewOperation("op").RecordMeasured(context.Background(), s, time.Time{}, time.Millisecond, gpuspan.Work{})
	r.flush()
	span := r.named("op")[0]
	require.Equal(t, time.Millisecond, span.EndTime().Sub(span.StartTime()))
	require.WithinDuration(t, r.clock.Now(), span.EndTime(), time.Millisecond)
}

// An impossible duration is unknown: the run is counted, but not timed as 0.
func TestARecordOfNegativeTimeOnlyCounts(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	op.RecordMeasured(context.Background(), s, time.Time{}, -time.Millisecond, gpuspan.Work{Items: 3})
	op.RecordMeasured(context.Background(), s, time.Time{}, 0, gpuspan.Work{Items: 4})
	r.flush()
	require.Len(t, r.named("op"), 1)
	f, _ := r.p.Stats(op)
	require.EqualValues(t, 2, f.Count)
	require.EqualValues(t, 1, f.Duration.Count)
	require.EqualValues(t, 7, f.Items)
	require.EqualValues(t, 1, r.p.Misuse()["invalid_work"])
}

func TestInvalidStatementsAreMisuse(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	beyond := math.MaxInt32
	beyond++ // negative where an int has 32 bits
	for _, tt := range []struct {
		name string
		say  func(gpuspan.Section)
	}{
		{"chunk before the first", func(x gpuspan.Section) { x.Chunk(-1, 3) }},
		{"chunk beyond the last", func(x gpuspan.Section) { x.Chunk(3, 3) }},
		{"negative number of chunks", func(x gpuspan.Section) { x.Chunk(0, -1) }},
		{"more chunks than can be", func(x gpuspan.Section) { x.Chunk(beyond, 0) }},
		{"copy without a direction", func(x gpuspan.Section) { x.AddCopied(gpuspan.Direction(0), 7) }},
		{"copy of an unknown direction", func(x gpuspan.Section) { x.AddCopied(99, 7) }},
		{"negative items of a request", func(x gpuspan.Section) { x.LinkItems(unsampledTrace(), -1) }},
	} {
		op, before := gpuspan.NewOperation(tt.name), r.p.Misuse()["invalid_work"]
		x := op.Start(context.Background(), s)
		tt.say(x)
		x.End()
		r.clock.Advance(time.Millisecond)
		r.flush()
		require.Equal(t, before+1, r.p.Misuse()["invalid_work"], tt.name)
		for key := range attrs(r.named(tt.name)[0]) {
			require.NotRegexp(t, `^gpu\.(chunk|cache|copy|io|operation\.items)`, key, tt.name)
		}
	}
}

func TestStreamsOfOtherProfilersAreMisuse(t *testing.T) {
	r, other := newRig(t), newRig(t)
	s, _ := r.stream()
	foreign, _ := other.stream()
	op := gpuspan.NewOperation("op")
	x := op.Start(context.Background(), s)
	x.StartOn(op, foreign).End()
	x.End()
	for _, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(1)).Steps(context.Background()) {
		step.PhaseOn(train.Comm, foreign).End()
		r.clock.Advance(time.Millisecond)
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	other.flush()
	require.EqualValues(t, 2, r.p.Misuse()["foreign_stream"])
	require.Len(t, r.named("op"), 1)
	require.Len(t, r.named("comm"), 1, "on the loop's stream")
	require.Empty(t, other.spans.Ended())
}

func TestStepsOfOneLoopAtATimeAreMisuse(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	loop := train.NewLoop(r.p, "train", s, train.TotalSteps(2))
	for ctx := range loop.Steps(context.Background()) {
		r.clock.Advance(time.Millisecond)
		for range train.NewLoop(r.p, "eval", s, train.TotalSteps(2)).Steps(ctx) {
			r.clock.Advance(time.Millisecond)
		}
	}
	require.Zero(t, r.p.Misuse()["concurrent_steps"], "one after the other, and steps of another loop inside")
	for range loop.Steps(context.Background()) {
		for range loop.Steps(context.Background()) {
			r.clock.Advance(time.Millisecond)
		}
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.EqualValues(t, 4, r.p.Misuse()["concurrent_steps"])
	for _, step := range r.named("train") {
		identity(t, attrs(step))
	}
}
