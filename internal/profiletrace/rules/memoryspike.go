// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

func (j *judge) memory(m *facts.Memory) {
	if m.Highest <= 0 {
		return
	}
	where := ""
	if m.At != "" {
		where = ", which it reached in " + finding.Clip(m.At)
	}
	j.note(finding.Finding{
		Kind: semconv.GPUFindingKindMemorySpike, Certainty: finding.High,
		Chain:    []string{"allocated memory grows within the window"},
		Evidence: fmt.Sprintf("from %s to %s%s", finding.Held(m.First), finding.Held(m.Highest), where),
	}, float64(m.Highest-m.First)/float64(m.Highest), thresholdSpike)
}
