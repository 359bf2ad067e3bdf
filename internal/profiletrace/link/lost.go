// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"slices"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// lost is when work of a process that has no record may have run on a device: from its launch until
// a call has waited for it, or later work of the same thread has started.
type lost struct {
	pending  []lostLaunch // by start
	known    intervals.Set
	launches int64 // of kernels and graphs
	count    int64 // of these, without a record
}

type lostLaunch struct {
	start  int64
	thread uint32
}

// maxLost bounds the launches and the intervals of a device that are kept.
const maxLost = 1 << 12

// anyDevice is the device of launches by threads of which no launch has a record yet.
const anyDevice = -1 << 62

// lostOf returns the launches of a thread's device.
func (s *Sweep) lostOf(th *thread) *lost {
	device := int64(anyDevice)
	if th.hasDevice {
		device = th.device
	}
	return boundedmap.Of(th.process.lost, device)
}

// launches counts a call that launches a kernel or a graph, and keeps it if no activity has its
// correlation. A call that launches nothing in the whole file is not what launches, as a runtime's
// around a driver's, and what is launched while a graph is captured does not run.
func (s *Sweep) countLaunch(r *event.Record, th *thread, fl *vocabulary.Meaning) {
	if !fl.Kernel && !fl.Opaque || th.process.capturing || !s.in.Launches(r.Name) {
		return
	}
	l := s.lostOf(th)
	l.launches++
	if s.in.Launched(r.Correlation) {
		return
	}
	if l.count++; len(l.pending) < maxLost {
		l.pending = append(l.pending, lostLaunch{r.Key, r.Track})
	}
}

// waited records that work launched before a wait of a process has ended, and reports whether some
// of it has no record.
func (p *Process) waited(r *event.Record) (any bool) {
	for _, l := range p.lost {
		n := 0
		for n < len(l.pending) && l.pending[n].start <= r.Key {
			n++
		}
		l.end(n, r.Key+r.Duration)
		any = any || n > 0
	}
	return any
}

// started records that work of a thread has started: what the thread launched before it has ended.
func (l *lost) started(a *Activity) {
	n := 0
	for n < len(l.pending) && l.pending[n].start < a.Launch.Start && l.pending[n].thread == a.Launch.thread {
		n++
	}
	l.end(n, a.Start)
}

// end ends the first launches.
func (l *lost) end(n int, at int64) {
	if n == 0 {
		return
	}
	if len(l.known) == maxLost {
		l.known = slices.Delete(l.known, 0, maxLost/2)
	}
	l.known = append(l.known, intervals.Interval{Start: l.pending[0].start, End: at})
	l.pending = slices.Delete(l.pending, 0, n)
}

// within returns the intervals that overlap a gap, and forgets those before it.
func (l *lost) within(list intervals.Set, from, to int64) intervals.Set {
	l.known = slices.DeleteFunc(l.known, func(v intervals.Interval) bool { return v.End <= from })
	for _, v := range l.known {
		if v.Start < to {
			list = append(list, v)
		}
	}
	if len(l.pending) > 0 && l.pending[0].start < to {
		list = append(list, intervals.Interval{Start: l.pending[0].start, End: to})
	}
	return list
}

// lostIn returns when unrecorded work of a process may have run on a device in a gap.
func (p *Process) lostIn(device, from, to int64) (list intervals.Set) {
	for _, d := range [...]int64{device, anyDevice} {
		if l := p.lost[d]; l != nil {
			list = l.within(list, from, to)
		}
	}
	return list
}

// capture follows captures of graphs.
func (p *Process) capture(class timeline.Range) {
	switch class {
	case timeline.RangeCapture:
		p.capturing = true
	case timeline.CallCaptured, timeline.CallWait:
		p.capturing = false
	}
}
