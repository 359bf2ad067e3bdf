// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// Steps of 10 ms in which the device computes from 2 to 7 ms: only time outside of other phases
// counts.
func TestWaitingAndExposedCommunicationExcludeHiddenTime(t *testing.T) {
	ms := time.Millisecond
	at := func(ph train.Phase, from, d time.Duration) func(*train.Step, time.Time) {
		return func(s *train.Step, start time.Time) { s.AddPhaseAt(ph, start.Add(from), d) }
	}
	for _, tt := range []struct {
		name             string
		apply            func(*train.Step, time.Time)
		waiting, exposed time.Duration
	}{
		{"nothing", func(*train.Step, time.Time) {}, 0, 0},
		{"data before the computation", at(train.Data, 0, 2*ms), 2 * ms, 0},
		{"data ahead of time, beside the computation", at(train.Data, 3*ms, 3*ms), 0, 0},
		{"data that the computation hides in part", at(train.Data, ms, 2*ms), ms, 0},
		{
			"data without a position is not hidden", func(s *train.Step, _ time.Time) { s.AddPhase(train.Data, 3*ms) },
			3 * ms, 0,
		},
		{"data that is set", func(s *train.Step, _ time.Time) { s.SetPhase(train.Data, 4*ms) }, 4 * ms, 0},
		{"communication that outlasts the computation", at(train.Comm, 4*ms, 5*ms), 0, 2 * ms},
		{"data behind communication", func(s *train.Step, start time.Time) {
			s.AddPhaseAt(train.Comm, start.Add(7*ms), 3*ms)
			s.AddPhaseAt(train.Data, start.Add(8*ms), 2*ms)
		}, 0, ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			s, _ := r.stream()
			for _, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(1)).Steps(context.Background()) {
				start := r.clock.Now()
				step.AddPhaseAt(train.Forward, start.Add(2*ms), 5*ms)
				tt.apply(step, start)
				r.clock.Advance(10 * ms)
			}
			r.flush()
			l := r.p.Snapshot().Loops[0]
			require.InDelta(t, float64(tt.waiting), float64(l.Waiting), 1e4)
			require.InDelta(t, float64(tt.exposed), float64(l.Exposed), 1e4)
		})
	}
}
