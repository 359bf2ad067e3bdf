// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// Sweep goes over all events by time.
type Sweep struct {
	in        *Input
	v         Visitor
	observer  Observer // nil: none
	analyses  bool     // totals of steps and devices are wanted
	tracks    []event.Track
	threads   []thread // by track
	first     int64    // of the profile, likewise end
	end       int64
	Processes map[int64]*Process
	Main      *Process
	launches  *launchTable
	steps     stepLists
	lastStep  int64                // highest number of a step of the main process
	meanings  map[kernelOf]meaning // see means
	act       Activity
	Slot      func() *Activity // where the next one goes; nil: to act
	devices   map[int64]*deviceWindow
	flags     []vocabulary.Meaning // by name; flags of kinds that have them
	memories  map[int64]*Allocated
	ordinals  int               // of devices that the file has activities of
	threadsOf []*timeline.Log   // of one launch
	one       timeline.Activity // of one activity
	works     []Work            // free
	split     timeline.Splitter
	graphs    *graphs            // what looks for captures; nil for others
	replays   map[int64]*replay  // by correlation
	playing   map[int64]*playing // replays in progress
	hosts     hostOnly           // where the file has no activities of a device
	profiler  *thread            // its own work; nil: not recorded
	modules   facts.ModuleTree
	stating   map[uint32]uint32 // nodes in it, by the path that activities state
	forwards  forwards
	waits     *streamWaits // nil: none
}

type thread struct {
	stack   []frame
	process *Process
	log     timeline.Log
	beside  *thread // of ranges that end on any thread
	last    int64   // end of its last launch
	// what recording cost since then, on the machine where that was measured
	recorded  time.Duration
	host      hostStack // in a file without activities of a device
	device    int64     // of its last launch with a record
	hasDevice bool
}

// frame is an open host range.
type frame struct {
	surroundings // of its content
	kind         event.Kind
	nameID       uint32
	end          int64
	depth        int    // operators around it
	base         uint32 // stack of the step, or of the range that waits, on another thread; 0: none
	stack        uint32 // of its content; 0: not needed yet
}

// rounding is how far a range that was rounded to microseconds may reach into the next one, in ns.
const rounding = 1000

// endsBefore reports whether the frame ends before a later range from start to end. Rounded, a range
// may start before the end of the frame that it follows: most of it is outside then.
func (f *frame) endsBefore(start, end int64) bool {
	overlap := f.end - start
	return overlap <= 0 || overlap <= rounding && end-f.end > overlap
}

// NewSweep returns a sweep that links events and collects no facts.
func (in *Input) NewSweep(v Visitor) *Sweep {
	ordinals, tracks := in.Devices(), in.Tracks()
	for _, t := range tracks { // besideOf needs no new names then, while a builder reads them
		if ordinals > 1 && t.Device {
			in.Names.ID(vocabulary.DeviceName(t.Outer))
		}
	}
	s := &Sweep{
		in: in, v: v, lastStep: math.MinInt64, threads: make([]thread, len(tracks)), Processes: map[int64]*Process{},
		meanings: map[kernelOf]meaning{}, devices: map[int64]*deviceWindow{}, tracks: tracks,
		flags: make([]vocabulary.Meaning, in.Names.Len()), memories: map[int64]*Allocated{},
		launches: newLaunchTable(in.Count(event.KindRuntime)),
		playing:  map[int64]*playing{}, stating: map[uint32]uint32{}, hosts: hostOnly{},
		steps: stepLists{in: in, kept: map[int64][]facts.Step{}},
	}
	s.first, s.end = in.Period()
	pid, known := in.MainProcess()
	s.Main = s.newProcess(pid, known)
	s.Processes[pid] = s.Main
	for id := range in.Processes() {
		if s.Processes[id] == nil {
			s.Processes[id] = s.newProcess(id, true)
		}
	}
	for i, t := range tracks {
		s.threads[i].last = -event.MaxTime // no launch yet
		if t.Device {
			continue
		}
		if beside, ok := in.TrackID(event.Track{Outer: t.Outer, Inner: -1 - t.Inner}); ok && t.Inner >= 0 {
			s.threads[i].beside = &s.threads[beside]
		}
		if t.Outer == event.ProfilerProcess {
			s.profiler = &s.threads[i]
		}
		if s.threads[i].process = s.Processes[t.Outer]; s.threads[i].process == nil {
			s.threads[i].process = s.Main
		}
	}
	s.ordinals = ordinals
	return s
}

// Analysis returns a sweep that collects facts on its way.
func (in *Input) Analysis(v Visitor, replays Replays) *Sweep {
	s := in.NewSweep(v)
	s.analyses, s.replays = true, replays.of
	s.followPaths()
	return s
}

func (s *Sweep) newProcess(pid int64, known bool) *Process {
	return &Process{Pid: pid, Known: known, Window: &Node{Start: s.first, End: s.end}, lost: map[int64]*lost{}}
}

// Run visits all events by time.
func (s *Sweep) Run(ctx context.Context) error {
	n := 0
	return s.in.Each(func(r *event.Record) error {
		if n++; n&0xfff == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if n&0xffff == 0 && s.analyses { // threads that ended keep nothing
			before := s.needs()
			for i := range s.threads {
				s.threads[i].log.Trim(before)
			}
		}
		onlyCaptures := s.graphs != nil
		switch {
		case r.Kind.Device() && onlyCaptures:
			s.graphs.activity(r)
		case r.Kind.Device():
			s.device(r)
		case r.Kind != event.KindMemory:
			s.host(r)
		case s.analyses && !onlyCaptures:
			s.memory(r)
		}
		return nil
	})
}

func (s *Sweep) host(r *event.Record) {
	th := &s.threads[r.Track]
	th.recorded += s.in.Recording.of(r.Kind)
	start, end := r.Key, r.Key+r.Duration
	st := th.stack
	for len(st) > 0 && st[len(st)-1].endsBefore(start, end) {
		st = st[:len(st)-1]
	}
	f := frame{end: end, kind: r.Kind, nameID: r.Name}
	alone := len(st) == 0
	if alone {
		f.node, f.unit = th.process.Window, timeline.Unit{Start: start, End: end, Name: r.Name}
	} else {
		top := &st[len(st)-1]
		f.surroundings, f.depth = top.surroundings, top.depth
		f.node = top.node.Live()
	}
	if s.analyses && s.ordinals == 0 {
		s.hostOnly(r)
	}
	if f.Step == nil {
		if f.Step = th.process.stepAt(start); f.Step != nil {
			f.base = f.Step.stack
			if f.node == th.process.Window && f.Step.Node != nil {
				f.node = f.Step.Node.Live()
			}
		}
	}
	if alone && f.Step != nil && s.autograd(r) {
		s.belowWaiting(&f)
	}
	var fl vocabulary.Meaning
	if s.analyses {
		fl = s.flag(r)
		if fl.Queue && !alone && s.flags[st[len(st)-1].nameID].Class == timeline.RangeOutside {
			fl.Class = timeline.RangeLoader // the frame that takes requests from the queue explains more
		}
		if fl.Class == timeline.CallWait {
			th.process.waits++
		}
		if r.Kind == event.KindRuntime {
			th.process.capture(fl.Class)
			if fl.Settles {
				if th.process.waited(r) && th.process.path != nil {
					th.process.path.Unrecorded(r.Track, r.Key)
				}
			}
			if path := th.process.path; path != nil && fl.Polls {
				path.Poll(r.Track, r.Name, start, end)
			} else if path != nil && fl.Class == timeline.CallLaunch {
				path.Launch(r.Track)
			}
		}
		f.opaque = (f.opaque || fl.Opaque) && !fl.Operator
		f.Work = s.workOf(r, &f, st)
		f.name(r, &fl)
		if f.phase == 0 && fl.Plain {
			f.phase = r.Name
		}
		if s.graphs == nil {
			th.log.Add(start, end, fl.Class, r.Name, s.needs)
			s.module(r, &f, &fl)
		} else if r.Kind == event.KindRuntime {
			s.graphs.call(r, &f, th.process, fl.Class)
		}
	}
	switch {
	case r.Kind == event.KindStep:
		f.Step = s.newStep(r, th.process)
	case f.Step != nil && fl.Phase != "":
		f.Step.phase(fl.Phase, start, end)
	}
	if s.observer != nil {
		s.observer.Range(r)
	}
	if n := s.v.Range(r, f.node, f.depth, th.process, f.Step); n != nil {
		if r.Kind == event.KindStep {
			f.Step.Node = n
		}
		f.node = n
	}
	if r.Kind == event.KindOperator {
		f.depth++
	}
	if r.Kind == event.KindRuntime && r.Correlation != 0 {
		if s.waits != nil {
			s.waits.call(r, th.process)
		}
		l := launch{
			surroundings: f.surroundings, at: f.node.reference(), Start: start, End: end, Process: th.process, graph: fl.Opaque,
			thread:   r.Track,
			previous: th.previous(s), recorded: s.in.Recording.since(th.recorded, r.Duration),
			waits: th.process.waits,
		}
		l.node = nil
		if f.Step != nil {
			l.unit.Start, l.unit.End = f.Step.Start, f.Step.End
		}
		l.Stack = s.stackOf(append(st, f))
		if fl.Class == timeline.CallLaunch {
			th.launched(r)
			if s.analyses {
				s.countLaunch(r, th, &fl)
			}
		}
		if fl.Kernel && f.Work != nil {
			f.Work.Launches++
		}
		s.launches.put(r.Correlation, l)
	}
	if r.Duration > 0 {
		st = append(st, f)
	}
	th.stack = st
}

// autograd reports whether the range is one of the threads on which PyTorch runs the backward pass.
func (s *Sweep) autograd(r *event.Record) bool {
	return r.Kind == event.KindOperator && strings.HasPrefix(s.in.Names.Name(r.Name), "autograd::engine")
}

// belowWaiting places a range of the backward pass, which runs on its own threads, within the
// innermost annotation on the thread of the step that holds it: the thread that began the backward
// pass waits there.
func (s *Sweep) belowWaiting(f *frame) {
	const deep = 256 // nested ranges that are visited
	stack := s.threads[f.Step.track].stack
	for i := len(stack) - 1; i >= max(0, len(stack)-deep); i-- {
		if w := &stack[i]; w.kind == event.KindAnnotation && w.end >= f.end {
			if f.base = s.stackOf(stack[:i+1]); f.node == f.Step.Node && w.node.Kind == event.KindAnnotation {
				f.node = w.node.Live()
			}
			return
		}
	}
}

func (s *Sweep) newStep(r *event.Record, p *Process) *Step {
	st := &Step{
		track: r.Track, Name: r.Name, Start: r.Key, End: r.Key + r.Duration,
		occurrences: map[uint32]int64{}, devices: map[int64]struct{}{}, Phases: map[string]*intervals.Ordered{},
	}
	var d event.Detail
	d.Decode(r.Detail)
	st.Index, st.HasIndex = d.Step, d.HasStep
	s.steps.add(st)
	if s.observer != nil {
		st.stack = s.in.Stacks.loop(vocabulary.LoopOf(s.in.Names.Name(r.Name), st.HasIndex))
	}
	if st.HasIndex && p == s.Main && st.Index > s.lastStep {
		st.Leads, s.lastStep = true, st.Index
	}
	p.track(st)
	p.leads(r.Track)
	if p.path != nil {
		p.path.Step(st.Start, st.End, r.Track, r.Name)
	}
	return st
}

func (s *Sweep) device(r *event.Record) {
	t := s.tracks[r.Track]
	a := &s.act
	if s.Slot != nil {
		a = s.Slot()
	}
	*a = Activity{
		Kind: r.Kind, Seq: r.Seq, Start: r.Start(), Duration: r.Duration, Name: r.Name, Correlation: r.Correlation,
		Device: t.Outer, Stream: t.Inner,
	}
	a.End = a.Start + a.Duration
	a.Detail.Decode(r.Detail)
	a.Communicates = r.Kind == event.KindKernel && (a.Detail.Collective != "" || s.in.Communicates(r.Name))
	if l, ok := s.launches.get(r.Correlation); ok {
		a.Launch, a.HasLaunch = *l, true
	}
	if s.analyses {
		s.replayed(a)
		s.stated(a)
	}
	proc := s.Main
	if owner := s.Processes[t.Owner]; t.Owned && owner != nil {
		proc = owner
	}
	above := proc.Window
	if a.HasLaunch {
		proc, above = a.Launch.Process, a.Launch.at.live()
	}
	if s.analyses {
		s.analyse(proc, a, r)
		if a.HasLaunch {
			th := &s.threads[a.Launch.thread]
			th.device, th.hasDevice = a.Device, true
			for _, d := range [...]int64{a.Device, anyDevice} {
				if l := proc.lost[d]; l != nil {
					l.started(a)
				}
			}
		}
	}
	if s.observer != nil {
		s.observer.Activity(a)
	}
	s.v.Activity(a, above, proc)
}

func (s *Sweep) analyse(proc *Process, a *Activity, r *event.Record) {
	first := false
	if w := a.Launch.Work; w != nil && a.Kind == event.KindKernel && !a.Communicates {
		if first = !w.counted; first {
			w.begin(s.in.Names.Name(a.Name))
		}
	}
	if st := a.Launch.Step; st != nil {
		st.launched(a, first)
	}
	if s.in.takes(a) {
		d := s.devices[a.Device]
		if d == nil {
			d = newDeviceWindow(a.Device, proc, &s.split)
			if d.limits = s.in.LimitsOf(a.Device); s.ordinals > 1 {
				d.beside = s.besideOf(d)
			}
			d.others = func(from, to int64) uint32 { return s.others(d.taking, from, to) }
			s.devices[a.Device] = d
		}
		d.add(s, proc, a, first)
	}
	s.addToSteps(proc, a)
	if proc.path != nil {
		s.path(proc, a, r.Track)
	}
}

// addToSteps adds the activity to the steps during which it ran, whatever launched it, and forgets
// steps that ended before it: activities arrive by start.
func (s *Sweep) addToSteps(p *Process, a *Activity) {
	p.passed(a.Start - event.Skew)
	p.during(a.Start, a.End, func(st *Step) { st.device(a) })
}

// memory takes an event of the allocator.
func (s *Sweep) memory(r *event.Record) {
	var d event.Detail
	d.Decode(r.Detail)
	m := boundedmap.Of(s.memories, d.MemoryDevice)
	th := &s.threads[r.Track]
	in := uint32(0)
	// Ranges are nested: ended ones are at the top.
	if i := sort.Search(len(th.stack), func(i int) bool { return th.stack[i].end <= r.Key }); i > 0 {
		in = th.stack[i-1].named
	}
	m.add(&d, in)
	if d.HasMemoryUsage {
		m.levels.Add(r.Key, d.MemoryUsage)
	}
	if st := th.process.stepAt(r.Key); st != nil {
		st.Allocated.add(&d, in)
	}
}

// Forgotten returns how many activities started after their launch had been evicted.
func (s *Sweep) Forgotten() int64 { return s.launches.forgotten }

// DeepSteps returns how many steps were within 64 others, and have no totals of the device.
func (s *Sweep) DeepSteps() (n int64) {
	for _, p := range s.Processes {
		n += p.deep
	}
	return n
}
