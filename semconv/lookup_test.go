// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package semconv_test

import (
	"fmt"
	"testing"

	"github.com/otelgpu/otelgpu/semconv"
)

func ExampleLookupAttribute() {
	a, _ := semconv.LookupAttribute("gpu.step.phase.duration.forward")
	fmt.Println(a.Name, a.Type, a.Unit)
	m, _ := semconv.LookupMetric(semconv.GPUOperationDurationName)
	fmt.Println(m.Name, m.Instrument, m.Unit)
	// Output:
	// gpu.step.phase.duration.<phase> double s
	// gpu.operation.duration histogram s
}

func TestTheDescriptionOfAMetricIsItsFirstSentence(t *testing.T) {
	for name, want := range map[string]string{
		semconv.GPUOperationCountName:    semconv.GPUOperationCountDescription,
		semconv.GPUOperationDurationName: semconv.GPUOperationDurationDescription,
		semconv.GPUStragglerDelayName:    semconv.GPUStragglerDelayDescription,
		semconv.GPUSectionTimeName:       semconv.GPUSectionTimeDescription,
	} {
		if m, _ := semconv.LookupMetric(name); m.Description() != want {
			t.Errorf("%s: %q, want %q", name, m.Description(), want)
		}
	}
}

func TestTheVariableOfATemplateIsReturned(t *testing.T) {
	if phase, ok := semconv.GPUStepPhaseDurationOf(string(semconv.GPUStepPhaseDurationKey("forward"))); !ok ||
		phase != "forward" {
		t.Errorf("phase %q, %v", phase, ok)
	}
	for _, key := range []string{
		"gpu.step.phase.duration", "gpu.step.phase.duration.", "gpu.step.phase.forward",
		"gpu.step.duration", "",
	} {
		if phase, ok := semconv.GPUStepPhaseDurationOf(key); ok {
			t.Errorf("%q is taken for the duration of phase %q", key, phase)
		}
	}
}

func TestTemplateCoversOneLowerSnakeSegment(t *testing.T) {
	if got := string(semconv.GPUStepPhaseDurationKey("forward")); got != "gpu.step.phase.duration.forward" {
		t.Errorf("key %q", got)
	}
	for name, want := range map[string]bool{
		"gpu.step.phase.duration.forward":  true,
		"gpu.step.phase.duration.h2d_copy": true,
		"gpu.step.phase.duration.":         false,
		"gpu.step.phase.duration":          false,
		"gpu.step.phase.duration.Forward":  false,
		"gpu.step.phase.duration.a.b":      false,
		"gpu.step.phase.duration.1st":      false,
		"gpu.nothing":                      false,
		"":                                 false,
	} {
		if _, ok := semconv.LookupAttribute(name); ok != want {
			t.Errorf("LookupAttribute(%q) = %v, want %v", name, ok, want)
		}
	}
}

func TestTableCannotBeChangedThroughAResult(t *testing.T) {
	a, _ := semconv.LookupAttribute("gpu.operation.type")
	a.Members[0] = "changed"
	b, _ := semconv.LookupAttribute("gpu.operation.type")
	if b.Members[0] != "collective" {
		t.Errorf("first member is %q, want collective", b.Members[0])
	}
	semconv.Metrics()[0].Name = "changed"
	if n := semconv.Metrics()[0].Name; n != "gpu.activity.time" {
		t.Errorf("first metric is %q, want gpu.activity.time", n)
	}
}

func TestGoNamesFollowTheNamesOnTheWire(t *testing.T) {
	for want, got := range map[string]string{
		"gpu.operation.type":        string(semconv.GPUOperationTypeKey),
		"gpu.cache.l2.hit_ratio":    string(semconv.GPUCacheL2HitRatioKey),
		"gpu.pci.bdf":               string(semconv.GPUPCIBDFKey),
		"gpu.step.model.flop.count": string(semconv.GPUStepModelFLOPCountKey),
		"hw.id":                     string(semconv.HWIDKey),
		"gpu.pcie.io":               semconv.GPUPCIeIOName,
		"gpu.nvlink.io":             semconv.GPUNVLinkIOName,
		"gpu.operation.flops":       semconv.GPUOperationFLOPSName,
		"section":                   semconv.GPUOperationTypeSection,
		"cuda_event":                semconv.GPUTimingSourceCUDAEvent,
		"s":                         semconv.GPUOperationDurationUnit,
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
