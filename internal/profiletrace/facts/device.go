// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// Device collects the facts of one device from its activities, in the order of their starts.
type Device struct {
	// Took is called for every idle, exposed communicating or exposed copying part of the window,
	// and for the time before its first activity, in order; nil: not needed.
	Took func(timeline.Claim)

	Totals

	any    bool
	end    int64 // of activities
	cursor int64 // time up to which everything is attributed
	active []active
	split  *timeline.Splitter

	busy   [timeline.ClassCount]intervals.Ordered
	ops    map[opKey]*operatorSum
	kern   map[uint32]*kernel
	coll   map[collectiveKey]*collective
	copies map[copyKey]*Copy
	sent   map[transferKey]*Transfer
	lead   timeline.Lead
	// idle time at head and tail: within the unit of the first or last launch, and before it
	edges, before [timeline.Causes]int64

	modules    map[uint32]*moduleSum // by node
	lastNode   uint32
	lastModule *moduleSum // of lastNode

	pace     pace
	chains   map[int64]link   // by stream: the elementwise kernel that ended last
	backlog  backlog          // of the stream of collectives
	scores   map[int64]scores // by stream: of attention in parts
	launched int64            // start of the last launch
	fed      bool             // what ended last was a copy from the host
	migrates bool             // there were migrations towards the device
}

// Totals are the facts of one device over its window that are not in its Report. Rules read them
// and change nothing.
type Totals struct {
	Spending
	First      int64        // start of the first activity
	Head       StepSpending // before the first activity: no part of the window
	Tail       StepSpending // after the last one
	Trials     trials
	Moved      map[MoveKey]*Moved
	Slowdown   *Slowdown // nil: kernels did not become slower
	Warm       warmUp
	Held       Batches // launches that began together after a gap
	Kernels    int64
	Short      int64 // kernels that are shorter than launching them
	KernelTime time.Duration
	Attentions int64
	Opaque     time.Duration // of Alone
	OfGraphs   int64         // idle time before kernels of graphs, while the host dispatched or was done
	Experts    Experts       // exchanges of tokens
	FedWaits   int64         // idle time after waits for copies from the host
}

// active is an activity that has not ended.
type active struct {
	end      int64
	class    timeline.Class
	op       *operatorSum
	kernel   *kernel
	moved    *Moved // nil: it computes
	coll     *collective
	copy     *Copy
	module   *moduleSum
	backward bool
	in       uint32
	around   uint32
	name     uint32
	exposed  time.Duration
	duration time.Duration
	opaque   bool
	stream   int64 // of a collective
	queued   int64 // of a collective: computing beside which it could have run earlier
	sent     int64 // elements, of an all-to-all
	received int64
	pages    bool    // a migration towards the device
	filled   float64 // 1 where it is not known
	tail     float64 // of the kernel's time: empty in its last wave of blocks
}

// maxActive bounds concurrent activities; beyond it, time counts for the last of their class.
const maxActive = 512

// NewDevice returns a device without activities. Devices of one sweep may share a splitter.
func NewDevice(s *timeline.Splitter) *Device {
	return &Device{
		Totals: Totals{Trials: trials{}, Moved: map[MoveKey]*Moved{}},
		split:  s,
		ops:    map[opKey]*operatorSum{}, kern: map[uint32]*kernel{}, coll: map[collectiveKey]*collective{},
		copies: map[copyKey]*Copy{},
		sent:   map[transferKey]*Transfer{},
		chains: map[int64]link{}, scores: map[int64]scores{}, modules: map[uint32]*moduleSum{},
	}
}

// Needs returns the time from which the host's activity may still be queried: until the first
// activity, from the beginning.
func (d *Device) Needs(beginning int64) int64 {
	if !d.any {
		return beginning
	}
	return d.end
}

// Add adds an activity; activities arrive by start. begin is when the profile started.
func (d *Device) Add(a *timeline.Activity, l *timeline.Launch, begin int64) {
	if !d.any {
		d.any, d.First, d.end, d.cursor = true, a.Start, a.Start, a.Start
		if begin < a.Start {
			for _, s := range d.split.Split(begin, a.Start, l) {
				d.took(s.Claim)
				d.leads(s, &l.Unit)
			}
		}
	}
	anew := l.Known && l.Start != d.launched
	if anew {
		d.lead.Launches--
		d.lead.Record(l)
	}
	d.launched, l.Lead = l.Start, &d.lead
	d.advance(a.Start)
	if a.Start > d.cursor {
		for _, s := range d.split.Split(d.cursor, a.Start, l) {
			d.Spending.Idle(s)
			if a.Graph && (s.Cause == timeline.CauseDispatch || s.Cause == timeline.CauseLatency) {
				d.OfGraphs += s.To - s.From
			}
			d.Trials.idle(a, s)
			if s.Cause != timeline.CauseNotRecorded {
				d.moduleOf(a.Module).idle += time.Duration(s.To - s.From)
			}
			d.took(s.Claim)
			d.Held.idle(a, s)
			if d.fed && s.Cause == timeline.CauseSynchronization {
				d.FedWaits += s.To - s.From
			}
		}
		d.cursor = a.Start
	}
	d.Held.launched(l)
	if anew && a.Class != timeline.Copying && d.Warm.launched(a.Graph) {
		d.Warm.Spending, d.Spending = d.Spending, Spending{}
	}
	d.begin(a, l)
	d.end = max(d.end, a.End)
}

// leads takes a share of the time before the first activity, which belongs to the unit.
func (d *Device) leads(s timeline.Share, u *timeline.Unit) {
	// the process starts up
	starts := s.Cause == timeline.CauseCall || s.Cause == timeline.CauseAllocation || s.Cause == timeline.CauseLoader
	if starts {
		d.Head.Idle(outside(s))
		d.before[s.Cause] += max(0, min(s.To, u.Start)-s.From)
	}
	if s.From = max(s.From, u.Start); s.From >= s.To {
		return
	}
	d.edges[s.Cause] += s.To - s.From
	if !starts {
		d.Head.Idle(inside(s, u))
	}
}

// After records that no more activities follow, and that the threads of the host continued with the
// unit.
func (d *Device) After(u timeline.Unit, threads []*timeline.Log) {
	if !d.any || u.End <= d.end {
		return
	}
	last := timeline.Launch{Known: true, Start: u.End, End: u.End, Threads: threads}
	for _, s := range d.split.Split(d.end, u.End, &last) {
		d.edges[s.Cause] += s.To - s.From
		d.Tail.Idle(inside(outside(s), &u))
	}
}

// inside returns the share without its name if that is the unit's, which adds nothing.
func inside(s timeline.Share, u *timeline.Unit) timeline.Share {
	if s.Name == u.Name {
		s.Name, s.In = 0, 0
	}
	return s
}

// outside returns the share of time outside the window: an allocation there is one more slow call.
func outside(s timeline.Share) timeline.Share {
	if s.Cause == timeline.CauseAllocation {
		s.Cause = timeline.CauseCall
	}
	return s
}

func (d *Device) took(c timeline.Claim) {
	if d.Took != nil {
		d.Took(c)
	}
}

func (d *Device) begin(a *timeline.Activity, l *timeline.Launch) {
	t := active{
		end: a.End, class: a.Class, in: a.In, around: a.Around, name: a.Name, opaque: a.Opaque,
		duration: a.Length(), filled: 1, tail: a.Tail, module: d.moduleOf(a.Module), backward: a.Backward,
	}
	if t.module.kernels++; a.Work != nil {
		t.module.flops += a.Work.FLOPs
	}
	if a.Filled > 0 && t.duration >= ShortKernel { // more blocks make a shorter one no faster
		t.filled = min(1, a.Filled)
	}
	d.busy[a.Class].Add(a.Start, a.End)
	if a.End >= d.end {
		d.fed = a.Class == timeline.Copying && a.Direction == timeline.HostToDevice
	}
	switch a.Class {
	case timeline.Computing, timeline.Communicating:
		d.Kernels++
		d.KernelTime += t.duration
		t.kernel = d.kernelOf(a, t.duration)
		if a.Class == timeline.Computing {
			t.op = d.operatorOf(a, t.duration)
			d.backlog.computes(a.End, l)
			if a.Moves != timeline.MovesNothing {
				t.moved = d.moves(a)
				t.op.MovedTime += t.duration
			}
			if t.duration < ShortKernel {
				d.Short++
			}
			kind := a.Launched*0x9e3779b97f4a7c15 ^ uint64(a.Name)<<32 ^ uint64(a.Shape) ^ uint64(a.Phase)<<16
			d.pace.add(paced{start: a.Start, length: int64(t.duration), step: a.Step, shaped: a.Shape != 0, kind: kind})
			d.chain(a, t.op)
			d.attends(a, t.op)
			d.Trials.launched(a)
		} else {
			t.coll, t.sent, t.received = d.collectiveOf(a), a.Sent, a.Received
			t.stream, t.queued = a.Stream, d.backlog.beside(a.Start, l)
			d.transferred(a)
		}
	case timeline.Copying:
		t.copy = d.copyOf(a, t.duration)
		t.pages = a.Memory == timeline.MemoryManaged && a.Direction != "device_to_host"
		d.migrates = d.migrates || t.pages
	}
	if a.End <= a.Start {
		d.retire(&t)
		return
	}
	if len(d.active) >= maxActive {
		for i := len(d.active) - 1; i >= 0; i-- {
			if d.active[i].class == t.class {
				d.active[i].end = max(d.active[i].end, t.end)
				d.retire(&t)
				return
			}
		}
	}
	d.active = append(d.active, t)
}

// advance attributes the time up to t to what ran: of several activities of the class that hides
// the others, to the one that started first.
func (d *Device) advance(t int64) {
	for len(d.active) > 0 && d.cursor < t {
		best, soonest := 0, d.active[0].end
		for i := 1; i < len(d.active); i++ {
			if d.active[i].class < d.active[best].class {
				best = i
			}
			soonest = min(soonest, d.active[i].end)
		}
		to := min(d.active[best].end, t)
		if d.active[best].class == timeline.Computing {
			to = min(to, soonest) // what runs beside a kernel decides what its time counts for
		}
		// A higher class that ends earlier is retired below; no activity of a lower class starts
		// before t.
		d.give(&d.active[best], d.cursor, to)
		if d.cursor = to; soonest > to {
			continue // nothing ended
		}
		d.active = slices.DeleteFunc(d.active, func(a active) bool {
			if a.end > to {
				return false
			}
			d.retire(&a)
			return true
		})
	}
}

func (d *Device) give(a *active, from, to int64) {
	n := time.Duration(to - from)
	if n <= 0 {
		return
	}
	d.Parts[a.class] += int64(n)
	if a.module.time += n; a.backward {
		a.module.backward += n
	}
	switch a.class {
	case timeline.Computing:
		a.op.Alone += n
		a.kernel.Alone += n
		if a.moved != nil {
			a.moved.Alone += n
			a.op.Moved += n
		}
		if a.filled < 1 {
			d.half(a, n)
		}
		if a.tail > 0 && a.duration >= ShortKernel && d.computing() == 1 {
			a.op.Tailed += n
			a.op.Tail += a.tail * float64(n)
		}
		if d.migrates {
			d.stall(n)
		}
		if a.opaque {
			d.Opaque += n
		}
		return
	case timeline.Communicating:
		a.exposed += n
		a.kernel.Alone += n
	case timeline.Copying:
		a.copy.Exposed += n
		a.copy.In.Location(locationKey{Name: a.in, In: a.around}).Time += int64(n)
	}
	c := timeline.Claim{From: from, To: to, Class: a.class, Name: a.name}
	if a.class == timeline.Copying {
		c.Name, c.In = a.in, a.around
	}
	d.took(c)
}

// computing returns how many kernels compute now. Others may fill what one leaves empty.
func (d *Device) computing() (n int) {
	for i := range d.active {
		if d.active[i].class == timeline.Computing {
			n++
		}
	}
	return n
}

// half adds time in which the running kernels leave multiprocessors without a block.
func (d *Device) half(a *active, n time.Duration) {
	filled := 0.0
	for i := range d.active {
		if d.active[i].class == timeline.Computing {
			if filled += d.active[i].filled; filled >= 1 {
				return
			}
		}
	}
	a.op.Narrow += n
	a.op.Empty += (1 - filled) * float64(n)
}

// stall adds time in which kernels run while pages that they access are moved.
func (d *Device) stall(n time.Duration) {
	if i := slices.IndexFunc(d.active, func(a active) bool { return a.pages }); i >= 0 {
		d.active[i].copy.Stalled += n
	}
}

// retire adds a finished activity to the totals.
func (d *Device) retire(a *active) {
	if c := a.coll; c != nil {
		d.Experts.add(a)
		c.add(a)
		d.backlog.add(a)
	}
}

// finish accounts for what is left.
func (d *Device) finish() {
	d.advance(d.end)
	for i := range d.active {
		d.retire(&d.active[i])
	}
	d.active = nil
	d.Warm.end(d)
	for _, x := range d.Trials {
		x.end()
	}
}

// ShortKernel is the length under which a kernel is shorter than what launching it costs the host.
const ShortKernel = time.Duration(semconv.FindingFusionKernelDuration * float64(time.Second))

// Gap reports whether an activity that starts then ends a gap, so that its launch is looked up.
func (d *Device) Gap(start int64) bool { return !d.any || start > d.end }
