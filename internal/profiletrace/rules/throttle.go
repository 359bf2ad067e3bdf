// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// slow judges kernels that became slower. It returns the part of computing time that its finding
// claims.
func (j *judge) slow(d *facts.Totals) (claimed float64) {
	s := d.Slowdown
	if s == nil {
		return 0
	}
	gain := time.Duration(s.Part * float64(d.Parts[timeline.Computing]))
	v := finding.Finding{
		Kind: semconv.GPUFindingKindThrottle, Gain: gain, Certainty: finding.Low,
		Chain: []string{
			"the device became slower (clocks lowered for power or heat, or another user of it)",
			fmt.Sprintf("the same kernels took %.3g times as long from %s to %s of the window", s.Factor,
				finding.Duration(s.From-d.First),
				finding.Duration(s.To-d.First)),
			fmt.Sprintf("%s computed %s longer", j.device0(), finding.Duration(gain)),
		},
		Evidence: fmt.Sprintf("%d of %d kinds of kernel, each compared with itself", s.Kinds, s.All),
		Remedy: "look at clocks, power and throttle reasons of the device (nvidia-smi -q -d PERFORMANCE, the gpu " +
			"receiver), lock clocks, fix cooling or the power limit",
	}
	if !s.Shaped {
		v.Evidence += "; their shapes are not known, and longer inputs look the same"
	}
	if s.Slow > 0 {
		if drop := s.Slow / s.Fast; drop < 1/(1+(facts.Slower-1)/2) {
			v.Certainty, v.Chain[0] = finding.High, "the clocks of the device were lowered (power or heat)"
			v.Evidence += fmt.Sprintf("; the file's clock was at %.3g %% of what it was otherwise", 100*drop)
		} else {
			v.Chain[0] = "the device became slower, though its clock did not: another process used it, or its memory"
			v.Evidence += fmt.Sprintf("; the file's clock was at %.3g %%", 100*drop)
		}
	}
	if float64(gain) >= thresholdGain*float64(j.length) {
		claimed = s.Part
	}
	j.add(v)
	return claimed
}
