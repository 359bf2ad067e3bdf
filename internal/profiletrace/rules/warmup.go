// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// warmUp reports that the window began with a warm-up, whose idle time is excluded from the base of shares.
func (j *judge) warmUp(d *facts.Totals, r *facts.Report) {
	n := j.account.Idles[timeline.CauseWarmUp]
	if n == 0 {
		return
	}
	p := j.account.Locations(j.f, timeline.CauseWarmUp)
	v := finding.Finding{
		Kind: semconv.GPUFindingKindWarmUp, Where: p, Certainty: finding.High,
		Chain: []string{
			"the window begins with a warm-up: kernels are launched one by one and graphs captured, later they are replayed",
			fmt.Sprintf("%s idle for %s before the first replay", j.device0(), finding.Duration(n)),
		},
		Evidence: fmt.Sprintf("%d launches before the first replay, at most %d between two of %d; shares are of the rest, %s",
			d.Warm.Before, d.Warm.Most, d.Warm.Replays, finding.Duration(j.length)),
	}
	if len(p) > 0 {
		v.Evidence += "; most in " + finding.Names(p)
	}
	j.note(v, float64(n)/float64(r.Window), thresholdGain)
}
