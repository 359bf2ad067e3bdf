// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// Annotator is gpuspan.Annotator. step is the number of a step, or NoStep.
type Annotator interface {
	RangeStart(o *Operation, sc trace.SpanContext, step int64) uint64
	RangeEnd(id uint64)
	Enabled() bool
}

// annotate begins the range of a section that has just begun. Not under the stream's mutex: the annotator is not this
// library's code.
func (x Section) annotate(n *nesting) {
	p, o := x.p, x.at.st.op
	sc := spanOf(n.ctx).SpanContext()
	ids := spanIDs{}
	if p.reserves(n, sc) {
		ids = p.reserve(o, n, sc)
	}
	if ids.span.IsValid() {
		sc = trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: ids.trace, SpanID: ids.span,
			TraceFlags: sc.TraceFlags() | trace.FlagsSampled,
		})
	}
	id := p.rangeStart(o, sc, NoStep)
	s := x.slot.stream
	s.mu.Lock()
	open := x.live()
	if open {
		r := &x.slot.rec
		r.annotation = id
		if ids.span.IsValid() {
			r.more().ids = ids
		}
	}
	s.mu.Unlock()
	if !open { // given up already: the profiler shuts down
		p.rangeEnd(id)
	}
}

// reserves reports whether the section will have a span whose id can be said now.
func (p *Profiler) reserves(n *nesting, parent trace.SpanContext) bool {
	return p.cfg.IDs != nil && !p.refused.Load() &&
		(parent.IsSampled() || !parent.IsValid()) && // else it is timed for metrics only
		(n.step == nil || n.step.action.Recorded())
}

// reserve draws the ids of a section's span. A section without a span stands for the one around it.
func (p *Profiler) reserve(o *Operation, n *nesting, parent trace.SpanContext) (ids spanIDs) {
	defer p.guard("an id was drawn")
	around := n.idsAround()
	switch {
	case o.cfg.NoSpan:
		return around
	case parent.IsValid():
		return spanIDs{parent.TraceID(), p.cfg.IDs.drawSpanID(n.ctx, parent.TraceID())}
	case around.trace.IsValid():
		return spanIDs{around.trace, p.cfg.IDs.drawSpanID(n.ctx, around.trace)}
	case n.root != nil && !n.root.rec.op.op.cfg.NoSpan:
		return spanIDs{} // the trace has an id that is not known here
	}
	ids.trace, ids.span = p.cfg.IDs.drawIDs(n.ctx)
	return ids
}

// idsAround are those of the section around, or of the outermost one if that has ended meanwhile.
func (n *nesting) idsAround() (ids spanIDs) {
	for _, sl := range []*slot{n.around, n.root} {
		if sl == nil || ids.trace.IsValid() {
			continue
		}
		sl.stream.mu.Lock()
		if r := &sl.rec; r.extra != nil && (sl == n.root || r.id == n.parent) {
			ids = r.extra.ids
		}
		sl.stream.mu.Unlock()
	}
	return ids
}

var errIDsRefused = errors.New(
	"the TracerProvider does not use the profiler's IDGenerator, so ranges carry the ids of the parent span (pass the " +
		"same one to sdktrace.WithIDGenerator)")

// checkIDs finds out whether the provider took the ids that were reserved. If not it never will.
func (p *Profiler) checkIDs(want spanIDs, got trace.SpanContext) {
	if got.SpanID() != want.span && p.refused.CompareAndSwap(false, true) {
		p.errors.report("ids", errIDsRefused)
	}
}

// listens reports whether an annotator does anything: one that says it is not enabled, as nvtx without a tool, is not
// called at all.
func (p *Profiler) listens(a Annotator) (enabled bool) {
	defer p.guard("the annotator was asked whether it is enabled")
	return a.Enabled()
}

// NoStep is the number of what is no step.
const NoStep = -1

// rangeStart begins the range of a section, or of the step of a number.
func (p *Profiler) rangeStart(o *Operation, sc trace.SpanContext, step int64) uint64 {
	if p.cfg.Annotator == nil {
		return 0
	}
	defer p.guard("a range was started")
	return p.cfg.Annotator.RangeStart(o, sc, step)
}

// rangeEnd is small enough to be inlined where sections end, most of which have no range.
func (p *Profiler) rangeEnd(id uint64) {
	if id != 0 {
		p.endRange(id)
	}
}

func (p *Profiler) endRange(id uint64) {
	defer p.guard("a range was ended")
	p.cfg.Annotator.RangeEnd(id)
}

// ownPackages begin the names of functions that are no part of the caller's stack.
var ownPackages = []string{
	"github.com/otelgpu/otelgpu/gpuspan.",
	"github.com/otelgpu/otelgpu/gpuspan/train.",
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine.",
}

// own reports whether a frame is this library's. Its tests are callers as any other.
func own(f runtime.Frame) bool {
	return !strings.HasSuffix(f.File, "_test.go") &&
		slices.ContainsFunc(ownPackages, func(p string) bool { return strings.HasPrefix(f.Function, p) })
}

// ownFrames is how many frames of the library's own may lie between a caller and locate.
const ownFrames = 6

// locate remembers who starts a section. Names are looked up when the span is made.
func (p *Profiler) locate(r *record) {
	var pcs [settings.MaxStackDepth + ownFrames]uintptr
	n := runtime.Callers(3, pcs[:max(p.cfg.StackDepth, 1)+ownFrames])
	e := r.more()
	e.stack = append(e.stack[:0], pcs[:n]...)
}

// describeCode appends code.* of the caller of Start.
func (p *Profiler) describeCode(kv []attribute.KeyValue, r *record) []attribute.KeyValue {
	if r.extra == nil || len(r.extra.stack) == 0 {
		return kv
	}
	frames := runtime.CallersFrames(r.extra.stack)
	var stack strings.Builder
	depth := 0
	for f, _ := frames.Next(); f.PC != 0; f, _ = frames.Next() {
		if own(f) {
			continue
		}
		if depth == 0 {
			kv = append(kv, semconv.CodeFunctionNameKey.String(f.Function),
				semconv.CodeFilePathKey.String(f.File), semconv.CodeLineNumberKey.Int(f.Line))
		}
		if depth < p.cfg.StackDepth {
			fmt.Fprintf(&stack, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		}
		depth++
	}
	if stack.Len() > 0 {
		kv = append(kv, semconv.CodeStacktraceKey.String(stack.String()))
	}
	return kv
}
