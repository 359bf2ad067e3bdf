// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// A step takes one slot of its stream for its boundaries:
//
//	step 1            step 2            step 3
//	start ─────── end = start ─────── end = start ─────── end
//	slot a            slot b            slot c
//
// The end event of a step is the start of the next, so steps follow each other without a gap, at one record a
// boundary. A slot therefore lives until the next step has been read.

// openStep takes a slot for a step and records its start, unless the previous step ends there. nil: no slot is free.
func openStep(s *record.Stream, l *Loop, st *Step) *record.Slot {
	p, prev := s.Core, l.takePrev()
	state := p.State(l.Op)
	annotation := p.RangeStart(l.Op, record.SpanOf(st.Ctx).SpanContext(), st.index)
	s.Mu.Lock()
	sl := s.Take(state)
	if sl == nil {
		reason := s.NoSlot()
		s.Mu.Unlock()
		prev.release()
		p.RangeEnd(annotation)
		p.Drop(reason)
		return nil
	}
	r := &sl.Rec
	r.Root, r.Step = sl, &st.StepState
	r.Flags = record.FlagStep
	if s.Host || s.Foreign || s.Sync == settings.SyncNone {
		r.Flags |= record.FlagHost
	}
	r.HostStart = st.hostStart
	if prev.timed && r.Flags&record.FlagHost == 0 && s.Failed == backend.StatusOK {
		r.Flags |= record.FlagStarted
		r.StartEvent, r.Borrowed = backend.Event(prev.slot.End.Args[0]), prev.slot
		prev = link{} // its reference is released with the event
	} else if r.Flags&record.FlagHost == 0 {
		s.RecordStart(sl)
	}
	r.Annotation = annotation
	if r.Flags&record.FlagHost == 0 {
		st.Device = s.Device
	}
	s.Mu.Unlock()
	prev.release()
	return sl
}

// follow makes a step start where the previous one ended, to the nanosecond. Both are one event, but each step is
// placed with the anchors of its time, which would leave gaps and overlaps of a few µs. The step keeps its length,
// the difference of two stamps, until its end differs from its own position by more than that position's error: then
// the end moves there, and the step's length absorbs the accumulated difference.
func follow(r, before *record.Record) {
	if !r.Timed || !before.Timed {
		return
	}
	start := before.EndNs - before.Offset + r.Offset // the wall clock may have been set in between
	end := start + r.EndNs - r.StartNs
	off := max(end-r.EndNs, r.EndNs-end)
	if off > r.ErrorNs {
		end = max(r.EndNs, start)
		off = end - r.EndNs
	}
	step := StepOf(r)
	step.endError = r.ErrorNs + off
	r.StartNs, r.EndNs = start, end
	r.ErrorNs = max(StepOf(before).endError, step.endError)
	r.GPU = float64(end - r.StartNs)
}

// sealStep records the end boundary. chain: another step may follow and start there.
func sealStep(s *record.Stream, l *Loop, st *Step, chain bool) {
	sl := st.slot
	now := s.Core.Clock.Now()
	s.Mu.Lock()
	r := &sl.Rec
	if sl.State != record.SlotOpen || r.Step != &st.StepState {
		s.Mu.Unlock() // abandoned: the stream was closed, or the step took too long
		return
	}
	r.HostEnd = now
	if r.Flags&record.FlagHost == 0 {
		s.RecordEnd(sl)
	}
	annotation := r.Annotation
	if chain {
		sl.Refs.Add(1)
	}
	next := link{slot: sl, hostEnd: now, timed: r.Flags&record.FlagHost == 0}
	s.Enqueue(sl)
	crowded := 2*s.Pending.Size >= len(s.Slots) && s.Crowded(now)
	s.Mu.Unlock()
	s.Core.RangeEnd(annotation)
	if chain {
		l.mu.Lock()
		l.prev = next
		l.mu.Unlock()
	}
	if crowded || s.Core.Polling.Idle.Load() {
		s.Core.Polling.Wake()
	}
}

// link is the end of a step, where the next one may start. It holds a reference to the slot.
type link struct {
	slot    *record.Slot
	hostEnd int64
	timed   bool // the slot's end event was recorded
}

func (k link) release() {
	if k.slot != nil {
		k.slot.Unchain()
	}
}
