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

// parallelism judges narrow kernels that no finding on efficiency claims.
func (j *judge) parallelism(d *facts.Totals, r *facts.Report, claimed map[string]bool, needed float64) {
	var narrow time.Duration
	var empty float64
	var where []finding.Location
	for _, o := range r.Operators {
		if !claimed[o.Name] && o.Narrow > 0 {
			narrow += o.Narrow
			empty += o.Empty
			where = append(where, finding.Location{Name: o.Kernel, In: o.Name, Time: o.Narrow, Count: o.Kernels})
		}
	}
	where = finding.Longest(where)
	if c := d.Parts[timeline.Computing]; c > 0 && float64(narrow) >= thresholdNarrow*float64(c) {
		j.add(finding.Finding{
			Kind: semconv.GPUFindingKindLowParallelism, Gain: time.Duration(needed * empty), Where: where,
			Certainty: finding.Low,
			Chain: []string{
				"kernels have fewer blocks than the device has multiprocessors",
				fmt.Sprintf("%.3g %% of %s does nothing for %s", 100*empty/float64(narrow), j.device0(), finding.Duration(narrow)),
			},
			Evidence: fmt.Sprintf("%s of %s of computing, most in %s", finding.Duration(narrow), finding.Duration(c),
				finding.Names(where)),
		})
	}
}
