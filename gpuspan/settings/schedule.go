// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
)

// Schedule selects the steps of a loop to record. As in PyTorch's torch.profiler.schedule,
// SkipFirst steps are followed by Repeat cycles of Wait, Warmup and Active steps.
//
//	SkipFirst │ Wait Warmup Active │ Wait Warmup Active │ …
//	  none    │ none warm   record │ none warm   record │
//
// The zero Schedule records every step. Every sets the length of a cycle instead of Wait, so
// {Every: 10} records steps 10, 20, 30 … and {Every: 10, Warmup: 1, Active: 3} steps 8 to 10, 18 to
// 20 …
//
// Negative SkipFirst, Wait, Warmup, Repeat and Every count as 0, and Validate rejects them. Active
// of 0 or less means 1 if Every is set; otherwise the window of the first active step never ends,
// so {SkipFirst: 50} records all steps from step 51 on.
type Schedule struct {
	SkipFirst int // steps before the first cycle
	Wait      int // steps of a cycle that are not recorded
	Warmup    int // steps of a cycle that are timed and discarded
	Active    int // steps of a cycle that are recorded
	Repeat    int // number of cycles; 0: unlimited
	Every     int // length of a cycle; instead of Wait
}

// StepAction is a Schedule's decision about one step.
type StepAction uint8

// Step actions.
const (
	StepSkip   StepAction = iota // counted, not timed
	StepWarmup                   // timed, as warmup of events and clocks, without spans and statistics
	StepRecord                   // timed and recorded
	StepLast                     // recorded, and the last of its cycle
)

// Recorded reports whether the step becomes a span.
func (a StepAction) Recorded() bool { return a >= StepRecord }

func (s Schedule) normal() Schedule {
	s.SkipFirst, s.Wait, s.Warmup = max(s.SkipFirst, 0), max(s.Wait, 0), max(s.Warmup, 0)
	s.Repeat, s.Every, s.Active = max(s.Repeat, 0), max(s.Every, 0), max(s.Active, 0)
	if s.Every > 0 {
		s.Active = max(s.Active, 1)
		s.Wait = max(s.Every-s.Warmup-s.Active, 0)
	}
	return s
}

// Action returns the decision about a step; index counts from 1, like gpu.step.index. Steps with a
// lower index are skipped.
func (s Schedule) Action(index int64) StepAction {
	s = s.normal()
	n := index - 1 - int64(s.SkipFirst)
	if n < 0 {
		return StepSkip
	}
	idle := int64(s.Wait + s.Warmup)
	if s.Active == 0 {
		if n >= idle {
			return StepRecord
		}
	} else {
		cycle := idle + int64(s.Active)
		if s.Repeat > 0 && n/cycle >= int64(s.Repeat) {
			return StepSkip
		}
		n %= cycle
		if n == cycle-1 {
			return StepLast
		}
	}
	switch {
	case n < int64(s.Wait):
		return StepSkip
	case n < idle:
		return StepWarmup
	}
	return StepRecord
}

// String describes the recorded steps, counted from 1, such as `steps 5 to 7, once`.
func (s Schedule) String() string {
	s = s.normal()
	idle := s.Wait + s.Warmup
	first := s.SkipFirst + idle + 1
	if s.Active == 0 {
		return fmt.Sprintf("all steps from %d on", first)
	}
	steps := fmt.Sprintf("step %d", first)
	if s.Active > 1 {
		steps = fmt.Sprintf("steps %d to %d", first, first+s.Active-1)
	}
	cycle := idle + s.Active
	switch {
	case s.Repeat == 1:
		return fmt.Sprintf("%s, once", steps)
	case s.Repeat > 1:
		return fmt.Sprintf("%s, then every %d steps, %d times in all", steps, cycle, s.Repeat)
	case cycle == 1:
		return fmt.Sprintf("all steps from %d on", first)
	}
	return fmt.Sprintf("%s, then every %d steps", steps, cycle)
}

// Minimum returns the number of steps after which the schedule is complete: all cycles, or one if
// Repeat is 0.
func (s Schedule) Minimum() int64 {
	s = s.normal()
	return int64(s.SkipFirst) + int64(s.Wait+s.Warmup+max(s.Active, 1))*int64(max(s.Repeat, 1))
}

// Validate returns an error that lists negative and contradictory values, and a schedule that
// cannot be completed in a number of steps (0: unknown).
func (s Schedule) Validate(steps int64) error {
	var bad problems
	bad.when(s.SkipFirst < 0, "`schedule.skip_first` must not be negative, found %d", s.SkipFirst)
	bad.when(s.Wait < 0, "`schedule.wait` must not be negative, found %d", s.Wait)
	bad.when(s.Warmup < 0, "`schedule.warmup` must not be negative, found %d", s.Warmup)
	bad.when(s.Active < 0, "`schedule.active` must not be negative, found %d", s.Active)
	bad.when(s.Repeat < 0, "`schedule.repeat` must not be negative, found %d", s.Repeat)
	bad.when(s.Every < 0, "`schedule.every` must not be negative, found %d", s.Every)
	bad.when(s.Every > 0 && s.Wait > 0, "`schedule.every` (%d) and `schedule.wait` (%d) exclude each other", s.Every,
		s.Wait)
	need, least := max(s.Warmup, 0)+max(s.Active, 1), s.Minimum()
	bad.when(s.Every > 0 && need > s.Every, "`schedule.every` is %d but `warmup` and `active` take %d steps", s.Every,
		need)
	bad.when(s.Active <= 0 && s.Every <= 0 && s.Repeat > 0, "`schedule.repeat` is %d but no `active` steps end a cycle",
		s.Repeat)
	bad.when(len(bad) == 0 && steps > 0 && steps < least,
		"`schedule` cannot be completed in %d steps (it needs at least %d)", steps, least)
	return errors.Join(bad...)
}
