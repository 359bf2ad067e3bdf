// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// stepKey is the key of a profiler's step in a context.
type stepKey struct{ p *Core }

// WithStep returns the context of a step's body.
func (p *Core) WithStep(ctx context.Context, st *StepState) context.Context {
	return context.WithValue(ctx, stepKey{p}, st)
}

// stepOf returns the step that a section belongs to: its context's, otherwise the one that runs on
// its stream.
func stepOf(ctx context.Context, p *Core, s *Stream) *StepState {
	if ctx != nil {
		if st, ok := ctx.Value(stepKey{p}).(*StepState); ok {
			return st
		}
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.step
}

// SetStep makes st the step of sections on the stream that have none in their context. It may start
// within another step, as an evaluation's steps do within a training step.
func (s *Stream) SetStep(st *StepState) {
	s.Mu.Lock()
	st.around, s.step = s.step, st
	s.Mu.Unlock()
}

// ClearStep returns the stream to the step around st.
func (s *Stream) ClearStep(st *StepState) {
	s.Mu.Lock()
	for at := &s.step; *at != nil; at = &(*at).around {
		if *at == st {
			*at, st.around = st.around, nil
			break
		}
	}
	s.Mu.Unlock()
}

// Boundary is the end of a step, where the next one may start. A step takes one slot of its stream
// for its boundaries:
//
//	step 1            step 2            step 3
//	start ─────── end = start ─────── end = start ─────── end
//	slot a            slot b            slot c
//
// The end event of a step is the start of the next, so steps follow each other without a gap, at
// one record a boundary. A slot therefore lives until the next step has been read. A Boundary holds
// a reference to it.
type Boundary struct {
	slot    *Slot // nil: there is none
	hostEnd int64
	timed   bool // the slot's end event was recorded
}

// EndedAt returns when the step ended on the host; false without one.
func (b Boundary) EndedAt() (int64, bool) { return b.hostEnd, b.slot != nil }

// Release drops the reference.
func (b Boundary) Release() {
	if b.slot != nil {
		b.slot.unchain()
	}
}

// OpenStep takes a slot for a step and records its start, unless the previous step ends there,
// whose end it releases. nil: no slot is free.
func (s *Stream) OpenStep(st *StepState, o *Operation, index, hostStart int64, prev Boundary) *Slot {
	p := s.Core
	state := p.State(o)
	annotation := p.rangeStart(o, SpanOf(st.Ctx).SpanContext(), index)
	s.Mu.Lock()
	sl := s.take(state)
	if sl == nil {
		reason := s.noSlot()
		s.Mu.Unlock()
		prev.Release()
		p.rangeEnd(annotation)
		p.drop(reason)
		return nil
	}
	r := &sl.Rec
	r.root, r.Step = sl, st
	r.Flags = flagStep
	if s.Host || s.foreign || s.sync == settings.SyncNone {
		r.Flags |= FlagHost
	}
	r.HostStart = hostStart
	if prev.timed && r.Flags&FlagHost == 0 && s.failed == backend.StatusOK {
		r.Flags |= FlagStarted
		r.startEvent, r.borrowed = backend.Event(prev.slot.end.Args[0]), prev.slot
		prev = Boundary{} // its reference is released with the event
	} else if r.Flags&FlagHost == 0 {
		s.recordStart(sl)
	}
	r.annotation = annotation
	if r.Flags&FlagHost == 0 {
		st.Device = s.Device
	}
	s.Mu.Unlock()
	prev.Release()
	return sl
}

// EndStep records the end of a step. chain: another step may follow and start there.
func (s *Stream) EndStep(sl *Slot, st *StepState, chain bool) (end Boundary) {
	now := s.Core.Clock.Now()
	s.Mu.Lock()
	r := &sl.Rec
	if sl.state != slotOpen || r.Step != st {
		s.Mu.Unlock() // abandoned: the stream was closed, or the step took too long
		return Boundary{}
	}
	r.HostEnd = now
	if r.Flags&FlagHost == 0 {
		s.recordEnd(sl)
	}
	if chain {
		sl.refs.Add(1)
		end = Boundary{slot: sl, hostEnd: now, timed: r.Flags&FlagHost == 0}
	}
	s.enqueue(sl, now)
	return end
}

// StepBefore returns the record of the step whose end is the start of the slot's; nil: none.
func (sl *Slot) StepBefore() *Record {
	if b := sl.Rec.borrowed; b != nil {
		return &b.Rec
	}
	return nil
}

// ReleaseStep frees a step's slot, and the slot of the step before, whose event it needed.
func (sl *Slot) ReleaseStep() {
	if b := sl.Rec.borrowed; b != nil {
		sl.Rec.borrowed = nil
		b.unchain()
	}
	sl.unchain()
}
