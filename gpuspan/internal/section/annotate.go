// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"errors"
	"runtime"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Annotator is gpuspan.Annotator. step is the number of a step, or NoStep.
type Annotator interface {
	RangeStart(o *Operation, sc trace.SpanContext, step int64) uint64
	RangeEnd(id uint64)
	Enabled() bool
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

var errIDsRefused = errors.New(
	"the TracerProvider does not use the profiler's IDGenerator, so ranges carry the ids of the parent span (pass the " +
		"same one to sdktrace.WithIDGenerator)")

// CheckIDs checks whether the provider used the reserved IDs. If it did not, it never will.
func (p *Core) CheckIDs(want spanid.IDs, got trace.SpanContext) {
	if got.SpanID() != want.Span && p.refused.CompareAndSwap(false, true) {
		p.Errors.Report("ids", errIDsRefused)
	}
}

// listens reports whether the annotator has any effect: one that is not enabled, as nvtx without a
// tool, is not called at all.
func (p *Core) listens() (enabled bool) {
	defer p.Guard("annotator's Enabled")
	return p.Cfg.Annotator.Enabled()
}

// NoStep is the number used outside of steps.
const NoStep = -1

// rangeStart begins the range of a section, or of the step of a number.
func (p *Core) rangeStart(o *Operation, sc trace.SpanContext, step int64) uint64 {
	if p.Cfg.Annotator == nil {
		return 0
	}
	defer p.Guard("a range was started")
	return p.Cfg.Annotator.RangeStart(o, sc, step)
}

// rangeEnd ends the range of a section, if it has one. It can be inlined, because most sections
// have none.
func (p *Core) rangeEnd(id uint64) {
	if id != 0 {
		p.endRange(id)
	}
}

func (p *Core) endRange(id uint64) {
	defer p.Guard("a range was ended")
	p.Cfg.Annotator.RangeEnd(id)
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
