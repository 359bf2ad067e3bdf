// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// noLoad excludes the time in which the program waited for work from outside: gains are shares of the rest. If most of
// the window was such time, its finding is first, because no other finding would gain anything.
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
