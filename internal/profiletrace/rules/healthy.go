// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// healthy reports that there is nothing to gain, unless work was not recorded, a few steps take far
// longer than the others, or most of the window could not be judged.
func (j *judge) healthy(r *facts.Report) []finding.Finding {
	if slices.ContainsFunc(j.list, func(v finding.Finding) bool { return v.Gain > 0 }) {
		return j.sorted()
	}
	for _, kind := range [...]string{
		semconv.GPUFindingKindNotRecorded, semconv.GPUFindingKindUnevenSteps, semconv.GPUFindingKindNotJudged,
	} {
		i := slices.IndexFunc(j.list, func(v finding.Finding) bool { return v.Kind == kind })
		if i >= 0 && (kind != semconv.GPUFindingKindUnevenSteps || j.uneven) {
			return slices.Concat(j.list[i:i+1], j.list[:i], j.list[i+1:])
		}
	}
	v := finding.Finding{
		Kind: semconv.GPUFindingKindHealthy, Subject: j.subject, Threshold: thresholdGain, Certainty: finding.High,
		Chain: []string{fmt.Sprintf("nothing to gain above %.0f %%", 100*thresholdGain)},
	}
	switch e := r.Efficiency; {
	case e.Time == 0:
		v.Certainty = finding.Medium
		v.Evidence = "efficiency is not judged, for no operator's work is known"
		if j.f.Framework == event.PyTorch {
			v.Evidence += " (record_shapes=True)"
		}
	case e.NoPeak != "":
		v.Certainty, v.Evidence = finding.Medium, "efficiency is not judged: "+e.NoPeak
	case e.Coverage < certainCoverage:
		v.Certainty = finding.Medium
		v.Evidence = fmt.Sprintf("efficiency is judged for %.3g %% of the kernel time", 100*e.Coverage)
	default:
		bound := map[string]time.Duration{}
		for _, o := range r.Operators {
			bound[o.Bound] += o.Time
		}
		side := "memory"
		if bound["compute"] > bound[side] {
			side = "compute"
		}
		v.Evidence = fmt.Sprintf("most operators are bound by %s, all work at %.3g %% of the peak", side, 100*e.PeakShare)
	}
	if j.largest.Gain > 0 {
		text := fmt.Sprintf("the largest is %s with %.3g %%", j.largest.Kind, 100*j.largest.Share)
		if v.Evidence != "" {
			text += "; " + v.Evidence
		}
		v.Evidence = text
	}
	return append([]finding.Finding{v}, j.list...)
}
