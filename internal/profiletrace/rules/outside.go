// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// outside judges what the host did before the first activity of the device, or after the last one:
// outside the window. Only named work counts, because a profiler itself starts and ends there.
func (j *judge) outside(a *facts.StepSpending, effect string) {
	if j.length <= 0 {
		return
	}
	sub := judge{subject: j.subject, f: j.f, length: j.length, account: &a.Spending}
	for _, c := range [...]timeline.Cause{
		timeline.CauseLoader, timeline.CauseCall, timeline.CausePeer, timeline.CauseHost,
	} {
		sub.length += a.Idles[c]
	}
	sub.idle(nil, nil)
	for _, v := range sub.list {
		switch v.Kind {
		case semconv.GPUFindingKindSlowRuntimeCalls:
			v.Chain[0], v.Remedy = "start-up: slow calls of the runtime",
				"once per process: warm up before what is measured, load modules eagerly"
		case semconv.GPUFindingKindLoader, semconv.GPUFindingKindWaitingForRank:
		case semconv.GPUFindingKindHostWork:
			if v.Certainty != finding.High {
				continue
			}
		default:
			continue
		}
		once := v.Kind == semconv.GPUFindingKindLoader || v.Kind == semconv.GPUFindingKindHostWork
		text := fmt.Sprintf(effect, j.device0(), finding.Duration(v.Gain))
		same := func(in finding.Finding) bool { return in.Kind == v.Kind && in.Chain[0] == v.Chain[0] }
		if i := slices.IndexFunc(j.list, same); i >= 0 {
			j.list[i].Evidence += "; besides, " + text
			continue
		}
		if once && j.f.Steps > 1 { // the other steps, which have the same time within the window, do not lose it
			continue
		}
		v.Chain, v.Outside = []string{v.Chain[0], text}, true
		j.list = append(j.list, v)
	}
}
