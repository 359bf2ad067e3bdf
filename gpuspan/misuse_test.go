// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// What cannot be is not stated, whether sections are timed or only count: counters never fall, and no sum becomes NaN.
func TestWorkThatCannotBeIsNotStated(t *testing.T) {
	r, reader := metricRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	good := gpuspan.Work{Read: 1, Written: 2, Bytes: 3, Items: 4, FLOPs: 5, Precision: gpuspan.FP16}
	contexts := []context.Context{context.Background(), unsampledTrace()}
	for _, ctx := range contexts {
		for _, bad := range []gpuspan.Work{
			{Read: -1}, {Written: math.MinInt64}, {Bytes: -3}, {Items: -4}, {FLOPs: -5}, {FLOPs: math.NaN()}, {FLOPs: math.Inf(1)}, {FLOPs: 1, Precision: 99},
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
	assert.EqualValues(t, 2*2*8, r.p.Misuse()["invalid_work"])
	spans := r.named("op")
	require.Len(t, spans, 9)
	for _, span := range spans[:7] {
		for key := range attrs(span) {
			assert.False(t, strings.HasPrefix(key, "gpu.io") || strings.HasPrefix(key, "gpu.flop") || strings.HasPrefix(key, "gpu.copy") || key == "gpu.operation.items", key)
		}
	}
	assert.Equal(t, 2.0, attrs(spans[7])["gpu.flop.count"].AsFloat64(), "of an unknown precision, but a count")
	assert.NotContains(t, attrs(spans[7]), "gpu.flop.precision")
	m := collect(t, reader)
	assert.Equal(t, map[string]int64{"op ": 12}, ints(m["gpu.operation.io"]))
	assert.Equal(t, map[string]int64{"op ": 8}, ints(m["gpu.operation.items"]))
	f, _ := r.p.Stats(op)
	assert.Equal(t, map[string]float64{"fp16": 10, "": 4}, f.FLOPs)
}

func TestPhaseNamesBecomePartsOfAttributeNames(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	for _, step := range r.p.Loop("", s, gpuspan.TotalSteps(1), gpuspan.Phases("", "All Reduce/2.0")).Steps(context.Background()) {
		step.AddPhase("all_reduce_2_0", time.Microsecond)
		step.AddPhase("All Reduce/2.0", time.Microsecond)
		x := step.Phase("ALL REDUCE 2_0")
		r.clock.Advance(time.Millisecond)
		x.End()
		step.SetItems(-5)
		step.AddItems(-5)
		step.SetModelFLOPs(math.Inf(1))
		step.SetModelFLOPs(math.NaN())
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	a := attrs(r.named("step")[0])
	identity(t, a)
	var phases []string
	for key := range a {
		if strings.HasPrefix(key, "gpu.step.phase.") {
			phases = append(phases, key)
		}
	}
	assert.ElementsMatch(t, []string{"gpu.step.phase.unnamed.duration", "gpu.step.phase.all_reduce_2_0.duration"}, phases)
	assert.InDelta(t, 1e-3+2e-6, a["gpu.step.phase.all_reduce_2_0.duration"].AsFloat64(), 5e-6)
	assert.Zero(t, a["gpu.step.items"].AsInt64())
	assert.NotContains(t, a, "gpu.step.model.flop.count")
	assert.Len(t, r.named("all_reduce_2_0"), 1)
}

func TestARecordWithoutAStartHasJustEnded(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	gpuspan.NewOperation("op").Record(context.Background(), s, time.Time{}, time.Millisecond, gpuspan.Work{})
	r.flush()
	span := r.named("op")[0]
	assert.Equal(t, time.Millisecond, span.EndTime().Sub(span.StartTime()))
	assert.WithinDuration(t, r.clock.Now(), span.EndTime(), time.Millisecond)
}
