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

func (j *judge) idleChain(cause string, n int64) []string {
	return []string{cause, "nothing was launched", fmt.Sprintf("%s idle for %s", j.device0(), finding.Duration(n))}
}

// idle judges idle time: each cause's time is claimed by one finding.
func (j *judge) idle(d *facts.Totals, r *facts.Report) {
	a := j.account
	if a.Idles[timeline.CauseLoader] > 0 {
		v := j.idled(timeline.CauseLoader, semconv.GPUFindingKindLoader, finding.High,
			"the host waited for data in "+finding.Clip(j.loader()))
		v.Evidence = "most " + v.Evidence
		if timeline.Contains(j.loader(), "__iter__", "__init__") {
			v.Remedy = "keep the loader's workers from epoch to epoch (persistent_workers=True)"
		}
		j.add(v)
	}
	j.launching(d)
	j.hostRanges()
	j.afterWaits()
	j.otherThreads()
	j.calls(timeline.CauseCall, semconv.GPUFindingKindSlowRuntimeCalls, "the host was in slow calls of the runtime")
	j.calls(timeline.CauseAllocation, semconv.GPUFindingKindAllocation, "the host allocated and freed memory")
	if a.Idles[timeline.CauseSynchronization] > 0 {
		v := j.idled(timeline.CauseSynchronization, semconv.GPUFindingKindSynchronization, finding.High,
			"the host waited for the device")
		v.Chain[1] = "its queue was empty when the wait ended"
		v.Chain[2] += " from the end of waits to the next work"
		if d != nil && 2*d.FedWaits > a.Idles[timeline.CauseSynchronization] {
			v.Chain[0] = "the host waited for each of its copies to the device"
			v.Evidence += "; " + r.FedBy()
			v.Remedy = "gather small tensors into one copy, from pinned memory with non_blocking=True"
		}
		j.add(v)
	}
	j.held(timeline.CauseCapture, semconv.GPUFindingKindGraphCapture, finding.High, "the host captured graphs")
	j.held(timeline.CausePeer, semconv.GPUFindingKindWaitingForRank, finding.Medium, "the host waited for another rank")
	j.dependency(d)
	j.held(timeline.CauseProfiler, semconv.GPUFindingKindProfilerOverhead, finding.High,
		"the profiler itself delayed the host")
	if n := a.Idles[timeline.CauseUnknown]; n > 0 {
		j.add(finding.Finding{
			Kind: semconv.GPUFindingKindUnexplainedIdle, Gain: time.Duration(n), Certainty: finding.Low,
			Chain:    []string{"the cause is not recorded", fmt.Sprintf("%s idle for %s", j.device0(), finding.Duration(n))},
			Evidence: "no call in the file launched the next activity",
		})
	}
}

// idled returns a finding on all idle time of a cause, with where most of it was.
func (j *judge) idled(c timeline.Cause, kind string, sure finding.Certainty, what string) finding.Finding {
	n, p := j.account.Idles[c], j.account.Locations(j.f, c)
	return finding.Finding{
		Kind: kind, Gain: time.Duration(n), Where: p, Certainty: sure, Chain: j.idleChain(what, n),
		Evidence: "in " + finding.Names(p),
	}
}

// held judges causes that delayed the host, about which only the location is known.
func (j *judge) held(c timeline.Cause, kind string, sure finding.Certainty, what string) {
	if j.account.Idles[c] > 0 {
		j.add(j.idled(c, kind, sure, what))
	}
}
