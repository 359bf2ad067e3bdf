// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/otelgpu/otelgpu/gpuspan/backend"
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

// openStep takes a slot for a step and records its start, unless the step before ends there. nil: no slot is free.
func (s *Stream) openStep(l *Loop, st *Step) *slot {
	p, prev := s.p, l.takePrev()
	state := p.state(l.op)
	annotation := p.rangeStart(l.op, spanOf(st.ctx).SpanContext(), st.index)
	s.mu.Lock()
	sl, reason := s.take(state)
	if sl == nil {
		s.mu.Unlock()
		prev.release()
		p.rangeEnd(annotation)
		p.drop(reason)
		return nil
	}
	r := &sl.rec
	r.root, r.step = sl, st
	r.flags = flagStep
	if s.host || s.foreign || s.sync == settings.SyncNone {
		r.flags |= flagHost
	}
	r.hostStart = st.hostStart
	if prev.timed && r.flags&flagHost == 0 && s.failed == backend.StatusOK {
		r.flags |= flagStarted
		r.startEvent, r.borrowed = backend.Event(prev.slot.end.Args[0]), prev.slot
		prev = link{} // its reference goes with the event
	} else if r.flags&flagHost == 0 {
		s.recordStart(sl)
	}
	r.annotation = annotation
	if r.flags&flagHost == 0 {
		st.device = s.device
	}
	s.mu.Unlock()
	prev.release()
	return sl
}

// follow makes a step begin where the one before it ended, to the nanosecond. Both are one event, but each step is
// placed with the anchors of its own time, which would leave gaps and overlaps of a few µs. The step keeps its length,
// the difference of two stamps, until its end is off its own place by more than that place's error: then the end moves
// there, and the step's length makes up for what had added up.
func (r *record) follow(before *record) {
	if !r.timed || !before.timed {
		return
	}
	start := before.endNs - before.offset + r.offset // the wall clock may have been set in between
	end := start + r.endNs - r.startNs
	off := max(end-r.endNs, r.endNs-end)
	if off > r.errorNs {
		end = max(r.endNs, start)
		off = end - r.endNs
	}
	r.step.endError = r.errorNs + off
	r.startNs, r.endNs = start, end
	r.errorNs = max(before.step.endError, r.step.endError)
	r.gpu = float64(end - r.startNs)
}

// sealStep records the end boundary. chain: another step may follow and begin there.
func (s *Stream) sealStep(l *Loop, st *Step, chain bool) {
	sl := st.slot
	now := s.p.clock.now()
	s.mu.Lock()
	r := &sl.rec
	if sl.state != slotOpen || r.step != st {
		s.mu.Unlock() // given up: the stream was closed, or the step took too long
		return
	}
	r.hostEnd = now
	if r.flags&flagHost == 0 {
		s.recordEnd(sl)
	}
	annotation := r.annotation
	if chain {
		sl.refs.Add(1)
	}
	next := link{slot: sl, hostEnd: now, timed: r.flags&flagHost == 0}
	crowded := s.enqueue(sl, now)
	s.mu.Unlock()
	s.p.rangeEnd(annotation)
	if chain {
		l.mu.Lock()
		l.prev = next
		l.mu.Unlock()
	}
	if crowded || s.p.idle.Load() {
		s.p.poller.wake()
	}
}

// link is the end of a step, where the next one may begin. It holds a reference to the slot.
type link struct {
	slot    *slot
	hostEnd int64
	timed   bool // the slot's end event was recorded
}

func (k link) release() {
	if k.slot != nil {
		k.slot.unchain()
	}
}

func (sl *slot) unchain() {
	if sl.refs.Add(-1) > 0 {
		return
	}
	sl.refs.Store(1) // as free slots have it
	s := sl.stream
	s.mu.Lock()
	s.release(sl)
	s.mu.Unlock()
}

// setStep makes st the step of sections on the stream that have none in their context. It may begin within another, as
// those of an evaluation do within a training step.
func (s *Stream) setStep(st *Step) {
	s.mu.Lock()
	st.around, s.step = s.step, st
	s.mu.Unlock()
}

// clearStep gives the stream back to the step around st.
func (s *Stream) clearStep(st *Step) {
	s.mu.Lock()
	for at := &s.step; *at != nil; at = &(*at).around {
		if *at == st {
			*at, st.around = st.around, nil
			break
		}
	}
	s.mu.Unlock()
}
