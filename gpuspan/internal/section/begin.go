// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"
	"runtime"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/cpu"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// ContextSpan replaces the span around a section in a context and carries the section too, so that
// Start finds both with one lookup. In all other respects it is that span.
type ContextSpan struct {
	trace.Span
	section Section
}

func (p *Core) Untimed(o *Operation) Section {
	st := p.ops.known(o)
	if st == nil {
		st = p.ops.register(o)
	}
	return st.Outermost.run(p, 0)
}

// run counts a section that is not timed. lost is 0, or states why it was dropped.
func (pl *Position) run(p *Core, lost uint64) Section {
	return Section{nil, uint64(pl.untimed.Count.Add(1)) | lost, pl, p}
}

// lostShift is where the ticket of a dropped section has the reason, plus one, for those in it.
const lostShift = 60

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

func (o *Operation) Start(ctx context.Context, s *Stream) Section { return s.Begin(ctx, o, FlagNone) }

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
		return x.within(o, y.id), true
	}
	y.at = x.at.child(&s.Core.ops, y.at.State)
	return y, true
}

func (x Section) Start(o *Operation) Section {
	if x.Slot != nil {
		return x.StartOn(o, x.Slot.stream)
	}
	if x.at == nil || o == nil || x.p.level.Load() < int32(o.Cfg.Verbosity) {
		return Section{}
	}
	return x.untimed(o)
}

func (x Section) StartOn(o *Operation, s *Stream) Section {
	if x.at == nil || o == nil || s == nil || x.p.level.Load() < int32(o.Cfg.Verbosity) {
		return Section{}
	}
	if s.Core != x.p {
		x.p.CountMisuse(ForeignStream)
		return Section{}
	}
	if x.Slot == nil {
		return x.untimed(o)
	}
	y, ok := s.beginIn(x, o, FlagNone)
	if !ok {
		x.p.CountMisuse(staleParent)
		return x.p.Untimed(o)
	}
	return y
}

// untimed counts a run within this section, which is not timed. If this one was dropped, the other
// is, too.
func (x Section) untimed(o *Operation) Section {
	lost := x.id >> lostShift
	if lost != 0 {
		x.p.drop(dropReason(lost - 1))
	}
	return x.within(o, lost<<lostShift)
}

// within counts a run within this section that is not timed.
func (x Section) within(o *Operation, lost uint64) Section {
	return x.at.child(&x.p.ops, x.p.State(o)).run(x.p, lost)
}

// Open takes a slot and records the start event. Without a free slot an outermost section only
// counts, and the result for one within another has nothing but the reason.
func (s *Stream) Open(o *Operation, n *Nesting, flags Flags) Section {
	p := s.Core
	st := p.ops.known(o)
	if st == nil {
		st = p.ops.register(o)
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
		lost := uint64(reason+1) << lostShift
		if n.root == nil {
			return st.Outermost.run(p, lost)
		}
		return Section{id: lost}
	}
	// The polling thread has written the free slots. The one after the next is requested, because a
	// line takes longer to arrive than a section to start and end.
	if i := len(s.Free) - 2; i >= 0 {
		cpu.Prefetch(&s.Free[i].memory)
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

// annotate starts the range of a section that has just started. It is not called under the stream's
// mutex, because the annotator is not this library's code.
func (x Section) annotate(n *Nesting) {
	p, o := x.p, x.at.State.Operation
	sc := SpanOf(n.Ctx).SpanContext()
	ids := spanid.IDs{}
	if n.reserves(p, sc) {
		ids = n.reserve(p, o, sc)
	}
	if ids.Span.IsValid() {
		sc = trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: ids.Trace, SpanID: ids.Span,
			TraceFlags: sc.TraceFlags() | trace.FlagsSampled,
		})
	}
	id := p.rangeStart(o, sc, NoStep)
	s := x.Slot.stream
	s.Mu.Lock()
	open := x.live()
	if open {
		r := &x.Slot.Rec
		r.annotation = id
		if ids.Span.IsValid() {
			r.more().IDs = ids
		}
	}
	s.Mu.Unlock()
	if !open { // abandoned already: the profiler shuts down
		p.rangeEnd(id)
	}
}

// reserves reports whether the section will have a span whose ID is known in advance.
func (n *Nesting) reserves(p *Core, parent trace.SpanContext) bool {
	return p.Cfg.IDs != nil && !p.refused.Load() &&
		(parent.IsSampled() || !parent.IsValid()) && // otherwise it is timed for metrics only
		(n.Step == nil || n.Step.Recorded)
}

// reserve reserves the IDs of a section's span. A section without a span uses the span around it.
func (n *Nesting) reserve(p *Core, o *Operation, parent trace.SpanContext) (ids spanid.IDs) {
	defer p.Guard("an id was drawn")
	around := n.idsAround()
	switch {
	case o.Cfg.NoSpan:
		return around
	case parent.IsValid():
		return spanid.IDs{Trace: parent.TraceID(), Span: p.Cfg.IDs.DrawSpanID(n.Ctx, parent.TraceID())}
	case around.Trace.IsValid():
		return spanid.IDs{Trace: around.Trace, Span: p.Cfg.IDs.DrawSpanID(n.Ctx, around.Trace)}
	case n.root != nil && !n.root.Rec.Op.Cfg.NoSpan:
		return spanid.IDs{} // the trace has an ID that is unknown here
	}
	ids.Trace, ids.Span = p.Cfg.IDs.DrawIDs(n.Ctx)
	return ids
}

// idsAround returns the IDs of the section around, or of the outermost one if that has ended.
func (n *Nesting) idsAround() (ids spanid.IDs) {
	for _, sl := range []*Slot{n.around, n.root} {
		if sl == nil || ids.Trace.IsValid() {
			continue
		}
		sl.stream.Mu.Lock()
		if r := &sl.Rec; r.Extra != nil && (sl == n.root || r.ID == n.parent) {
			ids = r.Extra.IDs
		}
		sl.stream.Mu.Unlock()
	}
	return ids
}

// ownFrames is the number of the library's own frames that the stack may contain in addition to the
// caller's: Start's frames, and a loop iterator's frames between frames of the application.
const ownFrames = 16

// locate records which code starts a section. Names are looked up when the span is made.
func (r *Record) locate(depth int) {
	var pcs [settings.MaxStackDepth + ownFrames]uintptr
	n := runtime.Callers(3, pcs[:max(depth, 1)+ownFrames])
	e := r.more()
	e.Stack = append(e.Stack[:0], pcs[:n]...)
}
