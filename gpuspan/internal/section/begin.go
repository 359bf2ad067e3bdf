// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Nesting is the position of a section in the tree.
type Nesting struct {
	Ctx    context.Context
	parent uint64
	around *Slot // that parent has
	root   *Slot // nil: the section is outermost
	depth  int32
	Step   *StepState
	Phase  int8
}

// Begin starts a section below the span, section or step of ctx. It also decides whether the
// section is timed, at the cost of one lookup in ctx.
func (s *Stream) Begin(ctx context.Context, o *Operation, flags Flags) Section {
	if s == nil || o == nil || s.Core.level.Load() < int32(o.Cfg.Verbosity) {
		return Section{}
	}
	parent := SpanOf(ctx)
	if in, ok := parent.(*ContextSpan); ok {
		if x, ok := in.begin(ctx, s, o, flags); ok {
			return x
		}
	}
	if o.skippedBy(s.Core, parent) {
		return s.Core.Untimed(o)
	}
	n := Nesting{Ctx: ctx}
	if s.Core.loops.Load() != 0 && !s.joinStep(&n) {
		return s.Core.Untimed(o)
	}
	return s.Open(o, &n, flags)
}

// skippedBy reports whether a run is only counted because its trace is not sampled. A batch belongs
// to many traces: whether it is recorded is decided when its links are known.
func (o *Operation) skippedBy(p *Core, parent trace.Span) bool {
	return !o.Cfg.Batch && !p.Samples(parent)
}

// unsampled reports whether the trace is unsampled at its head; without a trace it is false.
// IsValid would also check for a span ID, which every tracer sets, and cost two more copies of the
// 64 bytes of a span context before an atomic add that waits for all of them.
func unsampled(parent trace.Span) bool {
	sc := parent.SpanContext()
	return !sc.IsSampled() && sc.HasTraceID()
}

// begin starts a section in the context of another. If that has ended, or is not timed, it is not
// the parent of the new section's span; the span around it is, and the result is false.
func (in *ContextSpan) begin(ctx context.Context, s *Stream, o *Operation, flags Flags) (Section, bool) {
	x, p := in.section, s.Core
	switch {
	case x.p != p:
	case x.Slot == nil:
		if o.skippedBy(p, in) || p.loops.Load() != 0 && !stepTimed(ctx, p, s) {
			return x.untimed(o), true
		}
	default:
		return s.beginIn(x, o, flags)
	}
	return Section{}, false
}

// stepTimed reports whether a section in ctx belongs to no step or to one that is timed.
func stepTimed(ctx context.Context, p *Core, s *Stream) bool {
	st := stepOf(ctx, p, s)
	return st == nil || st.Timed
}

// joinStep finds the step of an outermost section; false if the step is not timed.
func (s *Stream) joinStep(n *Nesting) (timed bool) {
	if n.Step = stepOf(n.Ctx, s.Core, s); n.Step == nil {
		return true
	}
	if !SpanOf(n.Ctx).SpanContext().IsValid() {
		n.Ctx = n.Step.Ctx
	}
	return n.Step.Timed
}

// beginIn starts a section within another, which may be on another stream; false if that has ended.
func (s *Stream) beginIn(x Section, o *Operation, flags Flags) (Section, bool) {
	from := x.Slot.stream
	from.Mu.Lock()
	if !x.live() {
		from.Mu.Unlock()
		return Section{}, false
	}
	r := &x.Slot.Rec
	n := Nesting{Ctx: r.Ctx, parent: r.ID, around: x.Slot, root: r.root, depth: r.Depth + 1, Step: r.Step}
	n.root.refs.Add(1) // the outermost slot cannot go while x is open, and now not while the new section is
	from.Mu.Unlock()
	y := s.Open(o, &n, flags)
	if y.Slot == nil {
		n.root.refs.Add(-1)
		return x.untimed(o), true
	}
	y.at = x.at.child(s.Core, y.at.State)
	return y, true
}

// take takes a free slot for a section of an operation; nil if there is none. It can be inlined.
// The stream's mutex must be held.
func (s *Stream) take(st *OpState) *Slot {
	last := len(s.Free) - 1
	if last < 0 || s.closed {
		return nil
	}
	sl := s.Free[last]
	s.Free = s.Free[:last]
	s.lastID++
	r := &sl.Rec
	r.ID, r.Op, sl.state = s.lastID, st, slotOpen
	r.HostEnd, r.annotation, r.Work = 0, 0, work.Work{} // of a plain section before
	return sl
}

// noSlot counts that Take found none, and returns why. The stream's mutex must be held.
func (s *Stream) noSlot() dropReason {
	if s.closed {
		return dropShutdown
	}
	s.lost++
	return dropPoolFull
}

// takeBack abandons the oldest open section of a stream whose slots are mostly open, if it is older
// than Settings.NestDeadline or OpenLimit: it was started and not ended, as on an error path, and
// would deprive the stream of GPU times for as long as Settings.OpenLimit. The polling thread
// settles it. The stream's mutex must be held.
func (s *Stream) takeBack(n *Nesting, now int64) bool {
	if s.closed || 2*s.pending.size > len(s.Slots) {
		return false
	}
	var oldest *Slot
	for _, sl := range s.Slots {
		if sl.state != slotOpen || sl.Rec.Flags&flagStep != 0 || sl == n.root || sl == n.around || sl.refs.Load() > 1 {
			continue
		}
		if oldest == nil || sl.Rec.ID < oldest.Rec.ID {
			oldest = sl
		}
	}
	if oldest == nil || !TooOld(oldest.Rec.HostStart, now, s.Core.Cfg.NestDeadline) &&
		!TooOld(oldest.Rec.HostStart, now, s.Core.Cfg.OpenLimit) {
		return false
	}
	oldest.state = SlotHeld // its End does nothing from now on
	s.back = append(s.back, oldest)
	return true
}

// Open takes a slot and records the start event. Without a free slot an outermost section only
// counts, and the result for one within another is zero.
func (s *Stream) Open(o *Operation, n *Nesting, flags Flags) Section {
	p := s.Core
	st := p.known(o)
	if st == nil {
		st = p.register(o)
	}
	mode := o.Cfg.Sync
	if mode == settings.SyncUnset {
		mode = s.sync
	}
	switch {
	case mode == settings.SyncNone || s.Host || o.host || s.foreign && flags&flagLent == 0:
		flags |= FlagHost
	case mode == settings.SyncImmediate || mode == settings.SyncGroup && n.parent == 0:
		flags |= FlagWait
	}
	var memory int64
	var hasMemory bool
	if p.Cfg.MemoryUsage {
		memory, hasMemory = s.memoryUsage()
	}
	now := p.Clock.Now()
	s.Mu.Lock()
	sl := s.take(st)
	if sl == nil {
		reason := s.noSlot()
		wake := s.takeBack(n, now) || s.pending.size > 0 && s.crowded(now)
		s.Mu.Unlock()
		p.drop(reason)
		if wake {
			p.wake()
		}
		if n.Step != nil {
			n.Step.Lost.Add(1)
		}
		if n.root == nil {
			return st.Outermost.run(p)
		}
		return Section{}
	}
	// The polling thread has written the free slots. The one after the next is requested, because a
	// line takes longer to arrive than a section to start and end.
	if i := len(s.Free) - 2; i >= 0 {
		prefetch(s.Free[i])
	}
	r := &sl.Rec
	r.Ctx = n.Ctx
	r.Parent, r.Depth, r.root = n.parent, n.depth, n.root
	if n.root == nil {
		r.root = sl
	}
	r.Phase = n.Phase
	if n.Step != nil {
		r.Step = n.Step
		n.Step.Open.Add(1)
		n.Step.Running.Add(1)
	}
	r.HostStart = now
	r.Flags = flags
	if hasMemory {
		r.Flags |= FlagMemory
		r.MemoryStart = memory
	}
	id := r.ID
	if flags&FlagHost == 0 {
		s.recordStart(sl)
	}
	if p.Cfg.CodeLocation {
		r.locate(p.Cfg.StackDepth)
	}
	s.Mu.Unlock()
	x := Section{sl, id, &st.Outermost, p}
	if p.Cfg.Annotator != nil && flags&FlagGiven == 0 {
		x.annotate(n)
	}
	return x
}
