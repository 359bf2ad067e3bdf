// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"maps"
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// deviceWindow is one device over the whole profile.
type deviceWindow struct {
	ordinal    int64
	process    *process
	verdicts   *facts.Device
	taking     *process // the process whose steps are charged with what the findings claim
	first, end int64
	computed   computed
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

func newDeviceWindow(ordinal int64, p *process, s *timeline.Splitter) *deviceWindow {
	d := &deviceWindow{ordinal: ordinal, process: p, verdicts: facts.NewDevice(s), streams: map[int64]*stream{}}
	d.verdicts.Took = func(c timeline.Claim) {
		d.taking.during(c.From, c.To, func(st *step) { st.account.Take(c, st.start, st.end) })
	}
	return d
}

// add adds an activity of the process.
func (d *deviceWindow) add(s *sweep, proc *process, a *activity, firstOfWork bool) {
	if len(d.streams) == 0 {
		d.first, d.end = a.start, a.end
	}
	d.end = max(d.end, a.end)
	d.queue(a)
	d.judge(s, proc, a, firstOfWork)
	if a.kind == KindKernel && !a.comm {
		d.computed.add(a, firstOfWork)
	}
}

// judge passes the activity to the analysis, with its launch.
func (d *deviceWindow) judge(s *sweep, proc *process, a *activity, firstOfWork bool) {
	d.taking = proc
	v := &s.one
	*v = timeline.Activity{
		Start: a.start, End: a.end, Name: a.name, Operator: a.launch.op, In: a.launch.named,
		Around: a.launch.around, Opaque: a.launch.opaque || a.detail.WholeGraph, Stream: a.stream, Inner: a.launch.op,
		Graph: a.launch.graph || a.detail.WholeGraph, InnerStart: a.launch.opAt, Phase: a.launch.phase,
		Module: a.launch.module, Backward: a.launch.backward,
	}
	switch {
	case a.kind != KindKernel:
		v.Class, v.Bytes, v.Direction, v.Memory = timeline.Copying, a.detail.Bytes, a.detail.Direction, a.detail.HostMemory
	case a.comm:
		v.Class, v.Group, v.Collective, v.Launched = timeline.Communicating, a.detail.GroupSize, a.detail.Collective,
			launchedAs(&a.detail)
		if st := a.launch.step; st != nil {
			v.Occurrence = st.occurrence(a.name)
		}
		v.GroupID, v.GroupName, v.ElementType = a.detail.GroupID, a.detail.Group, a.detail.ElementType
		v.Bytes = collectiveSize(a.detail.Collective, a.detail.InElements, a.detail.OutElements,
			ElementSize(a.detail.ElementType))
		if in, out := a.detail.InElements, a.detail.OutElements; a.detail.Collective == "all_to_all" && min(in, out) > 0 {
			v.Sent, v.Received = in, out
		}
	default:
		means := s.means(a)
		v.Class, v.Moves, v.Role, v.Maps = timeline.Computing, means.move, means.role, means.maps
		if v.Caller = a.launch.caller; v.Moves != timeline.MovesNothing {
			if v.Mover = a.launch.mover; v.Mover == 0 && movers[s.p.Names.Name(a.launch.op)] != timeline.MovesNothing {
				v.Mover = a.launch.op
			}
		}
		switch w := a.launch.work; {
		case w == nil:
		case firstOfWork:
			v.Work = &w.Work
			fallthrough
		default:
			v.Operator, v.Shape = w.op, w.shape
		}
		v.Launched = launchedAs(&a.detail)
	}
	if a.kind == KindKernel {
		v.Config = d.configuration(&a.detail)
		if !a.comm {
			v.Filled = v.Config.BlocksPerSM
			v.Tail = lastWave(&a.detail, &d.limits, v.Filled)
		}
	}
	if st := a.launch.step; st != nil {
		v.Step = int32(st.ordinal&math.MaxInt32) + 1
	}
	l := timeline.Launch{Known: a.hasLaunch, Start: a.launch.start, End: a.launch.end, Previous: a.launch.previous}
	l.Recorded, l.Waits = a.launch.recorded, a.launch.waits
	begin := s.p.first
	if l.Unit = a.launch.unit; l.Unit.End >= d.last.End {
		d.last = l.Unit
	}
	if len(s.devices) > maxLeads {
		begin = a.start
	}
	if d.verdicts.Gap(a.start) {
		l.Threads, l.Beside = s.around(proc, a, d.before, d.hasBefore), d.beside
		l.Others = d.others
	}
	d.verdicts.Add(v, &l, begin)
	if s.ordinals > 1 {
		d.worked.Add(intervals.Interval{Start: a.start, End: a.end}, 0)
		if len(d.worked) > maxWorked {
			d.worked = slices.Delete(d.worked, 0, maxWorked/2)
		}
	}
	if a.hasLaunch {
		d.before, d.hasBefore = a.launch.thread, true
	}
}

// maxWorked bounds the intervals that a device keeps for others: a gap is queried when it ends.
const maxWorked = 1 << 10

// besideOf returns a function that tells, for launched work that does not start, which other device worked for more
// than half of the time.
func (s *sweep) besideOf(d *deviceWindow) func(from, to int64) uint32 {
	return func(from, to int64) (name uint32) {
		most := (to - from) / 2
		for _, ordinal := range slices.Sorted(maps.Keys(s.devices)) {
			other := s.devices[ordinal]
			if n := other.worked.Within(intervals.Interval{Start: from, End: to}); other != d && n > most {
				most, name = n, s.p.Names.ID("GPU "+itoa(ordinal))
			}
		}
		return name
	}
}

// after records what the host did when the device had no more work, to the end of the unit of the last launches.
func (d *deviceWindow) after(s *sweep) {
	if s.p.extent() == ExtentAll && len(s.devices) <= maxLeads {
		d.verdicts.After(d.last, s.around(d.taking, &activity{}, d.before, d.hasBefore))
	}
}

// launchedAs identifies a launch configuration.
func launchedAs(d *Detail) (sum uint64) {
	for i := range d.Grid {
		sum = sum*31 + uint64(d.Grid[i]*4096+d.Block[i])
	}
	return sum
}

// maxLeads bounds the devices whose time before their first activity is analyzed, which may be the whole profile.
const maxLeads = 256

// stream is the queue of one stream.
type stream struct {
	starts     []int64 // from head on: of activities that had not started at the last launch
	head       int
	lastLaunch int64
}

// maxQueue bounds the starts that a stream keeps.
const maxQueue = 1 << 16

// queue tracks the length of the stream's queue: a launch adds one and a start removes one. Activities of a stream
// arrive in the order of their launches, so right after this launch it contains this one and the earlier ones that had
// not started. Launches of graphs count once for each activity, unlike in Holistic Trace Analysis, which leaves them
// out.
func (d *deviceWindow) queue(a *activity) {
	s := boundedmap.Of(d.streams, a.stream)
	if !a.hasLaunch {
		return
	}
	s.lastLaunch = max(s.lastLaunch, a.launch.start)
	for s.head < len(s.starts) && s.starts[s.head] <= s.lastLaunch {
		s.head++
	}
	if s.head > len(s.starts)/2 {
		s.starts, s.head = slices.Delete(s.starts, 0, s.head), 0
	}
	if len(s.starts) < maxQueue {
		s.starts = append(s.starts, a.start)
	}
	d.queueMax = max(d.queueMax, len(s.starts)-s.head)
}

// allocated follows the framework's allocator.
type allocated struct {
	any      bool
	hasUsage bool
	delta    int64
	usage    int64 // last
	first    int64 // before the first event
	highest  int64
	at       uint32       // name of the host range in which it was highest
	levels   facts.Levels // of a device; steps have none
}

func (m *allocated) add(d *Detail, in uint32) {
	m.delta += d.Bytes
	if d.HasMemoryUsage {
		if !m.hasUsage {
			m.first = d.MemoryUsage - d.Bytes
			m.highest = m.first
		}
		if m.hasUsage, m.usage = true, d.MemoryUsage; m.usage > m.highest {
			m.highest, m.at = m.usage, in
		}
	}
	m.any = true
}
