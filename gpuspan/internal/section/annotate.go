// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"errors"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
)

// NoStep is the number used outside of steps.
const NoStep = -1

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
