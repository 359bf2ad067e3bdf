// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// memory judges growth to a large part of the device's memory. That activations grow in each
// training step is no problem by itself.
func (j *judge) memory(m *facts.Memory) {
	size := j.f.Peak.MemorySize
	if m.Highest <= 0 || float64(m.Highest) < semconv.FindingMemorySpikeDevice*size {
		return
	}
	where := ""
	if m.At != "" {
		where = ", which it reached in " + finding.Clip(m.At)
	}
	if size > 0 {
		where += fmt.Sprintf(", %.3g %% of the device's memory", 100*float64(m.Highest)/size)
	}
	j.note(finding.Finding{
		Kind: semconv.GPUFindingKindMemorySpike, Certainty: finding.High,
		Chain:    []string{"allocated memory grows within the window"},
		Evidence: fmt.Sprintf("from %s to %s%s", finding.Held(m.First), finding.Held(m.Highest), where),
	}, float64(m.Highest-m.First)/float64(m.Highest), thresholdSpike)
}
