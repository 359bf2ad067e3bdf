// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"context"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// activity is a device event during the sweep.
type activity struct {
	kind           Kind
	seq            uint32
	start, end     int64
	duration       int64
	name           uint32
	corr           int64
	device, stream int64
	comm           bool
	detail         Detail
	launch         launch
	hasLaunch      bool
	within         uint32 // annotation or module around that; 0: none, or unknown
	replayed       bool   // launch states the node of a graph with a known capture
}

// visitor is the purpose of a sweep: choosing spans, or writing them.
type visitor interface {
	// host reports whether the range gets a span; it is called for every range in order.
	host(r *record, depth int, p *process, s *step) (keep bool)
	// device is called for every activity, with the node above it.
	device(a *activity, above *node, p *process)
	// opened is called for every new node.
	opened(n *node, r *record)
}

// sweep goes over all events by time.
type sweep struct {
	p         *Profile
	v         visitor
	analyses  bool     // totals of steps and devices are wanted
	threads   []thread // by track
	processes map[int64]*process
	main      *process
	launches  *launchTable
	steps     int64
	lastStep  int64                // highest number of a step of the main process
	meanings  map[kernelOf]meaning // see means
	act       activity
	slot      func() *activity // where the next one goes; nil: to act
	devices   map[int64]*deviceWindow
	flags     []nameFlag // by name; flags of kinds that have them
	memories  map[int64]*allocated
	ordinals  int               // of devices that the file has activities of
	threadsOf []*timeline.Log   // of one launch
	one       timeline.Activity // of one activity
	works     []work            // free
	split     timeline.Splitter
	graphs    *graphs            // what looks for captures; nil for others
	replays   map[int64]*replay  // by correlation
	playing   map[int64]*playing // replays in progress
	hosts     hostOnly           // where the file has no activities of a device
	profiler  *thread            // its own work; nil: not recorded
	modules   facts.ModuleTree
	forwards  forwards
	waits     *streamWaits // nil: none
}

type thread struct {
	stack   []frame
	process *process
	log     timeline.Log
	beside  *thread // of ranges that end on any thread
	last    int64   // end of its last launch
	// what recording cost since then, on the machine where that was measured
	recorded time.Duration
}

// frame is an open host range.
type frame struct {
	surroundings // of its content
	end          int64
	depth        int    // operators around it
	self         uint32 // what its own time counts for, in a file without activities of a device
}

func (p *Profile) newSweep(v visitor) *sweep {
	p.settleQueues()
	ordinals := p.devices()
	for _, t := range p.trackList { // besideOf needs no new names then, while a builder reads them
		if ordinals > 1 && t.device {
			p.Names.ID("GPU " + itoa(t.outer))
		}
	}
	s := &sweep{
		p: p, v: v, lastStep: math.MinInt64, threads: make([]thread, len(p.trackList)), processes: map[int64]*process{},
		meanings: map[kernelOf]meaning{}, devices: map[int64]*deviceWindow{},
		flags: make([]nameFlag, p.Names.Len()), memories: map[int64]*allocated{},
		launches: newLaunchTable(p.counts[KindRuntime]),
		playing:  map[int64]*playing{}, hosts: hostOnly{},
	}
	pid, known := p.mainProcess()
	p.main = pid
	s.main = p.newProcess(pid, known)
	s.processes[pid] = s.main
	for id := range p.processes {
		if s.processes[id] == nil {
			s.processes[id] = p.newProcess(id, true)
		}
	}
	for i, t := range p.trackList {
		s.threads[i].last = -maxTime // no launch yet
		if t.device {
			continue
		}
		if beside, ok := p.tracks[track{outer: t.outer, inner: -1 - t.inner}]; ok && t.inner >= 0 {
			s.threads[i].beside = &s.threads[beside]
		}
		if t.outer == ProfilerProcess {
			s.profiler = &s.threads[i]
		}
		if s.threads[i].process = s.processes[t.outer]; s.threads[i].process == nil {
			s.threads[i].process = s.main
		}
	}
	s.ordinals = ordinals
	return s
}

func (s *sweep) run(ctx context.Context) error {
	n := 0
	return s.p.each(func(r *record) error {
		if n++; n&0xfff == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch looks := s.graphs != nil; {
		case r.kind.Device() && looks:
			s.graphs.activity(r)
		case r.kind.Device():
			s.device(r)
		case r.kind != KindMemory:
			s.host(r)
		case s.analyses && !looks:
			s.memory(r)
		}
		return nil
	})
}

func (s *sweep) host(r *record) {
	th := &s.threads[r.track]
	th.recorded += s.p.source.Recording.of(r.kind)
	start, end := r.key, r.key+r.duration
	st := th.stack
	for len(st) > 0 && st[len(st)-1].end <= start {
		st = st[:len(st)-1]
	}
	f := frame{end: end}
	alone := len(st) == 0
	if alone {
		f.node, f.unit = th.process.window, timeline.Unit{Start: start, End: end, Name: r.name}
	} else {
		top := &st[len(st)-1]
		f.surroundings, f.depth = top.surroundings, top.depth
		f.node = top.node.live()
	}
	if s.analyses && s.ordinals == 0 {
		f.self = s.hostOnly(r, st)
	}
	if f.step == nil {
		if f.step = th.process.stepAt(start); f.step != nil && f.node == th.process.window && f.step.node != nil {
			f.node = f.step.node.live()
		}
	}
	if alone && f.step != nil && f.node == f.step.node && s.autograd(r) {
		f.node = s.waiting(f.step, f.node, end)
	}
	var fl nameFlag
	if s.analyses {
		fl = s.flag(r)
		if fl.class == timeline.CallWait {
			th.process.waits++
		}
		f.opaque = (f.opaque || fl.opaque) && !fl.operator
		f.work = s.workOf(r, &f, st)
		f.name(r, &fl)
		if f.phase == 0 && fl.plain {
			f.phase = r.name
		}
		if s.graphs == nil {
			th.log.Add(start, end, fl.class, r.name, s.needs)
			s.module(r, &f, &fl)
		} else if r.kind == KindRuntime {
			s.graphs.call(r, &f, th.process, fl.class)
		}
	}
	switch {
	case r.kind == KindStep:
		f.step = s.newStep(r, th.process)
	case f.step != nil && fl.phase != "":
		f.step.phase(fl.phase, start, end)
	}
	if s.v.host(r, f.depth, th.process, f.step) {
		n := s.newNode(r, f.node, f.step, th.process)
		if r.kind == KindStep {
			f.step.node = n
		}
		f.node = n
		s.v.opened(n, r)
	} else {
		f.node.below().ranges++
	}
	if r.kind == KindOperator {
		f.depth++
	}
	if r.kind == KindRuntime && r.correlation != 0 {
		if s.waits != nil {
			s.waits.call(r, th.process)
		}
		l := launch{
			surroundings: f.surroundings, at: f.node.reference(), start: start, end: end, process: th.process, graph: fl.opaque,
			thread:   r.track,
			previous: th.previous(s), recorded: s.p.source.Recording.since(th.recorded, r.duration),
			waits: th.process.waits,
		}
		l.node = nil
		if f.step != nil {
			l.unit.Start, l.unit.End = f.step.start, f.step.end
		}
		if fl.class == timeline.CallLaunch {
			th.launched(r)
		}
		if fl.kernel && f.work != nil {
			f.work.launches++
		}
		s.launches.put(r.correlation, l)
	}
	if r.duration > 0 {
		st = append(st, f)
	}
	th.stack = st
}

// autograd reports whether the range is one of the threads on which PyTorch runs the backward pass.
func (s *sweep) autograd(r *record) bool {
	return r.kind == KindOperator && strings.HasPrefix(s.p.Names.Name(r.name), "autograd::engine")
}

// waiting returns the innermost annotation with a span on the thread of the step that holds the instant: while the
// backward pass runs on its own threads, the thread that began it waits there.
func (s *sweep) waiting(st *step, otherwise *node, end int64) *node {
	const deep = 256 // nested ranges that are visited
	stack := s.threads[st.track].stack
	for _, s := range slices.Backward(stack[max(0, len(stack)-deep):]) {
		if n := s.node; n.kind == KindAnnotation && n.end >= end && !n.written {
			return n
		}
	}
	return otherwise
}

func (s *sweep) newStep(r *record, p *process) *step {
	st := &step{
		track: r.track, start: r.key, end: r.key + r.duration, occurrences: map[uint32]int64{}, devices: map[int64]struct{}{},
		phases: map[string]*intervals.Ordered{},
	}
	var d Detail
	d.decode(r.detail)
	st.index, st.hasIndex = d.Step, d.HasStep
	st.ordinal, s.steps = s.steps, s.steps+1
	if st.hasIndex && p == s.main && st.index > s.lastStep {
		st.leads, s.lastStep = true, st.index
	}
	p.track(st)
	p.leads(r.track)
	if p.path != nil {
		p.path.Step(st.start, st.end, r.track, r.name)
	}
	return st
}

func (s *sweep) device(r *record) {
	t := s.p.trackList[r.track]
	a := &s.act
	if s.slot != nil {
		a = s.slot()
	}
	*a = activity{
		kind: r.kind, seq: r.seq, start: r.start(), duration: r.duration, name: r.name, corr: r.correlation,
		device: t.outer, stream: t.inner,
	}
	a.end = a.start + a.duration
	a.detail.decode(r.detail)
	a.comm = r.kind == KindKernel && s.p.communicates(r.name)
	if l, ok := s.launches.get(r.correlation); ok {
		a.launch, a.hasLaunch = *l, true
	}
	if s.analyses {
		s.replayed(a)
	}
	proc := s.main
	if owner := s.processes[t.owner]; t.owned && owner != nil {
		proc = owner
	}
	above := proc.window
	if a.hasLaunch {
		proc, above = a.launch.process, a.launch.at.live()
	}
	if s.analyses {
		s.analyse(proc, a, r)
	}
	s.v.device(a, above, proc)
}

func (s *sweep) analyse(proc *process, a *activity, r *record) {
	first := false
	if w := a.launch.work; w != nil && a.kind == KindKernel && !a.comm {
		if first = !w.counted; first {
			w.begin(s.p.Names.Name(a.name))
		}
	}
	if st := a.launch.step; st != nil {
		st.launched(a, first)
	}
	if s.p.takes(a) {
		d := s.devices[a.device]
		if d == nil {
			d = newDeviceWindow(a.device, proc, &s.split)
			if d.limits = s.p.limitsOf(a.device); s.ordinals > 1 {
				d.beside = s.besideOf(d)
			}
			d.others = func(from, to int64) uint32 { return s.others(d.taking, from, to) }
			s.devices[a.device] = d
		}
		d.add(s, proc, a, first)
	}
	s.addToSteps(proc, a)
	if proc.path != nil {
		s.path(proc, a, r.track)
	}
}

// addToSteps adds the activity to the steps during which it ran, whatever launched it, and forgets steps that ended
// before it: activities arrive by start.
func (s *sweep) addToSteps(p *process, a *activity) {
	p.passed(a.start - skew)
	p.during(a.start, a.end, func(st *step) { st.device(a) })
}

// memory takes an event of the allocator.
func (s *sweep) memory(r *record) {
	var d Detail
	d.decode(r.detail)
	m := boundedmap.Of(s.memories, d.MemoryDevice)
	th := &s.threads[r.track]
	in := uint32(0)
	// Ranges are nested: ended ones are at the top.
	if i := sort.Search(len(th.stack), func(i int) bool { return th.stack[i].end <= r.key }); i > 0 {
		in = th.stack[i-1].named
	}
	m.add(&d, in)
	if d.HasMemoryUsage {
		m.levels.Add(r.key, d.MemoryUsage)
	}
	if st := th.process.stepAt(r.key); st != nil {
		st.allocated.add(&d, in)
	}
}

func launches(name string) bool { return containsAny(name, launching) }
