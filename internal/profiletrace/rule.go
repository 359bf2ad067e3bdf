// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import "github.com/otelgpu/otelgpu/internal/profiletrace/timeline"

// rule decides which events become spans at the chosen level, before any limit.
type rule struct {
	level    Level
	names    *Names
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

func (p *Profile) newRule() *rule {
	return &rule{level: p.opts.Detail, names: p.Names, standIn: p.named == 0, runtimes: map[uint32]bool{}}
}

func (r *rule) host(rec *record, depth int) bool {
	switch rec.kind {
	case KindStep:
		return true
	case KindAnnotation:
		return r.level != LevelSteps
	case KindModule:
		return r.level == LevelAuto || r.level.perStep()
	case KindOperator:
		return r.level.perStep() || r.level == LevelAuto && r.standIn && depth <= autoDepth
	case KindOther:
		return r.level.perStep()
	case KindRuntime:
		return r.level == LevelKernels && r.runtime(rec.name)
	}
	return false
}

// runtime reports whether a call launches work or waits for it.
func (r *rule) runtime(name uint32) bool {
	on, ok := r.runtimes[name]
	if !ok {
		s := r.names.Name(name)
		on = launches(s) || timeline.WaitsForDevice(s)
		r.runtimes[name] = on
	}
	return on
}

func (r *rule) device(a *activity) bool {
	switch {
	case r.level == LevelKernels:
		return true
	case r.level != LevelAuto:
		return false
	case a.comm:
		return true
	case a.kind == KindCopy:
		return a.detail.Bytes >= autoCopy
	case a.kind == KindMemset:
		return false
	}
	least := int64(autoKernel)
	if s := a.launch.step; s != nil {
		least = max(least, (s.end-s.start)/autoKernelPart)
	}
	return a.duration >= least
}
