// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// undecided are spans whose device is not known yet. When the Collector or their process starts,
// they arrive before the first samples, the exporter's labels of pods, the kubelet's list or the
// driver's list of processes. They wait for `max_wait`, as do spans without samples, and take part
// in the energy attribution once their device is found. If the device of a process has been unknown
// for `max_wait`, its spans pass immediately.
type undecided struct {
	batches  []*batch
	spans    map[attribution.Key]spanTimes // of the batches
	searched time.Time
	since    boundedmap.Recent[uint64, int64] // by process: when the first such spans arrived
}

// searchEvery is how often the devices of undecided spans are searched at most.
const searchEvery = 100 * time.Millisecond

func (u *undecided) remove(b *batch) {
	u.batches = slices.DeleteFunc(u.batches, func(x *batch) bool { return x == b && u.forget(b) })
}

// forget forgets the spans of a batch, and returns true.
func (u *undecided) forget(b *batch) bool {
	for i := range b.spans {
		if g := &b.spans[i]; u.spans[g.Key] == g.times() {
			delete(u.spans, g.Key)
		}
	}
	return true
}

// spanTimes are the start and the end of a span. Ranks that seed the generator of IDs alike send
// other spans with equal IDs.
type spanTimes [2]int64

func (g *gpuSpan) times() spanTimes { return spanTimes{g.start, g.end} }

// await determines which spans of a batch are waited for, and returns how many undecided ones wait
// already.
func (e *engine) await(b *batch, now time.Time) (known int) {
	b.waiting, b.undecided, b.unplaced = 0, 0, [outcomes]int64{}
	for i := range b.spans {
		if g := &b.spans[i]; g.fault == sound {
			x := &b.targets.list[g.target]
			x.latest = max(x.latest, g.end)
		}
	}
	for i := range b.targets.list {
		x := &b.targets.list[i]
		x.undecided = !b.urgent && x.outcome != found && x.latest > 0 && e.mayBeFound(x, now.UnixNano())
		if x.undecided {
			b.undecided = now.UnixNano()
		}
	}
	for i := range b.spans {
		if g := &b.spans[i]; g.fault == sound {
			if x := &b.targets.list[g.target]; x.outcome == found || x.undecided {
				b.waiting++
			} else {
				b.unplaced[x.outcome]++
			}
			if e.waits(b, g) {
				known++
			}
		}
	}
	return known
}

// waits reports whether an undecided span waits already.
func (e *engine) waits(b *batch, g *gpuSpan) bool {
	return b.targets.list[g.target].undecided && e.undecided.spans[g.Key] == g.times()
}

// otherWaits reports whether another span with the ID of an undecided one waits already.
func (e *engine) otherWaits(b *batch, g *gpuSpan) bool {
	waiting, ok := e.undecided.spans[g.Key]
	return ok && g.fault == sound && b.targets.list[g.target].undecided && waiting != g.times()
}

// mayBeFound reports whether the device of a target that is not found may become known in time.
func (e *engine) mayBeFound(x *target, now int64) bool {
	wait := int64(e.cfg.MaxWait)
	if x.unreadable || x.outcome == noIdentity && e.uses == nil || x.latest+wait <= now {
		return false
	}
	since := &e.undecided.since
	first := since.Find(x.res.process)
	if first == nil || *first > now { // the clock was set back
		since.Put(x.res.process, now)
		return true
	}
	return now-*first < wait
}

// postpone remembers a batch with undecided spans. It returns true if the same batch waits already:
// a queue in a storage has a copy, which replaces the batch when it leaves the queue.
func (e *engine) postpone(b *batch, leaving bool) (again bool) {
	u := &e.undecided
	same := -1
	if leaving || b.stored {
		same = slices.IndexFunc(u.batches, func(x *batch) bool {
			return len(x.spans) == len(b.spans) && len(b.spans) > 0 && x.spans[0].Key == b.spans[0].Key &&
				x.spans[0].times() == b.spans[0].times()
		})
	}
	switch {
	case same >= 0 && leaving:
		was := u.batches[same]
		u.forget(was)
		b.waiting, b.latest, b.seen = was.waiting, was.latest, was.seen
		u.batches = slices.Delete(u.batches, same, same+1)
		for i := range b.unplaced { // the others were counted when they were accepted
			b.unplaced[i] = max(0, b.unplaced[i]-was.unplaced[i])
		}
		b.tally.passes = true
	case leaving && b.waiting > 0 && !b.urgent:
		b.unplaced = [outcomes]int64{}
	}
	if b.undecided > 0 {
		b.undecided = min(b.latest, b.seen) + int64(e.cfg.MaxWait)
		if same < 0 || leaving {
			u.batches = append(u.batches, b)
			if u.spans == nil {
				u.spans = map[attribution.Key]spanTimes{}
			}
			for i := range b.spans {
				if g := &b.spans[i]; b.targets.list[g.target].undecided {
					u.spans[g.Key] = g.times()
				}
			}
		}
	}
	return same >= 0
}

// decide searches the devices of undecided spans again.
func (e *engine) decide(view devicesamples.View, now time.Time) {
	u := &e.undecided
	if len(u.batches) == 0 || now.Sub(u.searched).Abs() < searchEvery {
		return
	}
	u.searched = now
	u.batches = slices.DeleteFunc(u.batches, func(b *batch) bool {
		if b.undecided <= now.UnixNano() {
			return !b.stored && u.forget(b)
		}
		e.find(view, &b.targets)
		e.place(b, now)
		return b.undecided == 0 && !b.stored && u.forget(b)
	})
}

// place adds the spans whose devices have been found.
func (e *engine) place(b *batch, now time.Time) {
	arrived, open := true, false
	for i := range b.targets.list {
		x := &b.targets.list[i]
		arrived = arrived && (x.arrived || x.outcome != found || x.latest == 0)
		open = open || x.undecided
	}
	if !arrived {
		e.add(b, now, false)
	}
	if !open {
		b.undecided = 0
		b.arrived()
	}
}

// conclude gives up the search for the devices of a batch that is written.
func (e *engine) conclude(b *batch, now time.Time) {
	if b.undecided == 0 {
		return
	}
	e.place(b, now)
	e.undecided.remove(b)
	b.undecided = 0
	for i := range b.spans {
		if g := &b.spans[i]; g.fault == sound {
			if x := &b.targets.list[g.target]; x.undecided {
				b.unplaced[x.outcome]++
				b.tally.passes = true
			}
		}
	}
	for i := range b.targets.list {
		b.targets.list[i].undecided = false
	}
}
