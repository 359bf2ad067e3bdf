// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// pattern returns the action of a schedule for the first n steps: . skip, w warm-up, r record, R
// last of a cycle.
func pattern(s settings.Schedule, n int) string {
	out := make([]byte, n)
	for i := range out {
		out[i] = ".wrR"[s.Action(int64(i+1))]
	}
	return string(out)
}

func TestScheduleFollowsTorch(t *testing.T) {
	for _, tt := range []struct {
		s    settings.Schedule
		want string
	}{
		// The zero schedule records everything.
		{settings.Schedule{}, "rrrrrr"},
		// torch.profiler.schedule(wait=1, warmup=1, active=2): NONE, WARMUP, RECORD,
		// RECORD_AND_SAVE, repeated.
		{settings.Schedule{Wait: 1, Warmup: 1, Active: 2}, ".wrR.wrR.wrR"},
		// repeat=2: nothing afterwards.
		{settings.Schedule{Wait: 1, Warmup: 1, Active: 2, Repeat: 2}, ".wrR.wrR...."},
		// skip_first=3 applies once.
		{settings.Schedule{SkipFirst: 3, Wait: 1, Warmup: 0, Active: 1}, "....R.R.R"},
		{settings.Schedule{SkipFirst: 2, Active: 1, Repeat: 1}, "..R......"},
		{settings.Schedule{Active: 3, Repeat: 1}, "rrR..."},
		{settings.Schedule{Warmup: 2, Active: 1}, "wwRwwR"},
		// Every k-th step.
		{settings.Schedule{Every: 1}, "RRRR"},
		{settings.Schedule{Every: 4}, "...R...R...R"},
		{settings.Schedule{Every: 4, Warmup: 1}, "..wR..wR"},
		{settings.Schedule{Every: 5, Warmup: 1, Active: 2, SkipFirst: 1}, "...wrR..wrR"},
		{settings.Schedule{Every: 3, Repeat: 2}, "..R..R......"},
		// No active: everything from there on.
		{settings.Schedule{SkipFirst: 4}, "....rrrr"},
		{settings.Schedule{SkipFirst: 1, Wait: 1, Warmup: 1}, "..wrrrr"},
		// Negative values count as 0.
		{settings.Schedule{SkipFirst: -5, Wait: -1, Warmup: -2, Active: 1}, "RRR"},
		{settings.Schedule{Active: -1, Every: 3}, "..R..R"},
		{settings.Schedule{Every: -2}, "rrr"},
	} {
		require.Equal(t, tt.want, pattern(tt.s, len(tt.want)), "%+v", tt.s)
	}
	require.Equal(t, settings.StepSkip, settings.Schedule{}.Action(0))
	require.Equal(t, settings.StepSkip, settings.Schedule{Wait: 1, Active: 1}.Action(-3))
}

// Compares the minimum with its definition: the first number of steps that completes the last
// requested window.
func TestScheduleMinimumIsWhereTheLastWindowEnds(t *testing.T) {
	for skip := range 3 {
		for wait := range 3 {
			for warmup := range 3 {
				for active := 1; active < 3; active++ {
					for repeat := range 3 {
						s := settings.Schedule{SkipFirst: skip, Wait: wait, Warmup: warmup, Active: active, Repeat: repeat}
						windows, n := 0, int64(0)
						for windows < max(repeat, 1) {
							n++
							if s.Action(n) == settings.StepLast {
								windows++
							}
						}
						require.Equal(t, n, s.Minimum(), "%+v", s)
						require.NoError(t, s.Validate(n))
						if n > 1 {
							require.ErrorContains(t, s.Validate(n-1), "cannot be completed")
						}
					}
				}
			}
		}
	}
	// The older guide's minimum, wait + (warmup + active) × (repeat + 1), equals skip_first = wait
	// and repeat + 1 cycles.
	require.EqualValues(t, 5+(1+3)*(2+1), settings.Schedule{SkipFirst: 5, Warmup: 1, Active: 3, Repeat: 2 + 1}.Minimum())
}

func TestScheduleStatesWhichStepsAreRecorded(t *testing.T) {
	for want, s := range map[string]settings.Schedule{
		"all steps from 1 on":                              {},
		"all steps from 5 on":                              {SkipFirst: 4},
		"all steps from 3 on":                              {SkipFirst: 2, Active: 1},
		"steps 5 to 7, once":                               {Wait: 3, Warmup: 1, Active: 3, Repeat: 1},
		"step 4, then every 4 steps":                       {Every: 4},
		"steps 52 to 54, then every 10 steps":              {SkipFirst: 44, Warmup: 1, Active: 3, Every: 10},
		"steps 3 to 4, then every 4 steps, 2 times in all": {Wait: 1, Warmup: 1, Active: 2, Repeat: 2},
	} {
		require.Equal(t, want, s.String())
	}
}

func TestScheduleErrorsNameTheProblem(t *testing.T) {
	for _, tt := range []struct {
		s     settings.Schedule
		steps int64
		want  string
	}{
		{
			settings.Schedule{SkipFirst: 50, Warmup: 1, Active: 3},
			40,
			"`schedule` cannot be completed in 40 steps (it needs at least 54)",
		},
		{settings.Schedule{Wait: -1}, 0, "`schedule.wait` must not be negative, found -1"},
		{settings.Schedule{Wait: 1, Every: 5}, 0, "`schedule.every` (5) and `schedule.wait` (1) exclude each other"},
		{
			settings.Schedule{Warmup: 3, Active: 3, Every: 5},
			0,
			"`schedule.every` is 5 but `warmup` and `active` take 6 steps",
		},
		{settings.Schedule{Wait: 3, Repeat: 2}, 0, "`schedule.repeat` is 2 but no `active` steps end a cycle"},
	} {
		require.EqualError(t, tt.s.Validate(tt.steps), tt.want)
	}
}

func ExampleSchedule_Action() {
	s := settings.Schedule{SkipFirst: 2, Wait: 1, Warmup: 1, Active: 2}
	for i := int64(1); i <= 8; i++ {
		fmt.Print(s.Action(i).Recorded(), " ")
	}
	// Output: false false false false true true false false
}
