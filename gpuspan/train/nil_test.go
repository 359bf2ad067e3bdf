// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package train_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// The indexes and the end of a loop do not depend on whether it is measured.
func TestLoopIteratesTheSameWithoutAProfiler(t *testing.T) {
	gpu := simgpu.New(nil)
	on, err := gpuspan.New(gpu)
	require.NoError(t, err)
	s := on.Stream(gpu.Stream(0), "main")
	stopped, err := gpuspan.New(simgpu.New(nil))
	require.NoError(t, err)
	require.NoError(t, stopped.Shutdown(context.Background()))

	run := func(p *gpuspan.Profiler, s *gpuspan.Stream) (seen []int64) {
		l := train.NewLoop(p, "train", s, train.TotalSteps(5), train.FirstStep(100), train.Items("token"),
			train.Phases(train.Forward))
		l.SetEpoch(3)
		for range 2 {
			for ctx, st := range l.Steps(context.Background()) {
				seen = append(seen, st.Index())
				x := st.Phase(train.Forward)
				x.End()
				st.PhaseOn(train.Backward, s).End()
				st.AddPhase(train.Comm, time.Millisecond)
				st.SetPhase(train.Comm, time.Millisecond)
				st.AddPhaseAt(train.Comm, time.Now(), time.Millisecond)
				st.AddPhase(train.Comm, -1)
				st.SetModelFLOPs(1e12)
				st.Span().AddEvent("x")
				gpuspan.NewOperation("op").Start(ctx, s).End()
				if len(seen) == 2 {
					st.Cancel()
				}
				if len(seen) == 8 {
					break // without items: no step
				}
				st.AddItems(3)
			}
		}
		for _, st := range l.Steps(context.Background()) {
			seen = append(seen, st.Index())
			break
		}
		return seen
	}
	want := []int64{100, 101, 101, 102, 103, 104, 105, 106, 106}
	require.Equal(t, want, run(on, s))
	require.NoError(t, on.Shutdown(context.Background()))
	require.Equal(t, want, run(nil, nil), "no profiler")
	require.Equal(t, want, run(on, s), "after Shutdown")
	require.Equal(t, want, run(stopped, stopped.Stream(1, "s")), "stopped")
	require.Equal(t, want, run(on, nil), "no stream")

	var l *train.Loop
	var seen []int64
	for _, st := range l.Steps(context.Background()) {
		if seen = append(seen, st.Index()); len(seen) == 3 {
			break
		}
	}
	require.Equal(t, []int64{1, 2, 3}, seen)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range l.Steps(ctx) {
		t.Fatal("ctx is done")
	}
}
