// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/semconv"
)

// warmUp is the part of a window before a program that replays graphs began to: it launches kernel by kernel and
// captures, which says nothing about how it goes on. The zero value is ready.
type warmUp struct {
	account         // until the first replay
	replays   int64 // launches of graphs
	eager     int64 // other launches of kernels since the last replay
	before    int64 // those before the first replay
	most      int64 // between two replays, or after the last
	qualifies bool
}

// Limits: what begins a warm-up is never again done so often in a row.
const (
	leastReplays = 3
	leastEager   = 24
	moreEager    = 3 // times as many launches before the first replay as between two
)

// launched takes a launch of kernels; first is true for the first replay.
func (w *warmUp) launched(graph bool) (first bool) {
	if !graph {
		w.eager++
		return false
	}
	if first = w.replays == 0; first {
		w.before = w.eager
	} else {
		w.most = max(w.most, w.eager)
	}
	w.eager = 0
	w.replays++
	return first
}

// end puts what was before the first replay back into the device's account: idle time as warm-up, where it was one.
// Time without load and of the profiler keeps its cause.
func (w *warmUp) end(d *Device) {
	if w.replays == 0 {
		return
	}
	w.most = max(w.most, w.eager)
	w.qualifies = w.replays >= leastReplays && w.before >= max(leastEager, moreEager*w.most)
	for class, n := range w.parts {
		d.parts[class] += n
	}
	if !w.qualifies {
		d.waited += w.waited
	}
	for name, n := range w.other {
		d.other.add(name, n)
	}
	as := func(c Cause) Cause {
		if w.qualifies && c != CauseNoLoad && c != CauseProfiler {
			return CauseWarmUp
		}
		return c
	}
	for c, n := range w.idles {
		d.idles[as(Cause(c))] += n
	}
	for _, s := range w.spent {
		s.at.cause = as(s.at.cause)
		d.account.put(s)
	}
	if w.qualifies {
		d.trials = trials{} // what was tried out belongs to it
	}
	w.account = account{}
}

// warmUp says that the window began with a warm-up. Its idle time is no part of what shares are of.
func (j *judge) warmUp(d *Device, r *Report) {
	n := j.account.idles[CauseWarmUp]
	if n == 0 {
		return
	}
	p := j.account.places(j.f, CauseWarmUp)
	v := finding.Finding{
		Kind: semconv.GPUFindingKindWarmUp, Where: p, Certainty: finding.High,
		Chain: []string{
			"the window begins with a warm-up: kernels are launched one by one and graphs captured, later they are replayed",
			fmt.Sprintf("%s idle for %s before the first replay", j.device0(), finding.Duration(n)),
		},
		Evidence: fmt.Sprintf("%d launches before the first replay, at most %d between two of %d; shares are of the rest, %s",
			d.warm.before, d.warm.most, d.warm.replays, finding.Duration(j.length)),
		Remedy: "once per process: profile later (schedule with wait and warmup)",
	}
	if len(p) > 0 {
		v.Evidence += "; most in " + Names(p)
	}
	j.note(v, float64(n)/float64(r.Window), thresholdGain)
}
