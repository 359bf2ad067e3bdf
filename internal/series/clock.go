// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package series

import "time"

// Clock measures how time passes, for timeouts: steps of the host's clock do not affect it. The
// zero value is ready. It is not safe for concurrent use.
type Clock struct {
	last time.Time
	now  int64
}

// At returns the time of a reading of the host's clock: unix ns for the first one. From then on it
// grows by the time between readings, by the monotonic clock if they have it, and never decreases.
func (c *Clock) At(t time.Time) int64 {
	if c.last.IsZero() {
		c.now = t.UnixNano()
	} else {
		c.now += int64(max(0, t.Sub(c.last)))
	}
	c.last = t
	return c.now
}
