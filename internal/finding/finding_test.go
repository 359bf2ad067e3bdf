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

func TestRatesHaveThreeDigitsAndAPrefix(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0 B/s", 12: "12 B/s", 999.4: "999 B/s", 1500e9: "1.5 TB/s", 12.345e9: "12.3 GB/s", 55_400: "55.4 kB/s",
		999_600: "1 MB/s", 3e24: "3e+06 EB/s",
	} {
		assert.Equal(t, want, Rate(v, "B/s"))
	}
}
