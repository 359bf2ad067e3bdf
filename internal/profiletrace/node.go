// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"cmp"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

// node is a host range that has a span, and summarizes what is below it without a span.
type node struct {
	kind       Kind
	start, end int64
	name       uint32
	corr       int64
	detail     []byte
	seq        uint32
	thread     int64 // of the host; negative: a track that is no thread, as of ranges that end on any
	process    *process
	parent     *node // nil: the window
	step       *step // the step that it is or belongs to
	self       spanRef
	up         pcommon.SpanID // parent span; empty for a root
	link       []link
	sum        *summary // see below
	projected  []projection
	written    bool
	replaced   bool     // the work in detail is not the operator's; see sweep.workOf
	ref        *nodeRef // nil: not needed yet
}

// nodeRef refers to a node for long, as launches do: it releases the node when that is written, and leads to its
// ancestors.
type nodeRef struct {
	node  *node // nil: written
	above *nodeRef
}

// live returns the nearest node that can still gather, or else the window.
func (r *nodeRef) live() *node {
	for r.node == nil {
		if up := r.above; up.node == nil {
			r.above = up.above // the next walk is shorter
		}
		r = r.above
	}
	return r.node
}

// release ends the summary. The window stays, for events with no other ancestor.
func (n *node) release() {
	if n.written = true; n.parent != nil && n.ref != nil {
		n.ref.node = nil
	}
}

// reference returns the node's nodeRef. Few nodes launch anything, so it is made by the first launch.
func (n *node) reference() *nodeRef {
	if n.ref != nil {
		return n.ref
	}
	n.ref = &nodeRef{}
	if n.parent != nil {
		n.ref.above = n.parent.reference()
	}
	if !n.written || n.parent == nil {
		n.ref.node = n
	}
	return n.ref
}

// live returns the nearest node that can still gather.
func (n *node) live() *node {
	for n.written && n.parent != nil {
		n = n.parent
	}
	return n
}

// below returns the summary of what is below the node without a span; most nodes need none.
func (n *node) below() *summary {
	if n.sum == nil {
		n.sum = &summary{}
	}
	return n.sum
}

// step is one iteration: totals are kept whether or not it has a span.
type step struct {
	track       uint32 // of its host thread
	ordinal     int64  // 0, 1, … in the order of the sweep
	index       int64
	hasIndex    bool
	leads       bool // the first of its number, to which other ranks link
	start, end  int64
	latest      int64 // end of the steps of the process so far, this one included
	node        *node // nil: no span
	account     facts.StepSpending
	busy        intervals.Ordered
	comm        intervals.Ordered
	compute     intervals.Ordered
	kernel      intervals.Ordered
	allocated   allocated
	kernels     int64 // launched
	computed    computed
	occurrences map[uint32]int64 // collectives launched, by name
	devices     map[int64]struct{}
	phases      map[string]*intervals.Ordered
	phaseAll    intervals.Set
	phaseFull   bool // phaseAll is not complete
}

func (s *step) device(a *activity) {
	if a.end <= s.start || a.start >= s.end {
		return
	}
	s.busy.Clip(a.start, a.end, s.start, s.end)
	if a.kind == KindKernel {
		s.kernel.Clip(a.start, a.end, s.start, s.end)
	}
	switch {
	case a.comm:
		s.comm.Clip(a.start, a.end, s.start, s.end)
		s.addPhase("comm", max(a.start, s.start), min(a.end, s.end))
	case a.kind == KindKernel:
		s.compute.Clip(a.start, a.end, s.start, s.end)
	}
	s.devices[a.device] = struct{}{}
}

// onlyDevice returns the device that all of the step ran on; ok is false if there is not exactly one.
func (s *step) onlyDevice() (ordinal int64, ok bool) {
	for ordinal = range s.devices {
	}
	return ordinal, len(s.devices) == 1
}

// exposed returns the communication time that overlaps no compute kernel.
func (s *step) exposed() int64 { return s.kernel.Length - s.compute.Length }

// occurrence counts a collective among others of its name, from 1 on.
func (s *step) occurrence(name uint32) int64 {
	s.occurrences[name]++
	return s.occurrences[name]
}

func (s *step) launched(a *activity, firstOfWork bool) {
	if a.kind != KindKernel {
		return
	}
	s.kernels++
	if !a.comm {
		s.computed.add(a, firstOfWork)
	}
}

// phase takes a host range that is a phase of the step.
func (s *step) phase(name string, start, end int64) {
	start, end = max(start, s.start), min(end, s.end)
	if end > start {
		s.addPhase(name, start, end)
	}
}

// addPhase takes intervals of one phase in the order of their starts.
func (s *step) addPhase(name string, start, end int64) {
	boundedmap.Of(s.phases, name).Add(start, end)
	if len(s.phaseAll) >= maxPhaseRanges {
		s.phaseFull = true
		return
	}
	s.phaseAll.Add(intervals.Interval{Start: start, End: end}, 0)
}

// maxPhaseRanges bounds the intervals that a step keeps; a step has a handful.
const maxPhaseRanges = 1 << 12

// process is one process of the profile: one resource.
type process struct {
	pid    int64
	known  bool // the file states a pid
	window *node
	steps  []*step // open ones and ones that the device's rows have not passed, by start; see track
	sweep  int     // length of steps at which ended ones are searched
	deep   int64   // steps that track did not keep
	ids    idSource
	path   *criticalpath.Recorder // nil: not recorded

	main    uint32 // track of the thread that leads: the first step's, else the first launch's
	hasMain bool
	bySteps bool
	waits   int64 // for the device
}

// leads records a thread that starts a step.
func (p *process) leads(track uint32) {
	if !p.bySteps {
		p.main, p.hasMain, p.bySteps = track, true, true
	}
}

// openSteps bounds the concurrent steps that have totals of the device. More deeply nested ones have none, and are
// counted.
const openSteps = 64

// track keeps a new step for the device activities during it.
func (p *process) track(st *step) {
	open := p.steps[max(0, len(p.steps)-openSteps):]
	if len(open) == openSteps && !slices.ContainsFunc(open, func(s *step) bool { return s.end <= st.start }) {
		p.deep++
		return
	}
	if st.latest = st.end; len(p.steps) > 0 {
		st.latest = max(st.end, p.steps[len(p.steps)-1].latest)
	}
	p.steps = append(p.steps, st)
}

// passed drops steps that ended before an instant, as soon as they may be half of the kept ones.
func (p *process) passed(t int64) {
	if len(p.steps) >= max(p.sweep, openSteps) {
		p.steps = slices.DeleteFunc(p.steps, func(s *step) bool { return s.end <= t })
		p.sweep = 2 * len(p.steps)
	}
}

// during calls f for the steps that overlap [from, to), the latest first, of the kept ones: at most the latest
// maxSteps, so that files with thousands of steps within a millisecond cost no more than others.
func (p *process) during(from, to int64, f func(*step)) {
	const maxSteps = 4096
	n := len(p.steps)
	if n == 0 || p.steps[n-1].start >= to {
		n, _ = slices.BinarySearchFunc(p.steps, to, func(s *step, t int64) int { return cmp.Compare(s.start, t) })
	}
	for i := n - 1; i >= max(0, n-maxSteps) && p.steps[i].latest > from; i-- {
		if s := p.steps[i]; s.end > from {
			f(s)
		}
	}
}

// stepAt returns the step whose host range contains the instant, among the latest ones: the sweep only queries recent
// times.
func (p *process) stepAt(t int64) *step {
	for _, s := range slices.Backward(p.steps[max(0, len(p.steps)-openSteps):]) {
		if s.start <= t && t < s.end {
			return s
		}
	}
	return nil
}
