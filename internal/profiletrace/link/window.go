// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"maps"
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// deviceWindow is one device over the whole profile.
type deviceWindow struct {
	ordinal    int64
	process    *Process
	verdicts   *facts.Device
	taking     *Process // the process whose steps are charged with what the findings claim
	first, end int64
	computed   Computed
	streams    map[int64]*stream
	queueMax   int
	before     uint32 // thread of the launch before
	hasBefore  bool
	limits     occupancy.Device
	last       timeline.Unit // of the units that launched something, the one that ends last
	worked     intervals.Set // recently, if there are other devices; see beside
	beside     func(from, to int64) uint32
	others     func(from, to int64) uint32
}

func newDeviceWindow(ordinal int64, p *Process, s *timeline.Splitter) *deviceWindow {
	d := &deviceWindow{ordinal: ordinal, process: p, verdicts: facts.NewDevice(s), streams: map[int64]*stream{}}
	d.verdicts.Took = func(c timeline.Claim) {
		d.taking.during(c.From, c.To, func(st *Step) { st.Account.Take(c, st.Start, st.End) })
	}
	return d
}

// add adds an activity of the process.
func (d *deviceWindow) add(s *Sweep, proc *Process, a *Activity, firstOfWork bool) {
	if len(d.streams) == 0 {
		d.first, d.end = a.Start, a.End
	}
	d.end = max(d.end, a.End)
	d.queue(a)
	d.judge(s, proc, a, firstOfWork)
	if a.Kind == event.KindKernel && !a.Communicates {
		d.computed.add(a, firstOfWork)
	}
}

// judge passes the activity to the analysis, with its launch.
func (d *deviceWindow) judge(s *Sweep, proc *Process, a *Activity, firstOfWork bool) {
	d.taking = proc
	v := &s.one
	*v = timeline.Activity{
		Start: a.Start, End: a.End, Name: a.Name, Operator: a.Launch.Op, In: a.Launch.named,
		Around: a.Launch.around, Opaque: a.Launch.opaque || a.Detail.WholeGraph, Stream: a.Stream, Inner: a.Launch.Op,
		Graph: a.Launch.graph || a.Detail.WholeGraph, InnerStart: a.Launch.opAt, Phase: a.Launch.phase,
		Module: a.Launch.module, Backward: a.Launch.backward,
	}
	if a.Launch.trial != 0 {
		v.Inner, v.InnerStart, v.Tried = a.Launch.trial, a.Launch.tried, true
	}
	switch {
	case a.Kind != event.KindKernel:
		v.Class, v.Bytes, v.Direction, v.Memory = timeline.Copying, a.Detail.Bytes, a.Detail.Direction, a.Detail.HostMemory
	case a.Communicates:
		v.Class, v.Group, v.Collective, v.Launched = timeline.Communicating, a.Detail.GroupSize, a.Detail.Collective,
			launchedAs(&a.Detail)
		if st := a.Launch.Step; st != nil {
			v.Occurrence = st.occurrence(a.Name)
		}
		v.GroupID, v.GroupName, v.ElementType = a.Detail.GroupID, a.Detail.Group, a.Detail.ElementType
		v.Bytes = vocabulary.CollectiveSize(a.Detail.Collective, a.Detail.InElements, a.Detail.OutElements,
			vocabulary.ElementSize(a.Detail.ElementType))
		if in, out := a.Detail.InElements, a.Detail.OutElements; a.Detail.Collective == "all_to_all" && min(in, out) > 0 {
			v.Sent, v.Received = in, out
		}
	default:
		means := s.means(a)
		v.Class, v.Moves, v.Role, v.Maps = timeline.Computing, means.move, means.role, means.maps
		if v.Tried { // a fill clears the caches
			v.Moves = timeline.MovesNothing
		}
		if v.Caller = a.Launch.caller; v.Moves != timeline.MovesNothing {
			v.Mover = a.Launch.mover
			if v.Mover == 0 && vocabulary.Movers[s.in.Names.Name(a.Launch.Op)] != timeline.MovesNothing {
				v.Mover = a.Launch.Op
			}
		}
		switch w := a.Launch.Work; {
		case w == nil:
		case firstOfWork:
			v.Work = &w.Work
			fallthrough
		default:
			v.Operator, v.Shape = w.op, w.shape
		}
		v.Launched = launchedAs(&a.Detail)
	}
	if a.Kind == event.KindKernel {
		v.Config = d.configuration(&a.Detail)
		if !a.Communicates {
			v.Filled = v.Config.BlocksPerSM
			v.Tail = lastWave(&a.Detail, &d.limits, v.Filled)
		}
	}
	if st := a.Launch.Step; st != nil {
		v.Step = int32(st.Ordinal&math.MaxInt32) + 1
	}
	l := timeline.Launch{Known: a.HasLaunch, Start: a.Launch.Start, End: a.Launch.End, Previous: a.Launch.previous}
	l.Recorded, l.Waits = a.Launch.recorded, a.Launch.waits
	begin := s.first
	if l.Unit = a.Launch.unit; l.Unit.End >= d.last.End {
		d.last = l.Unit
	}
	if len(s.devices) > maxLeads {
		begin = a.Start
	}
	if d.verdicts.Gap(a.Start) {
		l.Threads, l.Beside = s.around(proc, a, d.before, d.hasBefore), d.beside
		l.Others = d.others
		l.Lost = proc.lostIn(d.ordinal, d.verdicts.Needs(begin), a.Start)
	}
	d.verdicts.Add(v, &l, begin)
	if s.ordinals > 1 {
		d.worked.Add(intervals.Interval{Start: a.Start, End: a.End}, 0)
		if len(d.worked) > maxWorked {
			d.worked = slices.Delete(d.worked, 0, maxWorked/2)
		}
	}
	if a.HasLaunch {
		d.before, d.hasBefore = a.Launch.thread, true
	}
}

// maxWorked bounds the intervals that a device keeps for others: a gap is queried when it ends.
const maxWorked = 1 << 10

// besideOf returns a function that tells, for launched work that does not start, which other device
// worked for more than half of the time.
func (s *Sweep) besideOf(d *deviceWindow) func(from, to int64) uint32 {
	return func(from, to int64) (name uint32) {
		most := (to - from) / 2
		for _, ordinal := range slices.Sorted(maps.Keys(s.devices)) {
			other := s.devices[ordinal]
			if n := other.worked.Within(intervals.Interval{Start: from, End: to}); other != d && n > most {
				most, name = n, s.in.Names.ID(vocabulary.DeviceName(ordinal))
			}
		}
		return name
	}
}

// after records what the host did when the device had no more work, to the end of the unit of the
// last launches.
func (d *deviceWindow) after(s *Sweep) {
	if s.in.UsedExtent() == ExtentAll && len(s.devices) <= maxLeads {
		d.verdicts.After(d.last, s.around(d.taking, &Activity{}, d.before, d.hasBefore))
	}
}

// launchedAs identifies a launch configuration.
func launchedAs(d *event.Detail) (sum uint64) {
	for i := range d.Grid {
		sum = sum*31 + uint64(d.Grid[i]*4096+d.Block[i])
	}
	return sum
}

// maxLeads bounds the devices whose time before their first activity is analyzed, which may be the
// whole profile.
const maxLeads = 256

// stream is the queue of one stream.
type stream struct {
	starts     []int64 // from head on: of activities that had not started at the last launch
	head       int
	lastLaunch int64
}

// maxQueue bounds the starts that a stream keeps.
const maxQueue = 1 << 16

// queue tracks the length of the stream's queue: a launch adds one and a start removes one.
// Activities of a stream arrive in the order of their launches, so right after this launch it
// contains this one and the earlier ones that had not started. Launches of graphs count once for
// each activity, unlike in Holistic Trace Analysis, which leaves them out.
func (d *deviceWindow) queue(a *Activity) {
	s := boundedmap.Of(d.streams, a.Stream)
	if !a.HasLaunch {
		return
	}
	s.lastLaunch = max(s.lastLaunch, a.Launch.Start)
	for s.head < len(s.starts) && s.starts[s.head] <= s.lastLaunch {
		s.head++
	}
	if s.head > len(s.starts)/2 {
		s.starts, s.head = slices.Delete(s.starts, 0, s.head), 0
	}
	if len(s.starts) < maxQueue {
		s.starts = append(s.starts, a.Start)
	}
	d.queueMax = max(d.queueMax, len(s.starts)-s.head)
}

// Allocated follows the framework's allocator.
type Allocated struct {
	Any      bool
	HasUsage bool
	Delta    int64
	usage    int64 // last
	first    int64 // before the first event
	Highest  int64
	at       uint32       // name of the host range in which it was highest
	levels   facts.Levels // of a device; steps have none
}

func (m *Allocated) add(d *event.Detail, in uint32) {
	m.Delta += d.Bytes
	if d.HasMemoryUsage {
		if !m.HasUsage {
			m.first = d.MemoryUsage - d.Bytes
			m.Highest = m.first
		}
		if m.HasUsage, m.usage = true, d.MemoryUsage; m.usage > m.Highest {
			m.Highest, m.at = m.usage, in
		}
	}
	m.Any = true
}
