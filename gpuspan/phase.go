// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"sync"

	"github.com/otelgpu/otelgpu/semconv"
)

// Phase is a part of a step, by name: `forward`. Names become attribute names (gpu.step.phase.<phase>.duration), so they come from a
// small set of lower-case words.
type Phase string

// Phases that most training loops have.
const (
	Data      Phase = semconv.GPUStepPhaseData      // waiting for inputs, host-to-device copies
	Forward   Phase = semconv.GPUStepPhaseForward   // forward pass
	Backward  Phase = semconv.GPUStepPhaseBackward  // backward pass
	Optimizer Phase = semconv.GPUStepPhaseOptimizer // weight update
	Comm      Phase = semconv.GPUStepPhaseComm      // communication between ranks
)

// maxPhases bounds the phases of a process, for each is an attribute name.
const maxPhases = 64

// phaseOperations holds the operation of each phase. Phases are values without a Profiler, like the package variables that users
// make with NewOperation, so their operations live here.
var phaseOperations struct {
	sync.RWMutex
	byName map[Phase]*Operation
}

// operation is what times a phase's sections: named and categorised as the phase.
func (ph Phase) operation() *Operation {
	t := &phaseOperations
	t.RLock()
	o := t.byName[ph]
	t.RUnlock()
	if o != nil {
		return o
	}
	t.Lock()
	defer t.Unlock()
	if o = t.byName[ph]; o != nil {
		return o
	}
	name := string(ph)
	if len(t.byName) >= maxPhases {
		name = overflowName
		if o = t.byName[Phase(name)]; o != nil {
			return o
		}
	}
	o = NewOperation(name, Category(name))
	if t.byName == nil {
		t.byName = make(map[Phase]*Operation)
	}
	t.byName[Phase(name)] = o
	return o
}
