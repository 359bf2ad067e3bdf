// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/semconv"
)

func TestNewTakesThresholdAndRemedyFromTheRegistry(t *testing.T) {
	f := New(semconv.GPUFindingKindGraphCapture, High)
	f.Subject, f.Chain = "GPU 0", []string{"the host captured graphs", "GPU 0 idle"}
	f.Gain, f.Share = 120*time.Millisecond, 0.12
	assert.Equal(t, "graph_capture, GPU 0: the host captured graphs -> GPU 0 idle; up to 120ms (12 %) to gain "+
		"(threshold 5 %, certainty high); try: capture once, before what is measured; pad inputs to the sizes that were captured", f.String())
}

func TestEveryKindOfTheRegistryHasATitle(t *testing.T) {
	for _, k := range semconv.FindingKinds() {
		assert.NotEmpty(t, k.Title, k.Kind)
		assert.Equal(t, k.Threshold > 0, k.Of != "", k.Kind)
	}
	assert.NotEmpty(t, semconv.FindingKinds())
}
