// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
)

// Annotator is told of sections and steps on the goroutine that starts and ends them, as profilers' range annotations
// are (package nvtx). Calls must be quick and may come from different goroutines. A panic is reported and costs the
// range.
type Annotator interface {
	// RangeStart begins a range. sc is the span of the step, or of the section where ids are reserved ([WithIDGenerator]);
	// else of the section's parent. It may be invalid: then nothing is known. A section without a parent counts as
	// sampled, for nobody has asked the sampler yet.
	RangeStart(o *Operation, sc trace.SpanContext) uint64
	// RangeEnd ends a range of RangeStart that was not 0.
	RangeEnd(id uint64)
}

// StepAnnotator is an Annotator that is told the number of a step. One that is not gets RangeStart for steps, too.
type StepAnnotator interface {
	// StepStart begins the range of a step; o is the operation of its loop.
	StepStart(o *Operation, sc trace.SpanContext, step int64) uint64
}

// annotator is an Annotator as the engine sees it.
type annotator struct{ a Annotator }

func (t annotator) RangeStart(o *engine.Operation, sc trace.SpanContext) uint64 {
	return t.a.RangeStart((*Operation)(o), sc)
}

func (t annotator) StepStart(o *engine.Operation, sc trace.SpanContext, step int64) uint64 {
	if steps, ok := t.a.(StepAnnotator); ok {
		return steps.StepStart((*Operation)(o), sc, step)
	}
	return t.a.RangeStart((*Operation)(o), sc)
}

func (t annotator) RangeEnd(id uint64) { t.a.RangeEnd(id) }

// Enabled reports whether ranges go anywhere: an annotator may say that no tool listens, and is then never called.
func (t annotator) Enabled() bool {
	e, ok := t.a.(interface{ Enabled() bool })
	return !ok || e.Enabled()
}
