// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"slices"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

// Step is one iteration: totals are kept whether or not it has a span.
type Step struct {
	track       uint32 // of its host thread
	stack       uint32 // of what is in it
	Name        uint32
	Ordinal     int64 // 0, 1, … in the order of the sweep
	Index       int64
	HasIndex    bool
	Leads       bool // the first of its number, to which other ranks link
	Start, End  int64
	latest      int64 // end of the steps of the process so far, this one included
	Node        *Node // nil: not kept
	Account     facts.StepSpending
	Busy        intervals.Ordered
	Comm        intervals.Ordered
	compute     intervals.Ordered
	kernel      intervals.Ordered
	Allocated   Allocated
	Kernels     int64 // launched
	Computed    Computed
	occurrences map[uint32]int64 // collectives launched, by name
	devices     map[int64]struct{}
	Phases      map[string]*intervals.Ordered
	PhaseAll    intervals.Set
	PhaseFull   bool // phaseAll is not complete
}

func (s *Step) device(a *Activity) {
	if a.End <= s.Start || a.Start >= s.End {
		return
	}
	s.Busy.Clip(a.Start, a.End, s.Start, s.End)
	if a.Kind == event.KindKernel {
		s.kernel.Clip(a.Start, a.End, s.Start, s.End)
	}
	switch {
	case a.Communicates:
		s.Comm.Clip(a.Start, a.End, s.Start, s.End)
		s.addPhase("comm", max(a.Start, s.Start), min(a.End, s.End))
	case a.Kind == event.KindKernel:
		s.compute.Clip(a.Start, a.End, s.Start, s.End)
	}
	s.devices[a.Device] = struct{}{}
}

// OnlyDevice returns the device that all of the step ran on; ok is false if there is not exactly
// one.
func (s *Step) OnlyDevice() (ordinal int64, ok bool) {
	for ordinal = range s.devices {
	}
	return ordinal, len(s.devices) == 1
}

// Exposed returns the communication time that overlaps no compute kernel.
func (s *Step) Exposed() int64 { return s.kernel.Length - s.compute.Length }

// occurrence counts a collective among others of its name, from 1 on.
func (s *Step) occurrence(name uint32) int64 {
	s.occurrences[name]++
	return s.occurrences[name]
}

func (s *Step) launched(a *Activity, firstOfWork bool) {
	if a.Kind != event.KindKernel {
		return
	}
	s.Kernels++
	if !a.Communicates {
		s.Computed.add(a, firstOfWork)
	}
}

// phase takes a host range that is a phase of the step.
func (s *Step) phase(name string, start, end int64) {
	start, end = max(start, s.Start), min(end, s.End)
	if end > start {
		s.addPhase(name, start, end)
	}
}

// addPhase takes intervals of one phase in the order of their starts.
func (s *Step) addPhase(name string, start, end int64) {
	boundedmap.Of(s.Phases, name).Add(start, end)
	if len(s.PhaseAll) >= maxPhaseRanges {
		s.PhaseFull = true
		return
	}
	s.PhaseAll.Add(intervals.Interval{Start: start, End: end}, 0)
}

// maxPhaseRanges bounds the intervals that a step keeps; a step has a handful.
const maxPhaseRanges = 1 << 12

// Track returns the row of the step's thread.
func (st *Step) Track() uint32 { return st.track }

// Process is one process of the profile: one resource.
type Process struct {
	Pid    int64
	Known  bool // the file states a pid
	Window *Node
	steps  []*Step                // open ones and ones that the device's rows have not passed, by start; see track
	sweep  int                    // length of steps at which ended ones are searched
	deep   int64                  // steps that track did not keep
	path   *criticalpath.Recorder // nil: not recorded

	main    uint32 // track of the thread that leads: the first step's, else the first launch's
	hasMain bool
	bySteps bool
	waits   int64 // for the device

	lost      map[int64]*lost // by device
	capturing bool            // a graph
}

// leads records a thread that starts a step.
func (p *Process) leads(track uint32) {
	if !p.bySteps {
		p.main, p.hasMain, p.bySteps = track, true, true
	}
}

// openSteps bounds the concurrent steps that have totals of the device. More deeply nested ones
// have none, and are counted.
const openSteps = 64

// track keeps a new step for the device activities during it.
func (p *Process) track(st *Step) {
	open := p.steps[max(0, len(p.steps)-openSteps):]
	if len(open) == openSteps && !slices.ContainsFunc(open, func(s *Step) bool { return s.End <= st.Start }) {
		p.deep++
		return
	}
	if st.latest = st.End; len(p.steps) > 0 {
		st.latest = max(st.End, p.steps[len(p.steps)-1].latest)
	}
	p.steps = append(p.steps, st)
}

// passed drops steps that ended before an instant, as soon as they may be half of the kept ones.
func (p *Process) passed(t int64) {
	if len(p.steps) >= max(p.sweep, openSteps) {
		p.steps = slices.DeleteFunc(p.steps, func(s *Step) bool { return s.End <= t })
		p.sweep = 2 * len(p.steps)
	}
}

// during calls f for the steps that overlap [from, to), the latest first, of the kept ones: at most
// the latest maxSteps, so that files with thousands of steps within a millisecond cost no more than
// others.
func (p *Process) during(from, to int64, f func(*Step)) {
	const maxSteps = 4096
	n := len(p.steps)
	if n == 0 || p.steps[n-1].Start >= to {
		n, _ = slices.BinarySearchFunc(p.steps, to, func(s *Step, t int64) int { return cmp.Compare(s.Start, t) })
	}
	for i := n - 1; i >= max(0, n-maxSteps) && p.steps[i].latest > from; i-- {
		if s := p.steps[i]; s.End > from {
			f(s)
		}
	}
}

// stepAt returns the step whose host range contains the instant, among the latest ones: the sweep
// only queries recent times.
func (p *Process) stepAt(t int64) *Step {
	for _, s := range slices.Backward(p.steps[max(0, len(p.steps)-openSteps):]) {
		if s.Start <= t && t < s.End {
			return s
		}
	}
	return nil
}
