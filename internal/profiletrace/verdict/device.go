// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/intervals"
)

// Device takes the activities of one device.
type Device struct {
	// Took is called for every idle, exposed communicating or exposed copying part of the window, and for what was before
	// its first activity, in order; nil: nobody asks.
	Took func(Claim)

	any        bool
	first, end int64 // of activities
	cursor     int64 // up to which time has been given away
	active     []active
	split      *Splitter
	account

	busy [classCount]intervals.Ordered
	ops  map[opKey]*operator
	kern map[uint32]*kernel
	coll map[collectiveKey]*collective
	copy map[copyKey]*copies
	head Account // before the first activity: no part of the window
	tail Account // after the last one
	lead lead
	// of both, what lies in the unit of the first or last launch, and what comes before it
	edges, before [causeCount]int64

	pace       pace
	trials     trials
	chains     map[int64]link // by stream: the elementwise kernel that ended last
	moved      map[moveKey]*moved
	scores     map[int64]scores // by stream: of attention in parts
	kernels    int64
	kernelTime time.Duration
	attentions int64
	short      int64
	opaque     time.Duration // of Alone
	launched   int64         // start of the last launch
	held       held          // launches that began together after a gap
	ofGraphs   int64         // idle time before kernels of graphs, while the host dispatched or was through
	warm       warmUp
	fed        bool  // what ended last was a copy from the host
	fedWaits   int64 // idle time after waits for such copies
	migrates   bool  // there were migrations towards the device
}

// active is an activity that has not ended.
type active struct {
	end      int64
	class    Class
	op       *operator
	kernel   *kernel
	moved    *moved // nil: it computes
	coll     *collective
	copy     *copies
	in       uint32
	around   uint32
	name     uint32
	exposed  time.Duration
	duration time.Duration
	opaque   bool
	pages    bool    // a migration towards the device
	filled   float64 // 1 where it is not known
}

// maxActive bounds the activities that run at one time; of more, time goes to the last of their class.
const maxActive = 512

// NewDevice makes a device without activities. Devices of one sweep may share a splitter.
func NewDevice(s *Splitter) *Device {
	return &Device{
		split: s,
		ops:   map[opKey]*operator{}, kern: map[uint32]*kernel{}, coll: map[collectiveKey]*collective{},
		copy: map[copyKey]*copies{}, chains: map[int64]link{}, trials: trials{}, moved: map[moveKey]*moved{},
		scores: map[int64]scores{},
	}
}

// Needs is from when on what the host did may still be asked for: until the first activity, from the beginning.
func (d *Device) Needs(beginning int64) int64 {
	if !d.any {
		return beginning
	}
	return d.end
}

// Add takes an activity; they come by start. begin is when the profile began.
func (d *Device) Add(a *Activity, l *Launch, begin int64) {
	if !d.any {
		d.any, d.first, d.end, d.cursor = true, a.Start, a.Start, a.Start
		if begin < a.Start {
			for _, s := range d.split.split(begin, a.Start, l) {
				d.took(s.Claim)
				d.leads(s, &l.Unit)
			}
		}
	}
	anew := l.Known && l.Start != d.launched
	if anew {
		d.lead.launches--
	}
	d.launched, l.lead = l.Start, &d.lead
	d.advance(a.Start)
	if a.Start > d.cursor {
		for _, s := range d.split.split(d.cursor, a.Start, l) {
			d.account.idle(s)
			if a.Graph && (s.Cause == CauseDispatch || s.Cause == CauseLatency) {
				d.ofGraphs += s.To - s.From
			}
			d.trials.idle(a, s)
			d.took(s.Claim)
			d.held.idle(a, s)
			if d.fed && s.Cause == CauseSynchronization {
				d.fedWaits += s.To - s.From
			}
		}
		d.cursor = a.Start
	}
	d.held.launched(l)
	if anew && a.Class != Copying && d.warm.launched(a.Graph) {
		d.warm.account, d.account = d.account, account{}
	}
	d.begin(a)
	d.end = max(d.end, a.End)
}

// leads takes a share of the time before the first activity, which belongs to the unit.
func (d *Device) leads(s share, u *Unit) {
	starts := s.Cause == CauseCall || s.Cause == CauseAllocation || s.Cause == CauseLoader // the process starts up
	if starts {
		d.head.idle(s.outside())
		d.before[s.Cause] += max(0, min(s.To, u.Start)-s.From)
	}
	if s.From = max(s.From, u.Start); s.From >= s.To {
		return
	}
	d.edges[s.Cause] += s.To - s.From
	if !starts {
		d.head.idle(s.inside(u))
	}
}

// After says that no activity comes any more, and that the threads of the host went on with the unit.
func (d *Device) After(u Unit, threads []*Log) {
	if !d.any || u.End <= d.end {
		return
	}
	for _, s := range d.split.split(d.end, u.End, &Launch{Known: true, Start: u.End, End: u.End, Threads: threads}) {
		d.edges[s.Cause] += s.To - s.From
		d.tail.idle(s.outside().inside(&u))
	}
}

// inside is the share with no name where that is the unit's, which says nothing more.
func (s share) inside(u *Unit) share {
	if s.Name == u.Name {
		s.Name, s.In = 0, 0
	}
	return s
}

// outside is the share of what is no part of the window: an allocation there is one more slow call.
func (s share) outside() share {
	if s.Cause == CauseAllocation {
		s.Cause = CauseCall
	}
	return s
}

func (d *Device) took(c Claim) {
	if d.Took != nil {
		d.Took(c)
	}
}

func (d *Device) begin(a *Activity) {
	t := active{
		end: a.End, class: a.Class, in: a.In, around: a.Around, name: a.Name, opaque: a.Opaque,
		duration: a.length(), filled: 1,
	}
	if a.Filled > 0 {
		t.filled = min(1, a.Filled)
	}
	d.busy[a.Class].Add(a.Start, a.End)
	if a.End >= d.end {
		d.fed = a.Class == Copying && a.Direction == hostToDevice
	}
	switch a.Class {
	case Computing, Communicating:
		d.kernels++
		d.kernelTime += t.duration
		t.kernel = d.kernelOf(a, t.duration)
		if a.Class == Computing {
			t.op = d.operatorOf(a, t.duration)
			if a.Moves != MovesNothing {
				t.moved = d.moves(a)
				t.op.movedTime += t.duration
			}
			if t.duration < shortKernel {
				d.short++
			}
			d.pace.add(paced{
				start: a.Start, length: int64(t.duration), step: a.Step, shaped: a.Shape != 0,
				kind: a.Launched*0x9e3779b97f4a7c15 ^ uint64(a.Name)<<32 ^ uint64(a.Shape) ^ uint64(a.Phase)<<16,
			})
			d.chain(a, t.op)
			d.attends(a, t.op)
			d.trials.launched(a)
		} else {
			t.coll = d.collectiveOf(a)
		}
	case Copying:
		t.copy = d.copyOf(a, t.duration)
		t.pages = a.Memory == MemoryManaged && a.Direction != "device_to_host"
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

// advance gives the time up to t to what ran: of several of the class that hides the others, to the one that began
// first.
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
		// A higher class that ends earlier is retired below; a lower one cannot come before t.
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
	d.parts[a.class] += int64(n)
	switch a.class {
	case Computing:
		a.op.Alone += n
		a.kernel.Alone += n
		if a.moved != nil {
			a.moved.alone += n
			a.op.moved += n
		}
		if a.filled < 1 {
			d.half(a, n)
		}
		if d.migrates {
			d.stall(n)
		}
		if a.opaque {
			d.opaque += n
		}
		return
	case Communicating:
		a.exposed += n
		a.kernel.Alone += n
	case Copying:
		a.copy.Exposed += n
		a.copy.in.place(placeKey{name: a.in, in: a.around}).time += int64(n)
	}
	c := Claim{From: from, To: to, Class: a.class, Name: a.name}
	if a.class == Copying {
		c.Name, c.In = a.in, a.around
	}
	d.took(c)
}

// half takes time in which the kernels that run leave multiprocessors without a block.
func (d *Device) half(a *active, n time.Duration) {
	filled := 0.0
	for i := range d.active {
		if d.active[i].class == Computing {
			if filled += d.active[i].filled; filled >= 1 {
				return
			}
		}
	}
	a.op.narrow += n
	a.op.empty += (1 - filled) * float64(n)
}

// stall takes time in which kernels run while pages that they touch move.
func (d *Device) stall(n time.Duration) {
	if i := slices.IndexFunc(d.active, func(a active) bool { return a.pages }); i >= 0 {
		d.active[i].copy.stalled += n
	}
}

// retire takes what an activity was in all.
func (d *Device) retire(a *active) {
	if c := a.coll; c != nil {
		c.count++
		c.time += a.duration
		c.exposed += a.exposed
		if a.duration > 0 {
			c.shares += float64(a.exposed) / float64(a.duration)
		}
		if c.count == 1 || a.duration < c.least {
			c.least = a.duration
		}
	}
}

// finish gives away what is left.
func (d *Device) finish() {
	d.advance(d.end)
	for i := range d.active {
		d.retire(&d.active[i])
	}
	d.active = nil
	d.warm.end(d)
}

// hostToDevice is the direction of copies from the host.
const hostToDevice = "host_to_device"

// fedBy says of how many copies from the host of which size in the mean.
func (d *Device) fedBy() string {
	var count, bytes int64
	for k, c := range d.copy {
		if k.direction == hostToDevice {
			count, bytes = count+c.Count, bytes+c.Bytes
		}
	}
	return fmt.Sprintf("%s of %s in the mean", finding.Count(count, "copy", "copies"), finding.Size(bytes/max(1, count)))
}

// shortKernel is the length under which a kernel is shorter than what launching it costs the host.
const shortKernel = 10 * time.Microsecond

// Gap reports whether an activity that starts then ends a gap, so that its launch is asked for.
func (d *Device) Gap(start int64) bool { return !d.any || start > d.end }
