// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// nesting is where a section hangs.
type nesting struct {
	ctx    context.Context
	parent uint64
	around *slot // that parent has
	root   *slot // nil: the section is outermost
	depth  int32
	step   *Step
	phase  int8
}

// begin starts a section below the span, section or step of ctx. What is not timed is decided here, at the cost of one
// look-up in ctx.
func (s *Stream) begin(ctx context.Context, o *Operation, flags recordFlags) Section {
	if o == nil || s.p.level.Load() < int32(o.cfg.Verbosity) {
		return Section{}
	}
	parent := spanOf(ctx)
	if in, ok := parent.(*sectionSpan); ok {
		return s.beginBelow(ctx, in, o, flags)
	}
	if s.p.skips(o, parent) {
		return s.p.untimed(o)
	}
	return s.beginOuter(ctx, o, flags)
}

// skips reports whether a run is only counted because the head of its trace said no. A batch belongs to many traces:
// whether it is recorded is decided when its links are known.
func (p *Profiler) skips(o *Operation, parent trace.Span) bool {
	return !p.timeAll && !o.cfg.Batch && unsampled(parent)
}

// unsampled reports whether the head of the trace said no; where there is no trace nobody did. IsValid would ask for a
// span ID as well, which no tracer leaves out, and cost two more copies of the 64 bytes of a span context before an
// atomic add that waits for all of them.
func unsampled(parent trace.Span) bool {
	sc := parent.SpanContext()
	return !sc.IsSampled() && sc.HasTraceID()
}

// beginBelow starts a section in the context of another. One that has ended, or is not timed, is no parent for the new
// section's span, but the span around it is.
func (s *Stream) beginBelow(ctx context.Context, in *sectionSpan, o *Operation, flags recordFlags) Section {
	x, p := in.section, s.p
	switch {
	case x.p != p:
	case x.slot == nil:
		if p.skips(o, in) || p.loops.Load() != 0 && !p.stepTimed(ctx, s) {
			return x.untimed(o)
		}
	default:
		if y, ok := s.beginIn(x, o, flags); ok {
			return y
		}
	}
	if p.skips(o, in) {
		return p.untimed(o)
	}
	return s.beginOuter(ctx, o, flags)
}

// stepTimed reports whether a section in ctx belongs to no step or to one that is timed.
func (p *Profiler) stepTimed(ctx context.Context, s *Stream) bool {
	st := p.stepOf(ctx, s)
	return st == nil || st.timed
}

func (s *Stream) beginOuter(ctx context.Context, o *Operation, flags recordFlags) Section {
	p := s.p
	n := nesting{ctx: ctx}
	if p.loops.Load() != 0 {
		if n.step = p.stepOf(ctx, s); n.step != nil {
			if !n.step.timed {
				return p.untimed(o)
			}
			if !spanOf(ctx).SpanContext().IsValid() {
				n.ctx = n.step.ctx
			}
		}
	}
	return s.openOuter(o, &n, flags)
}

// openOuter opens an outermost section, or counts it where there is no slot.
func (s *Stream) openOuter(o *Operation, n *nesting, flags recordFlags) Section {
	x := s.open(o, n, flags)
	if x.slot == nil {
		return s.p.untimed(o)
	}
	return x
}

// beginIn starts a section within another, which may be on another stream; false when that one has ended.
func (s *Stream) beginIn(x Section, o *Operation, flags recordFlags) (Section, bool) {
	from := x.slot.stream
	from.mu.Lock()
	if !x.live() {
		from.mu.Unlock()
		return Section{}, false
	}
	r := &x.slot.rec
	n := nesting{ctx: r.ctx, parent: r.id, around: x.slot, root: r.root, depth: r.depth + 1, step: r.step}
	n.root.refs.Add(1) // the outermost slot cannot go while x is open, and now not while the new section is
	from.mu.Unlock()
	y := s.open(o, &n, flags)
	if y.slot == nil {
		n.root.refs.Add(-1)
		return x.untimed(o), true
	}
	y.at = x.at.child(s.p, y.at.st)
	return y, true
}

// take takes a free slot for a section of an operation, or says why there is none. The stream's mutex must be held.
func (s *Stream) take(st *opState) (*slot, dropReason) {
	last := len(s.free) - 1
	switch {
	case s.closed:
		return nil, dropShutdown
	case last < 0:
		return nil, dropPoolFull
	}
	sl := &s.slots[s.free[last]]
	s.free = s.free[:last]
	s.nextID++
	r := &sl.rec
	r.id, r.op, sl.state = uint64(s.id)<<40|s.nextID, st, slotOpen
	r.hostEnd, r.annotation, r.work = 0, 0, Work{} // of a plain section before
	return sl, 0
}

// takeBack gives up the oldest open section of a stream whose slots are mostly open, if it is older than
// Settings.NestDeadline or OpenLimit: it was started and not ended, as on an error path, and would cost the stream its
// times for as long as Settings.OpenLimit. The polling thread settles it. The stream's mutex must be held.
func (s *Stream) takeBack(n *nesting, now int64) bool {
	if s.closed || 2*s.pending.size > len(s.slots) {
		return false
	}
	var oldest *slot
	for i := range s.slots {
		sl := &s.slots[i]
		if sl.state != slotOpen || sl.rec.flags&flagStep != 0 || sl == n.root || sl == n.around || sl.refs.Load() > 1 {
			continue
		}
		if oldest == nil || sl.rec.id < oldest.rec.id {
			oldest = sl
		}
	}
	if oldest == nil || !tooOld(oldest.rec.hostStart, now, s.p.cfg.NestDeadline) &&
		!tooOld(oldest.rec.hostStart, now, s.p.cfg.OpenLimit) {
		return false
	}
	oldest.state = slotHeld // End of it does nothing from now on
	s.back = append(s.back, int32(oldest.index))
	return true
}

// open takes a slot and records the start event. Without a free slot the result is zero.
func (s *Stream) open(o *Operation, n *nesting, flags recordFlags) Section {
	p := s.p
	st := p.state(o)
	mode := o.cfg.Sync
	if mode == settings.SyncUnset {
		mode = s.sync
	}
	switch {
	case mode == settings.SyncNone || s.host || o.host || s.foreign && flags&flagLent == 0:
		flags |= flagHost
	case mode == settings.SyncImmediate || mode == settings.SyncGroup && n.parent == 0:
		flags |= flagWait
	}
	var memory int64
	var hasMemory bool
	if p.cfg.MemoryUsage {
		memory, hasMemory = s.memoryUsage()
	}
	now := p.clock.now()
	s.mu.Lock()
	sl, reason := s.take(st)
	if sl == nil {
		wake := s.takeBack(n, now) || s.pending.size > 0 && s.crowded(now)
		s.mu.Unlock()
		p.drop(reason)
		if wake {
			p.poller.wake()
		}
		return Section{}
	}
	r := &sl.rec
	r.ctx = n.ctx
	r.parent, r.depth, r.root = n.parent, n.depth, n.root
	if n.root == nil {
		r.root = sl
	}
	r.phase = n.phase
	if n.step != nil {
		r.step = n.step
		n.step.open.Add(1)
	}
	r.hostStart = now
	r.flags = flags
	if hasMemory {
		r.flags |= flagMemory
		r.memoryStart = memory
	}
	id := r.id
	if flags&flagHost == 0 {
		s.recordStart(sl)
	}
	if p.cfg.CodeLocation {
		p.locate(r)
	}
	s.mu.Unlock()
	x := Section{slot: sl, at: &st.outermost, id: id, p: p}
	if p.cfg.Annotator != nil && flags&flagGiven == 0 {
		x.annotate(n)
	}
	return x
}
