// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
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

// loader returns the name of the range with the longest wait for data.
func (j *judge) loader() string {
	times := map[uint32]int64{}
	for _, s := range j.account.Spent {
		if s.At.Cause == timeline.CauseLoader {
			times[s.At.Name] += s.Time
		}
	}
	return j.f.Name(boundedmap.Largest(times))
}

// compilation judges host work in ranges that compile code.
func (j *judge) compilation() {
	v := finding.New(semconv.GPUFindingKindCompilation, finding.High)
	if j.claimHostWork(&v, timeline.Compiles) {
		v.Chain = j.idleChain("the host compiled, in "+finding.Clip(v.Where[0].Name), int64(v.Gain))
		j.add(v)
	}
}

// checkpoint judges host work in functions that save a checkpoint.
func (j *judge) checkpoint() {
	v := finding.New(semconv.GPUFindingKindCheckpoint, finding.High)
	if j.claimHostWork(&v, timeline.NamesCheckpoint) {
		v.Chain = j.idleChain("the host saved a checkpoint", int64(v.Gain))
		j.add(v)
	}
}

func (j *judge) calls(c timeline.Cause, kind, what string) {
	n := j.account.Idles[c]
	if n == 0 {
		return
	}
	v := j.idled(c, kind, finding.High, what)
	var most, frees, mallocs int64
	for _, s := range j.account.Spent {
		if s.At.Cause != c {
			continue
		}
		most = max(most, s.Most)
		if name := j.f.Name(s.At.Name); !strings.Contains(j.f.Name(s.At.In&^timeline.InnerName), "::") {
			continue
		} else if timeline.Contains(name, "Free", "MemUnmap", "MemRelease") {
			frees += s.Count
		} else {
			mallocs += s.Count
		}
	}
	if c == timeline.CauseAllocation && min(frees, mallocs) >= manyRetries {
		v.Chain[0] = "the framework's allocator released memory and allocated it again, as it does at the limit of the " +
			"device's memory"
		v.Remedy = "smaller batches, activation checkpointing, expandable segments, no empty_cache in the loop"
		if m := j.f.Memory.Highest; m > 0 {
			v.Evidence += fmt.Sprintf("; tensors had %s at most", finding.Held(m))
		}
	}
	if 2*most > n {
		v.Evidence += fmt.Sprintf("; one call took %s, as a first one does", finding.Duration(most))
	}
	j.add(v)
}

// dependency judges launched work that did not start: it waited for another device if that was
// working meanwhile.
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
