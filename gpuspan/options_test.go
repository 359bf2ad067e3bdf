// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

func TestStatisticsOnlyIsInMetricsAndReportsButNotInTraces(t *testing.T) {
	r, reader := metricRig(t)
	s, _ := r.stream()
	quiet, tile := gpuspan.NewOperation("quiet", gpuspan.StatisticsOnly()),
		gpuspan.NewOperation("tile", gpuspan.Tile("micro"))
	x := gpuspan.NewOperation("outer").Start(context.Background(), s)
	x.Start(quiet).End()
	x.Start(tile).End()
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.Len(t, r.spans.Ended(), 1)
	require.Equal(t, map[string]int64{"outer ": 1, "quiet ": 1, "tile ": 1},
		ints(collect(t, reader)["gpu.operation.count"]))
	f, ok := r.p.Stats(quiet)
	require.True(t, ok)
	require.EqualValues(t, 1, f.Duration.Count)
}

func TestMemsetAndGraphAreTypesOfTheirOwn(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	gpuspan.NewOperation("fill", gpuspan.Memset()).Start(context.Background(), s).EndWith(gpuspan.Work{Written: 4096})
	gpuspan.NewOperation("replay", gpuspan.Graph()).Start(context.Background(), s).End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	fill := attrs(r.ended()["fill"])
	require.Equal(t, "memset", fill["gpu.operation.type"].AsString())
	require.EqualValues(t, 4096, fill["gpu.io.write.size"].AsInt64())
	require.Equal(t, "graph", attrs(r.ended()["replay"])["gpu.operation.type"].AsString())
}

func TestStepAttributesAreOnEveryStep(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	loop := train.NewLoop(r.p, "train", s, train.TotalSteps(2), train.Attributes(attribute.String("app.run", "a")),
		train.Attributes(attribute.Int("app.fold", 3)))
	for ctx := range loop.Steps(context.Background()) {
		gpuspan.NewOperation("op").Start(ctx, s).End()
		r.clock.Advance(time.Millisecond)
	}
	r.flush()
	steps := r.named("train")
	require.Len(t, steps, 2)
	for _, step := range steps {
		a := attrs(step)
		require.Equal(t, "a", a["app.run"].AsString())
		require.EqualValues(t, 3, a["app.fold"].AsInt64())
	}
	require.NotContains(t, attrs(r.named("op")[0]), "app.run")
}

func TestALoopWithoutAScheduleHasTheProfilers(t *testing.T) {
	r := newRig(t, set(func(s *settings.Settings) { s.Schedule = settings.Schedule{Wait: 1, Active: 1} }))
	s, _ := r.stream()
	for name, opts := range map[string][]train.LoopOption{"its": nil, "own": {train.Schedule{Active: 1}}} {
		loop := train.NewLoop(r.p, name, s, append(opts, train.TotalSteps(6))...)
		for range loop.Steps(context.Background()) {
			r.clock.Advance(time.Millisecond)
		}
	}
	r.flush()
	require.Len(t, r.named("its"), 3, "every second step")
	require.Len(t, r.named("own"), 6)
}
