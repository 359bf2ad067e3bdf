// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import "github.com/otelgpu/otelgpu/internal/profiletrace/timeline"

// Batches counts launches that a device started together, after a gap in which they had been
// waiting.
type Batches struct {
	Gaps, Launches int64
	until          int64 // end of the last such gap
}

// LeastBatch is the minimum mean number of launches delayed by such a gap if they arrive in
// batches.
const LeastBatch = 2

// idle adds idle time that the activity ended.
func (h *Batches) idle(a *timeline.Activity, s timeline.Share) {
	if s.Cause == timeline.CauseDependency {
		h.Gaps, h.until = h.Gaps+1, a.Start
	}
}

// launched adds the launch of an activity.
func (h *Batches) launched(l *timeline.Launch) {
	if h.until != 0 && l.Known && l.End <= h.until {
		h.Launches++
	}
}
