// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// checkpoint judges host work in functions that save a checkpoint.
func (j *judge) checkpoint() {
	v := finding.New(semconv.GPUFindingKindCheckpoint, finding.High)
	if j.claimHostWork(&v, timeline.SavesCheckpoint) {
		v.Chain = j.idleChain("the host saved a checkpoint", int64(v.Gain))
		j.add(v)
	}
}
