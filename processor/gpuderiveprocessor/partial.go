// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
)

// phaseNames are the categories of sections that are phases of a step.
var phaseNames = [...]string{
	semconv.GPUStepPhaseData, semconv.GPUStepPhaseForward, semconv.GPUStepPhaseBackward,
	semconv.GPUStepPhaseOptimizer, semconv.GPUStepPhaseComm,
}

// phaseOf is the index of a span's phase, -1 for none.
func phaseOf(f *facts) int {
	name := f.category
	if name == "" && f.kind == semconv.GPUOperationTypeCollective {
		name = semconv.GPUStepPhaseComm
	}
	for i, p := range phaseNames {
		if p == name {
			return i
		}
	}
	return -1
}

// partial is the sum of what was seen below one span.
type partial struct {
	flops     float64
	precision string // of flops; empty and mixed where they differ
	mixed     bool
	covered   union
	phases    [len(phaseNames)]union
	born      int64
}

// addSpan makes the sum of a span's children the sum of the span itself: its own statement of FLOPs stands for
// theirs, its interval covers theirs, and so does its phase.
func (p *partial) addSpan(s ptrace.Span, f *facts, limit int) {
	if f.flops > 0 {
		p.flops, p.precision, p.mixed = f.flops, f.precision, false
	}
	v := interval{uint64(s.StartTimestamp()), uint64(s.EndTimestamp())}
	p.covered = p.covered.add(v, limit)
	if i := phaseOf(f); i >= 0 {
		p.phases[i] = p.phases[i].add(v, limit)
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
	for _, v := range c.covered {
		p.covered = p.covered.add(v, limit)
	}
	for i := range c.phases {
		for _, v := range c.phases[i] {
			p.phases[i] = p.phases[i].add(v, limit)
		}
	}
}

// complete puts the totals that a step span lacks; it reports whether it put any.
func (p *partial) complete(s ptrace.Span, f *facts) bool {
	attrs := s.Attributes()
	clip := interval{uint64(s.StartTimestamp()), uint64(s.EndTimestamp())}
	if f.elapsed == 0 {
		return false
	}
	before := attrs.Len()
	step := f.stepDuration
	if step == 0 {
		step = f.elapsed
		attrs.PutDouble(string(semconv.GPUStepDurationKey), step)
	}
	if !f.hasCovered && len(p.covered) > 0 {
		attrs.PutDouble(string(semconv.GPUStepCoveredDurationKey), p.covered.within(clip))
	}
	if !hasPhases(attrs) {
		p.putPhases(s, clip, step)
	}
	if f.flops == 0 && p.flops > 0 {
		attrs.PutDouble(string(semconv.GPUFLOPCountKey), p.flops)
		if f.precision == "" && p.precision != "" {
			attrs.PutStr(string(semconv.GPUFLOPPrecisionKey), p.precision)
		}
	}
	return attrs.Len() > before
}

// hasPhases says whether a step says anything of its phases.
func hasPhases(attrs pcommon.Map) bool {
	for k := range attrs.All() {
		if _, phase := semconv.GPUStepPhaseDurationOf(k); phase || k == string(semconv.GPUStepOverlapDurationKey) || k == string(semconv.GPUStepOtherDurationKey) {
			return true
		}
	}
	return false
}

func (p *partial) putPhases(s ptrace.Span, clip interval, step float64) {
	attrs := s.Attributes()
	var all union
	var sum float64
	for i, u := range p.phases {
		if len(u) == 0 {
			continue
		}
		d := u.within(clip)
		sum += d
		attrs.PutDouble(string(semconv.GPUStepPhaseDurationKey(phaseNames[i])), d)
		for _, v := range u {
			all = all.add(v, len(all)+2) // never joined: the phases were bounded already
		}
	}
	if len(all) == 0 {
		return
	}
	together := all.within(clip)
	attrs.PutDouble(string(semconv.GPUStepOverlapDurationKey), max(0, sum-together))
	attrs.PutDouble(string(semconv.GPUStepOtherDurationKey), max(0, step-together))
}
