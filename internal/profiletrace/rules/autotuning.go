// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// trials judges autotuning. It subtracts its idle time from the account and returns the part of
// computing time that its finding claims.
func (j *judge) trials(d *facts.Totals) (claimed float64) {
	var computing, idle int64
	var where []finding.Location
	var list []*facts.Trial
	var most int64
	var text string
	for _, op := range slices.Sorted(maps.Keys(d.Trials)) {
		x := d.Trials[op]
		if x.Many.Calls == 0 || !x.Tried && x.Few.Calls < facts.UsualCalls*x.Many.Calls {
			continue
		}
		usual := x.Few.Time * x.Many.Calls / max(1, x.Few.Calls)
		more := max(0, x.Many.Time-usual)
		of := x.Many.Idle.IdleTime()
		computing, idle, list = computing+more, idle+of, append(list, x)
		where = append(where, finding.Location{Name: j.f.Name(op), Time: time.Duration(more + of), Count: x.Many.Kernels})
		if more+of > most {
			most = more + of
			text = fmt.Sprintf("%d calls of %s launch %.3g kernels each", x.Many.Calls, finding.Clip(j.f.Name(op)),
				float64(x.Many.Kernels)/float64(x.Many.Calls))
		}
		if more+of == most && !x.Tried {
			text = fmt.Sprintf("%d of %d calls of %s launch %.3g kernels of different names each, the others %.3g",
				x.Many.Calls, x.Many.Calls+x.Few.Calls, finding.Clip(j.f.Name(op)),
				float64(x.Many.Kernels)/float64(x.Many.Calls), float64(x.Few.Kernels)/float64(x.Few.Calls))
		}
	}
	if float64(computing+idle) < thresholdGain*float64(j.length) {
		return 0
	}
	for _, x := range list {
		for _, s := range x.Many.Idle.Spent {
			of := j.account.Location(s.At)
			of.Time -= s.Time
			of.Count -= s.Count
		}
		for c, n := range x.Many.Idle.Idles {
			j.account.Idles[c] -= n
		}
	}
	where = finding.Longest(where)
	j.add(finding.Finding{
		Kind: semconv.GPUFindingKindAutotuning, Gain: time.Duration(computing + idle), Where: where,
		Certainty: finding.Medium,
		Chain: []string{
			"kernels are tried out (autotuning, as of cudnn.benchmark)", text,
			fmt.Sprintf("%s computed %s more in them and waited %s for calls and launches between", j.device0(),
				finding.Duration(computing), finding.Duration(idle)),
		},
		Evidence: "in " + finding.Names(where),
	})
	return float64(computing) / float64(max(1, d.KernelTime))
}
