// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// Thresholds of LevelAuto.
const (
	autoKernel     = 100_000   // ns: the least length of a kernel
	autoKernelPart = 200       // and 1/200 (0.5 %) of its step
	autoCopy       = 1_000_000 // bytes: the least size of a copy
	autoDepth      = 1         // the deepest operator used as an annotation
)

// The rule decides which events become spans at the chosen level, before any limit.

// wantsRange reports whether a range of the host becomes a span.
func (p *Emitter) wantsRange(rec *event.Record, depth int) bool {
	switch rec.Kind {
	case event.KindStep:
		return true
	case event.KindAnnotation:
		return p.Detail != LevelSteps
	case event.KindModule:
		return p.Detail == LevelAuto || p.Detail.PerStep()
	case event.KindOperator:
		return p.Detail.PerStep() || p.Detail == LevelAuto && p.standIn && depth <= autoDepth
	case event.KindOther:
		return p.Detail.PerStep()
	case event.KindRuntime:
		return p.Detail == LevelKernels && p.wantsCall(rec.Name)
	}
	return false
}

// wantsCall reports whether a call launches work or waits for it.
func (p *Emitter) wantsCall(name uint32) bool {
	on, ok := p.calls[name]
	if !ok {
		on = vocabulary.UsesDevice(p.Names.Name(name))
		p.calls[name] = on
	}
	return on
}

// wants reports whether an activity becomes a span.
func (p *Emitter) wants(a *link.Activity) bool {
	switch {
	case p.Detail == LevelKernels:
		return true
	case p.Detail != LevelAuto:
		return false
	case a.Communicates:
		return true
	case a.Kind == event.KindCopy:
		return a.Detail.Bytes >= autoCopy
	case a.Kind == event.KindMemset:
		return false
	}
	least := int64(autoKernel)
	if s := a.Launch.Step; s != nil {
		least = max(least, (s.End-s.Start)/autoKernelPart)
	}
	return a.Duration >= least
}
