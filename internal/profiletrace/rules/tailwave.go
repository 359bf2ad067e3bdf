// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// tailWave judges kernels with full waves of blocks and a last one that is not, which no finding on efficiency claims.
// The grid alone is no evidence, since blocks may take less time beside fewer others: an operator whose full waves
// would exceed what good kernels reach does not lose that time, and one with an unknown rate is not judged.
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
