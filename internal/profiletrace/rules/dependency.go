// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// dependency judges launched work that did not start: it waited for another device if that was working meanwhile.
func (j *judge) dependency(d *facts.Totals) {
	n := j.account.Idles[timeline.CauseDependency]
	if n == 0 {
		return
	}
	idle := fmt.Sprintf("%s idle for %s", j.device0(), finding.Duration(n))
	v := finding.Finding{
		Kind: semconv.GPUFindingKindDependency, Gain: time.Duration(n), Certainty: finding.Low, Chain: []string{
			"launched work waited for something that the file does not show (an event, a callback, another device)", idle,
		},
		Evidence: fmt.Sprintf("each time for more than %s after the launch", finding.Duration(timeline.LatencyLimit)),
	}
	if j.f.Windows && d != nil && d.Held.Launches >= facts.LeastBatch*d.Held.Gaps {
		v.Certainty = finding.Medium
		v.Chain[0] = "the driver delayed launches (Windows' WDDM submits them to the device in batches)"
		v.Evidence += fmt.Sprintf("; then %.3g launches that had waited began one after the other, in the mean of %d times",
			float64(d.Held.Launches)/float64(d.Held.Gaps), d.Held.Gaps)
		v.Remedy = "ask for the stream's state after launching (cudaStreamQuery hands a batch over), CUDA graphs, hardware-" +
			"accelerated GPU scheduling, the driver mode TCC or MCDM where the device has it, or Linux"
	}
	p := j.account.Locations(j.f, timeline.CauseDependency)
	p = slices.DeleteFunc(p, func(p finding.Location) bool { return p.Name == facts.NoRange })
	if len(p) > 0 && 2*int64(p[0].Time) > n {
		v.Certainty, v.Where, v.Remedy = finding.Medium, p,
			"split batches so that devices work at the same time (a pipeline), or split layers among them"
		v.Chain = []string{"devices work in turn: launched work waited while " + p[0].Name + " worked", idle}
		v.Evidence += "; meanwhile worked " + finding.Names(p)
	}
	j.add(v)
}
