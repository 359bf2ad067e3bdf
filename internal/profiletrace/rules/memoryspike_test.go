// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

// An H200 has 141 GB: the activations of a training step that fill a tenth of them are no problem.
func TestGrowthWithMuchMemoryLeftIsNoFinding(t *testing.T) {
	for _, c := range []struct {
		model   string
		highest int64
		found   bool
	}{
		{"NVIDIA H200", 12 << 30, false},
		{"NVIDIA H200", 70_500_000_000 - 1, false},
		{"NVIDIA H200", 70_500_000_000, true},
		{"", 12 << 30, true}, // the size is not known
	} {
		j := &judge{f: &facts.Context{Peak: facts.PeakOf(c.model)}, length: int64(time.Second)}
		j.memory(&facts.Memory{First: 1 << 30, Highest: c.highest})
		assert.Equal(t, c.found, len(j.list) == 1, "%s, %d", c.model, c.highest)
	}
}
