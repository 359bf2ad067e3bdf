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
	assert.Equal(t, "graph_capture, GPU 0: the host captured graphs -> GPU 0 idle; saves at most 120ms (12 %) "+
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

// Evidence is dropped first, the remedy last.
func TestAFindingIsShortenedUntilItFits(t *testing.T) {
	f := New("loader", High)
	f.Subject, f.Chain, f.Evidence = "GPU 0", []string{"first", "second", "third"}, "evidence"
	f.Gain, f.Share, f.Threshold, f.Remedy = 2*time.Millisecond, 0.1, 0.05, "remedy"
	for limit, want := range map[int]string{
		200: "loader, GPU 0: first -> second -> third; saves at most 2ms (10 %); evidence (threshold 5 %, certainty high); try: remedy",
		110: "loader, GPU 0: first -> second -> third; saves at most 2ms (10 %); certainty high; try: remedy",
		90:  "loader, GPU 0: first -> third; saves at most 2ms (10 %); certainty high; try: remedy",
		80:  "loader, GPU 0: first -> third; saves at most 2ms (10 %); certainty high",
	} {
		assert.Equal(t, want, f.Fit(func(text string) bool { return len(text) <= limit }))
	}
	assert.Len(t, f.Chain, 3)
}
