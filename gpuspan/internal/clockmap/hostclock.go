// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import "time"

// hostClock turns readings of the host's clock into a monotonic axis of nanoseconds and back into wall-clock time. A
// step of the wall clock (NTP, an administrator) moves what comes after it and bends neither durations nor fits.
type hostClock struct {
	base time.Time
	unix int64 // of base
	// simulated clocks have no monotonic reading, as time.Now has, and may stand still until somebody waits.
	simulated bool
	steps     [8]wallAge // newest at steps[(n-1)%8]
	n         int
}

// wallAge says that the wall clock was ahead of the axis by offset from then on.
type wallAge struct{ from, offset int64 }

// stepThreshold separates steps of the wall clock from the time between the two reads that make one time.Time.
const stepThreshold = int64(20 * time.Microsecond)

// newHostClock takes the best of a few readings as base: one during which the thread was suspended between its two
// halves would put everything off by as much, below the threshold for ever.
func newHostClock(now func() time.Time) hostClock {
	base := now()
	for range 8 {
		if t := now(); t.UnixNano()-base.UnixNano() > int64(t.Sub(base)) {
			base = t
		}
	}
	return hostClock{base: base, unix: base.UnixNano(), simulated: base == base.Round(0)}
}

// axis is t on the monotonic axis, which starts as unix nanoseconds.
func (c *hostClock) axis(t time.Time) int64 { return c.unix + int64(t.Sub(c.base)) }

// observe learns the wall clock's offset from a few readings. The largest counts: a thread that is suspended between
// the wall read and the monotonic read makes the offset smaller, never larger.
func (c *hostClock) observe(readings []time.Time) {
	if len(readings) == 0 {
		return
	}
	first := c.axis(readings[0])
	offset := readings[0].UnixNano() - first
	for _, t := range readings[1:] {
		offset = max(offset, t.UnixNano()-c.axis(t))
	}
	if d := offset - c.offset(first); d > stepThreshold || d < -stepThreshold {
		c.steps[c.n%len(c.steps)] = wallAge{first, offset}
		c.n++
	}
}

func (c *hostClock) offset(axis int64) int64 {
	for i := c.n - 1; i >= 0 && i >= c.n-len(c.steps); i-- {
		if s := c.steps[i%len(c.steps)]; axis >= s.from {
			return s.offset
		}
	}
	if c.n > len(c.steps) {
		return c.steps[c.n%len(c.steps)].offset // older than every remembered step: the oldest of them
	}
	return 0
}

// wall is the unix time of a point of the axis.
func (c *hostClock) wall(axis int64) int64 { return axis + c.offset(axis) }
