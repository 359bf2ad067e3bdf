// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

func (j *judge) launching(d *facts.Totals) {
	a := j.account
	n := a.Idles[timeline.CauseDispatch] + a.Idles[timeline.CauseLatency]
	if n == 0 {
		return
	}
	p := a.Locations(j.f, timeline.CauseDispatch)
	v := finding.Finding{
		Kind: semconv.GPUFindingKindLaunchBound, Gain: time.Duration(n), Where: p, Certainty: finding.High,
		Chain: []string{
			"the host launches kernels more slowly than the device runs them", "the queue runs empty between kernels",
			fmt.Sprintf("%s idle for %s, %s of it until launched work begins", j.device0(), finding.Duration(n),
				finding.Duration(a.Idles[timeline.CauseLatency])),
		},
	}
	var text []string
	if d != nil && d.Kernels > 0 {
		text = append(text, fmt.Sprintf("%d of %s are shorter than %s", d.Short,
			finding.Count(d.Kernels, "kernel", "kernels"),
			finding.Duration(facts.ShortKernel)))
	}
	if len(p) > 0 {
		text = append(text, "most in "+finding.Names(p))
	}
	if float64(a.Recorded) >= semconv.FindingLaunchBoundRecorded*float64(n) {
		v.Certainty, v.Weight = finding.Medium, time.Duration(max(1, n-a.Recorded))
		text = append(text, fmt.Sprintf("the profiler itself costs the host about %s of it, by an estimate: compare with "+
			"steps without it", finding.Duration(a.Recorded)))
	}
	v.Evidence = strings.Join(text, "; ")
	graphs := d != nil && 2*d.OfGraphs > n
	if graphs {
		v.Chain[0], v.Chain[1] = "the host launches graphs slower than the device works them off",
			"the queue runs empty between graphs"
		v.Remedy = "fewer and larger graphs, no work of the host between replays"
	}
	if a.Idles[timeline.CauseLatency] > a.Idles[timeline.CauseDispatch] {
		v.Chain[0], v.Chain[1] = "short kernels", "the gaps between queued kernels add up"
		if d != nil && 2*d.Short < d.Kernels {
			v.Chain[0] = "many kernels"
		}
		if graphs {
			v.Chain[0], v.Remedy = v.Chain[0]+", launched by graphs already", "fused operators, larger batches"
		}
	}
	j.add(v)
}
