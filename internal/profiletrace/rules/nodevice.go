// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// NoDevice returns the finding on a profile without activities of a device; nil if it has no host
// time either.
func NoDevice(h *facts.HostOnly, framework event.Framework) *finding.Finding {
	if h == nil || h.Time <= 0 {
		return nil
	}
	v := &finding.Finding{
		Kind: semconv.GPUFindingKindNoDevice, Subject: "host", Certainty: finding.High, Where: h.Where,
		Chain:  []string{"the profile has no activity of a device"},
		Remedy: "if there is a device, record it (PyTorch: ProfilerActivity.CUDA; nsys: --trace=cuda)",
	}
	if h.Partial {
		v.Certainty = finding.Low
		v.Chain[0] = "the part of the profile that could be read has no activity of a device"
		v.Remedy = "convert the whole file: activities of devices often come last"
	}
	v.Remedy = inTermsOf(framework, v.Remedy)
	const enough = 0.05
	if float64(h.Loader) >= enough*float64(h.Time) {
		v.Chain = append(v.Chain, fmt.Sprintf("the host waited for data for %s of %s (%.3g %%)", finding.Duration(h.Loader),
			finding.Duration(h.Time), 100*float64(h.Loader)/float64(h.Time)))
	}
	v.Chain = append(v.Chain, fmt.Sprintf("its busiest CPU thread spent %s in ranges, most of it in %s",
		finding.Duration(h.Time), h.Where[0]))
	v.Evidence = "by the innermost range: " + finding.Names(h.Where)
	if float64(h.Other.Time) >= enough*float64(h.Time) {
		v.Evidence += "; on another thread " + finding.Names([]finding.Location{h.Other})
	}
	return v
}
