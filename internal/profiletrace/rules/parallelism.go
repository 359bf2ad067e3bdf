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
	if c := d.Parts[timeline.Computing]; c > 0 && empty >= thresholdNarrow*float64(c) {
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

// tailWave judges kernels with full waves of blocks and a last one that is not, which no finding on
// efficiency claims. The grid alone is no evidence, since blocks may take less time beside fewer
// others: an operator whose full waves would exceed what good kernels reach does not lose that
// time, and one with an unknown rate is not judged.
func (j *judge) tailWave(r *facts.Report, claimed map[string]bool, needed float64) {
	var gain, tailed float64
	var where []finding.Location
	for _, o := range r.Operators {
		if claimed[o.Name] || o.Tailed <= 0 || o.PeakShare <= 0 {
			continue
		}
		part := o.Tail / float64(o.Tailed)
		if o.PeakShare > reachable*(1-part) {
			continue
		}
		time := needed * float64(o.Tailed)
		gain, tailed = gain+part*time, tailed+time
		where = append(where, finding.Location{Name: o.Kernel, In: o.WithShapes(), Time: o.Tailed, Count: o.Kernels})
	}
	if gain == 0 {
		return
	}
	where = finding.Longest(where)
	v := finding.New(semconv.GPUFindingKindTailWave, finding.Low)
	v.Gain, v.Where = time.Duration(gain), where
	v.Chain = []string{
		"the last wave of blocks is not full: some multiprocessors run one block more than the others",
		fmt.Sprintf("%.3g %% of %s is empty for %s, if all blocks take equally long", 100*gain/tailed, j.device0(),
			finding.Duration(time.Duration(tailed))),
	}
	v.Evidence = "most in " + finding.Names(where)
	j.add(v)
}
