// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package series

import "time"

// Clock tells how time passes, for waits: it is not set forward or back with the host's clock. The zero value is ready;
// it is not safe for concurrent use.
type Clock struct {
	last time.Time
	now  int64
}

// At is the time of a reading of the host's clock: unix ns at the first one. From then on it grows by what has passed
// between readings, by the monotonic clock where they have that, and never falls.
func (c *Clock) At(t time.Time) int64 {
	if c.last.IsZero() {
		c.now = t.UnixNano()
	} else {
		c.now += int64(max(0, t.Sub(c.last)))
	}
	c.last = t
	return c.now
}
