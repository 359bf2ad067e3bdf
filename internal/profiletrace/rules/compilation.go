// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// compilation judges host work in ranges that compile code.
func (j *judge) compilation() {
	v := finding.New(semconv.GPUFindingKindCompilation, finding.High)
	if j.claimHostWork(&v, timeline.Compiles) {
		v.Chain = j.idleChain("the host compiled, in "+finding.Clip(v.Where[0].Name), int64(v.Gain))
		j.add(v)
	}
}
