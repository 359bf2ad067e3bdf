// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// warmUp is the part of a window before a program that replays graphs started to: it launches
// kernel by kernel and captures, which is not representative of the rest. The zero value is ready.
type warmUp struct {
	Spending        // until the first replay
	Replays   int64 // launches of graphs
	eager     int64 // other launches of kernels since the last replay
	Before    int64 // those before the first replay
	Most      int64 // between two replays, or after the last
	qualifies bool
}

// Limits: after the warm-up, launches are never again that frequent in a row.
const (
	leastReplays = semconv.FindingWarmUpReplays
	leastEager   = semconv.FindingWarmUpLaunches
	moreEager    = semconv.FindingWarmUpMore // times as many launches before the first replay as between two
)

// launched takes a launch of kernels; first is true for the first replay.
func (w *warmUp) launched(graph bool) (first bool) {
	if !graph {
		w.eager++
		return false
	}
	if first = w.Replays == 0; first {
		w.Before = w.eager
	} else {
		w.Most = max(w.Most, w.eager)
	}
	w.eager = 0
	w.Replays++
	return first
}

// end returns what was before the first replay to the device's account: idle time as warm-up, if
// there was a warm-up. Time without load and of the profiler keeps its cause.
func (w *warmUp) end(d *Device) {
	if w.Replays == 0 {
		return
	}
	w.Most = max(w.Most, w.eager)
	w.qualifies = w.Replays >= leastReplays && w.Before >= max(leastEager, moreEager*w.Most)
	for class, n := range w.Parts {
		d.Parts[class] += n
	}
	if !w.qualifies {
		d.Waited += w.Waited
	}
	for name, n := range w.Other {
		d.Other.add(name, n)
	}
	as := func(c timeline.Cause) timeline.Cause {
		if w.qualifies && c != timeline.CauseNoLoad && c != timeline.CauseProfiler &&
			c != timeline.CauseNotRecorded {
			return timeline.CauseWarmUp
		}
		return c
	}
	for c, n := range w.Idles {
		d.Idles[as(timeline.Cause(c))] += n
	}
	for _, s := range w.Spent {
		s.At.Cause = as(s.At.Cause)
		d.Spending.Put(s)
	}
	if w.qualifies {
		d.Trials = trials{} // autotuning belongs to it
	}
	w.Spending = Spending{}
}
