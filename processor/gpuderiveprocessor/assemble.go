// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// assembler sums up the descendants of each step. When the parent of a sum arrives, the sum is added to the
// grandparent's, or written on the span if that is a step. Spans are not delayed, only sums wait.
type assembler struct {
	cfg AssembleConfig

	mu    sync.Mutex
	sums  spanfacts.Waiting[partial]
	order spanfacts.Order
	// rejected are the spans of batches that the next component rejected, with the sum of a step's descendants. They are
	// expected again, and are in the sums of their parents already.
	rejected spanfacts.Waiting[partial]
}

func newAssembler(cfg AssembleConfig) *assembler {
	return &assembler{
		cfg: cfg, sums: spanfacts.Waiting[partial]{Max: cfg.MaxSums}, rejected: spanfacts.Waiting[partial]{Max: cfg.MaxSums},
	}
}

// assembly is what assemble did with a batch, to be repeated if the batch is rejected.
type assembly struct {
	spans     []spanfacts.Key
	steps     map[spanfacts.Key]partial
	assembled int64
}

// reject records that a batch was rejected: its spans arrive again.
func (a *assembler) reject(b *assembly, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rejected.Expire(now - int64(a.cfg.MaxAge))
	for _, k := range b.spans {
		if !k.Trace.IsEmpty() && !k.Span.IsEmpty() {
			sum, _ := a.rejected.At(k, now)
			*sum = b.steps[k]
		}
	}
}

// assemble reads a batch, whose spans may be in any order. now is unix ns.
func (a *assembler) assemble(td ptrace.Traces, now int64) (done assembly, evicted int64) {
	type scoped struct {
		ptrace.Span
		scope *spanfacts.Scope
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.order.Reset()
	var spans []scoped
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			scope := new(spanfacts.Scope)
			scope.Load(nil, ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				spans = append(spans, scoped{s, scope})
				trace := s.TraceID()
				a.order.Add(spanfacts.Key{Trace: trace, Span: s.SpanID()}, spanfacts.Key{Trace: trace, Span: s.ParentSpanID()})
			}
		}
	}
	evicted = int64(a.sums.Expire(now - int64(a.cfg.MaxAge)))
	done.spans = make([]spanfacts.Key, 0, len(spans))
	var f spanfacts.Facts
	for _, i := range a.order.ChildrenFirst() {
		f.Load(spans[i].Span, spans[i].scope)
		done.spans = append(done.spans, f.Key)
		evicted += a.span(spans[i].Span, &f, &done, now)
	}
	return done, evicted
}

// span reads one span and returns how many sums were evicted at the limit.
func (a *assembler) span(s ptrace.Span, f *spanfacts.Facts, done *assembly, now int64) (evicted int64) {
	below, some := a.sums.Take(f.Key)
	before, again := a.rejected.Take(f.Key)
	if f.Kind == spanfacts.Step {
		if again {
			before.merge(&below, a.cfg.MaxIntervals)
			below, some = before, true
		}
		if some && below.complete(s, f) {
			done.assembled++
		}
		if some {
			if done.steps == nil {
				done.steps = map[spanfacts.Key]partial{}
			}
			done.steps[f.Key] = below
		}
		return 0
	}
	if again && !some {
		return 0
	}
	if f.Kind.Work() && !again {
		below.addSpan(f, a.cfg.MaxIntervals)
		some = true
	}
	if !some || f.Parent.IsEmpty() || f.Key.Trace.IsEmpty() {
		return 0
	}
	at, dropped := a.sums.At(spanfacts.Key{Trace: f.Key.Trace, Span: f.Parent}, now)
	at.merge(&below, a.cfg.MaxIntervals)
	return int64(dropped)
}

// phaseNames are the categories of sections that are phases of a step.
var phaseNames = [...]string{
	semconv.GPUStepPhaseNameData, semconv.GPUStepPhaseNameForward, semconv.GPUStepPhaseNameBackward,
	semconv.GPUStepPhaseNameOptimizer, semconv.GPUStepPhaseNameComm,
}

// phaseOf returns the index of a span's phase, -1 for none.
func phaseOf(f *spanfacts.Facts) int {
	name := f.Category
	if name == "" && f.Kind == spanfacts.Collective {
		name = semconv.GPUStepPhaseNameComm
	}
	return slices.Index(phaseNames[:], name)
}

// partial is a sum over the known descendants of one span.
type partial struct {
	flops     float64
	precision string // of flops; empty and mixed if they differ
	mixed     bool
	covered   intervals.Set
	phases    [len(phaseNames)]intervals.Set
}

// addSpan replaces the sum of a span's children by the span itself: its own FLOPs replace theirs, its interval covers
// theirs, and so does its phase.
func (p *partial) addSpan(f *spanfacts.Facts, limit int) {
	if f.FLOPs > 0 {
		p.flops, p.precision, p.mixed = f.FLOPs, f.Precision, false
	}
	v := intervals.Unix(f.Start, f.End)
	p.covered.Add(v, limit)
	if i := phaseOf(f); i >= 0 {
		p.phases[i].Add(v, limit)
	}
}

// merge adds the sum of another child.
func (p *partial) merge(c *partial, limit int) {
	if c.flops > 0 {
		switch {
		case p.flops == 0:
			p.precision, p.mixed = c.precision, c.mixed
		case p.precision != c.precision:
			p.precision, p.mixed = "", true
		}
		p.flops += c.flops
	}
	p.covered.AddAll(c.covered, limit)
	for i := range c.phases {
		p.phases[i].AddAll(c.phases[i], limit)
	}
}

// complete writes the totals that a step span lacks; it reports whether it wrote any.
func (p *partial) complete(s ptrace.Span, f *spanfacts.Facts) bool {
	attrs := s.Attributes()
	clip := intervals.Unix(f.Start, f.End)
	if f.Elapsed == 0 {
		return false
	}
	before := attrs.Len()
	step := f.StepDuration
	if step == 0 {
		step = f.Elapsed
		attrs.PutDouble(string(semconv.GPUStepDurationKey), step)
	}
	if !f.HasCovered && len(p.covered) > 0 {
		attrs.PutDouble(string(semconv.GPUStepCoveredDurationKey), seconds(p.covered.Within(clip)))
	}
	if !f.HasPhases {
		p.putPhases(s, clip, step)
	}
	if f.FLOPs == 0 && p.flops > 0 {
		attrs.PutDouble(string(semconv.GPUFLOPCountKey), p.flops)
		if f.Precision == "" && p.precision != "" {
			attrs.PutStr(string(semconv.GPUFLOPPrecisionKey), p.precision)
		}
	}
	return attrs.Len() > before
}

func (p *partial) putPhases(s ptrace.Span, clip intervals.Interval, step float64) {
	attrs := s.Attributes()
	var all intervals.Set
	var sum float64
	for i, u := range p.phases {
		if len(u) == 0 {
			continue
		}
		d := seconds(u.Within(clip))
		sum += d
		attrs.PutDouble(string(semconv.GPUStepPhaseDurationKey(phaseNames[i])), d)
		all.AddAll(u, 0) // the phases were limited already
	}
	if len(all) == 0 {
		return
	}
	together := seconds(all.Within(clip))
	attrs.PutDouble(string(semconv.GPUStepOverlapDurationKey), max(0, sum-together))
	attrs.PutDouble(string(semconv.GPUStepOtherDurationKey), max(0, step-together))
}

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }
