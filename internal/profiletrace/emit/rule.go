// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// rule decides which events become spans at the chosen level, before any limit.
type rule struct {
	level    Level
	names    *event.Names
	standIn  bool // operators of depth 0 and 1 replace annotations, since there are none
	runtimes map[uint32]bool
}

// Thresholds of LevelAuto.
const (
	autoKernel     = 100_000   // ns: the least length of a kernel
	autoKernelPart = 200       // and 1/200 (0.5 %) of its step
	autoCopy       = 1_000_000 // bytes: the least size of a copy
	autoDepth      = 1         // the deepest operator used as an annotation
)

func (p *Emitter) newRule() *rule {
	return &rule{level: p.Detail, names: p.Names, standIn: p.offers.named == 0, runtimes: map[uint32]bool{}}
}

func (r *rule) host(rec *event.Record, depth int) bool {
	switch rec.Kind {
	case event.KindStep:
		return true
	case event.KindAnnotation:
		return r.level != LevelSteps
	case event.KindModule:
		return r.level == LevelAuto || r.level.PerStep()
	case event.KindOperator:
		return r.level.PerStep() || r.level == LevelAuto && r.standIn && depth <= autoDepth
	case event.KindOther:
		return r.level.PerStep()
	case event.KindRuntime:
		return r.level == LevelKernels && r.runtime(rec.Name)
	}
	return false
}

// runtime reports whether a call launches work or waits for it.
func (r *rule) runtime(name uint32) bool {
	on, ok := r.runtimes[name]
	if !ok {
		on = vocabulary.UsesDevice(r.names.Name(name))
		r.runtimes[name] = on
	}
	return on
}

func (r *rule) device(a *link.Activity) bool {
	switch {
	case r.level == LevelKernels:
		return true
	case r.level != LevelAuto:
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
