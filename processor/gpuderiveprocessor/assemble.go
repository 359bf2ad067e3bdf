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
	"github.com/otelgpu/otelgpu/internal/spantree"
	"github.com/otelgpu/otelgpu/semconv"
)

// assembler sums up the descendants of each step. Spans are not delayed: a step has what arrived
// before it or in its own batch.
type assembler struct {
	cfg AssembleConfig

	mu      sync.Mutex
	tree    *spantree.Tree[arrived, *partial]
	f       spanfacts.Facts // the span that is being added
	evicted int64           // sums, since the start of the batch
}

// arrived is what is kept of a span.
type arrived struct {
	flops bool // it states the FLOPs of its descendants
	step  bool
	total *partial // of a step, which may arrive again
}

// spansPerSum is how many spans are remembered for each sum.
const spansPerSum = 8

func newAssembler(cfg AssembleConfig) *assembler {
	a := &assembler{cfg: cfg}
	a.tree = spantree.New(spantree.Rules[arrived, *partial]{
		MaxSums: cfg.MaxSums, MaxSpans: spansPerSum * cfg.MaxSums,
		Lift: a.lift, Dropped: func(**partial) { a.evicted++ },
	})
	return a
}

// assemble reads a batch, whose spans may be in any order. now is unix ns.
func (a *assembler) assemble(td ptrace.Traces, now int64) (assembled, evicted int64) {
	type step struct {
		ptrace.Span
		process uint64
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.evicted = 0
	a.tree.Expire(now - int64(a.cfg.MaxAge))
	var steps []step
	var resource spanfacts.Resource
	var scope spanfacts.Scope
	for _, rs := range td.ResourceSpans().All() {
		resource.Load(rs.Resource().Attributes())
		process := resource.Process()
		for _, ss := range rs.ScopeSpans().All() {
			scope.Load(nil, ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				a.f.Load(s, &scope)
				if a.f.Kind == spanfacts.Step {
					steps = append(steps, step{s, process})
					continue
				}
				at := spantree.Span{Process: process, Key: a.f.Key, Parent: a.f.Parent}
				work := a.f.Kind.Work()
				a.tree.Add(at, arrived{flops: work && a.f.FLOPs > 0}, work, now)
			}
		}
	}
	for _, s := range steps {
		a.f.Load(s.Span, nil)
		if a.total(s.process, now).complete(s.Span, &a.f) {
			assembled++
		}
	}
	return assembled, a.evicted
}

// total returns the sum of the descendants of a step.
func (a *assembler) total(process uint64, now int64) *partial {
	if again, _ := a.tree.Find(process, a.f.Key); again != nil {
		return again.total
	}
	sum, _ := a.tree.Take(process, a.f.Key)
	a.tree.Add(spantree.Span{Process: process, Key: a.f.Key}, arrived{step: true, total: sum}, false, now)
	return sum
}

// lift adds a span to the sum of the span above it: its own FLOPs replace its descendants' FLOPs,
// and its interval covers theirs, as does its phase. Descendants that arrive after their step count
// only if the step arrives again.
func (a *assembler) lift(n *arrived, own bool, below, into **partial) bool {
	if n.step {
		a.evicted++
		into = &n.total
	}
	if *below != nil && n.flops {
		(*below).flops = 0
	}
	switch {
	case *into != nil && *below != nil:
		(*into).merge(*below, a.cfg.MaxIntervals)
	case *below != nil:
		*into = *below
	case *into == nil && own:
		*into = new(partial)
	}
	if own {
		(*into).addSpan(&a.f, a.cfg.MaxIntervals)
	}
	return *into != nil && !n.step
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

// addSpan adds a span without its children.
func (p *partial) addSpan(f *spanfacts.Facts, limit int) {
	p.addFLOPs(f.FLOPs, f.Precision, false)
	v := intervals.Unix(f.Start, f.End)
	p.covered.Add(v, limit)
	if i := phaseOf(f); i >= 0 {
		p.phases[i].Add(v, limit)
	}
}

func (p *partial) addFLOPs(flops float64, precision string, mixed bool) {
	switch {
	case flops <= 0:
		return
	case p.flops == 0:
		p.precision, p.mixed = precision, mixed
	case p.precision != precision:
		p.precision, p.mixed = "", true
	}
	p.flops += flops
}

// merge adds the sum of another child.
func (p *partial) merge(c *partial, limit int) {
	p.addFLOPs(c.flops, c.precision, c.mixed)
	p.covered.AddAll(c.covered, limit)
	for i := range c.phases {
		p.phases[i].AddAll(c.phases[i], limit)
	}
}

// complete writes the totals that a step span lacks; it reports whether it wrote any.
func (p *partial) complete(s ptrace.Span, f *spanfacts.Facts) bool {
	if p == nil || f.Elapsed == 0 {
		return false
	}
	attrs := s.Attributes()
	clip := intervals.Unix(f.Start, f.End)
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
