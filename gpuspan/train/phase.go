// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package train

import "github.com/otelgpu/otelgpu/semconv"

// Phase is a part of a step, by name: `forward`. Names become attribute names (gpu.step.phase.duration.<phase>), so
// they come from a small set of lower-case words. Other characters than letters, digits and underscores become
// underscores.
type Phase string

// Phases that most training loops have.
const (
	Data      Phase = semconv.GPUStepPhaseNameData      // waiting for inputs, host-to-device copies
	Forward   Phase = semconv.GPUStepPhaseNameForward   // forward pass
	Backward  Phase = semconv.GPUStepPhaseNameBackward  // backward pass
	Optimizer Phase = semconv.GPUStepPhaseNameOptimizer // weight update
	Comm      Phase = semconv.GPUStepPhaseNameComm      // communication between ranks
)
