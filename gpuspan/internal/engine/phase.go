// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"

	"github.com/otelgpu/otelgpu/semconv"
)

// Phase is train.Phase.
type Phase string

// Phases that the report tells apart.
const (
	Data Phase = semconv.GPUStepPhaseNameData
	Comm Phase = semconv.GPUStepPhaseNameComm
)

// maxPhases bounds the phases of a profiler, for each is an attribute name.
const maxPhases = 64

// overflowPhase is what further ones are timed as.
const overflowPhase Phase = "overflow"

// phase finds a phase's operation, and the phase under which its time counts.
func (p *Profiler) phase(ph Phase) (Phase, *Operation) {
	o := p.phases.operation(phaseName(string(ph)))
	if o == p.phases.overflow {
		return overflowPhase, o
	}
	return Phase(o.cfg.Info.Name), o
}

// newPhaseOperation makes what times a phase's sections: named and categorised as the phase.
func newPhaseOperation(name string) *Operation {
	return NewOperation(name, func(c *OperationConfig) { c.Info.Category = name })
}

// phaseName makes a part of an attribute name: lower case, digits and underscores.
func phaseName(name string) string {
	if name == "" {
		return "unnamed"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, name)
}
