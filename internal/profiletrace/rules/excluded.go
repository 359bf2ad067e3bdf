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

// noLoad excludes the time in which the program waited for work from outside: gains are shares of
// the rest. If most of the window was such time, its finding is first, because no other finding
// would gain anything.
func (j *judge) noLoad() []finding.Finding {
	n := j.account.Idles[timeline.CauseNoLoad]
	whole := j.length
	j.length -= n + j.account.Idles[timeline.CauseWarmUp]
	if float64(n) < thresholdNoLoad*float64(whole) || n == 0 {
		return nil
	}
	p := j.account.Locations(j.f, timeline.CauseNoLoad)
	return []finding.Finding{{
		Kind: semconv.GPUFindingKindNoLoad, Subject: j.subject, Certainty: finding.High, Where: p, Weight: time.Duration(n),
		Share: float64(n) / float64(whole), Threshold: thresholdNoLoad,
		Chain: j.idleChain("the program waited for work from outside, as a server for requests", n),
		Evidence: fmt.Sprintf("%.3g %% of the window, in %s; further shares are of the rest, %s",
			100*float64(n)/float64(whole), finding.Names(p), finding.Duration(j.length)),
		Remedy: remedyOf(semconv.GPUFindingKindNoLoad),
	}}
}

// warmUp reports that the window began with a warm-up, whose idle time is excluded from the base of
// shares.
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
