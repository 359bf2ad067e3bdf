// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// phaseNames are the categories of sections that are phases of a step.
var phaseNames = [...]string{
	semconv.GPUStepPhaseData, semconv.GPUStepPhaseForward, semconv.GPUStepPhaseBackward,
	semconv.GPUStepPhaseOptimizer, semconv.GPUStepPhaseComm,
}

// phaseOf is the index of a span's phase, -1 for none.
func phaseOf(f *spanfacts.Facts) int {
	name := f.Category
	if name == "" && f.Kind == spanfacts.Collective {
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
	covered   intervals.Set
	phases    [len(phaseNames)]intervals.Set
}

// addSpan makes the sum of a span's children the sum of the span itself: its own statement of FLOPs stands for
// theirs, its interval covers theirs, and so does its phase.
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

// complete puts the totals that a step span lacks; it reports whether it put any.
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
		all.AddAll(u, 0) // the phases were bounded already
	}
	if len(all) == 0 {
		return
	}
	together := seconds(all.Within(clip))
	attrs.PutDouble(string(semconv.GPUStepOverlapDurationKey), max(0, sum-together))
	attrs.PutDouble(string(semconv.GPUStepOtherDurationKey), max(0, step-together))
}

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }
