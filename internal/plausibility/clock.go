// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package plausibility

import (
	"fmt"
	"math"
	"time"
)

const (
	clockWindow = 10 * time.Second
	clockSlack  = 500 * time.Millisecond
	// possibleSlack is the least offset that errors include while it is not sure.
	possibleSlack = 250 * time.Millisecond
	leastAges     = 10 // observations of a window
)

// Clock estimates the offset of a source's clock from the age of its newest sample: of many
// observations, the sample with the least age was just taken. The zero value is ready for use.
type Clock struct {
	since  int64 // start of the window
	least  int64 // least age in it, ns
	n      int   // observations in it
	last   int64 // least age in the window before, 0 at first
	recent [recentAges]int64
	at     int // observations in recent
	offset time.Duration
}

const recentAges = 3

// Add adds an observation: a new sample of a source that samples every interval has the time newest
// at now. Both are Unix nanoseconds. It returns by how much the source's clock is ahead, negative
// if it is behind; 0 if that cannot be distinguished from the time that samples take to arrive.
// judged reports that a window ended. Two windows in a row must agree.
func (c *Clock) Add(now, newest int64, interval time.Duration) (offset time.Duration, judged bool) {
	age := now - newest
	if c.n == 0 {
		c.since, c.least = now, age
	}
	c.least = min(c.least, age)
	c.n++
	c.recent[c.at%recentAges] = age
	c.at++
	if c.n < leastAges || now-c.since < int64(max(clockWindow, leastAges*interval)) {
		return c.offset, false
	}
	least, agrees := time.Duration(c.least), time.Duration(c.least-c.last).Abs() <= clockSlack+interval
	c.n, c.offset, c.last = 0, 0, c.least
	// A queue delays samples, too, but the delay changes while it grows or drains.
	if least.Abs() > clockSlack+interval && agrees {
		c.offset = -least
	}
	return c.offset, true
}

// Possible returns by how much the clock may be off, ahead or behind: as judged last, or as the
// least of the last few ages is, which may also be ages of samples that waited.
func (c *Clock) Possible(interval time.Duration) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, age := range c.recent[:min(c.at, recentAges)] {
		least = min(least, time.Duration(age).Abs())
	}
	if c.at < recentAges || least <= possibleSlack+interval {
		least = 0
	}
	return max(least, c.offset.Abs())
}

// OffsetOf returns the contradiction of an offset.
func OffsetOf(offset, interval time.Duration) Contradiction {
	where := "behind"
	if offset > 0 {
		where = "ahead of"
	}
	return Contradiction{
		Reason: ClockOffset,
		Found:  fmt.Sprintf("the newest sample is %.3g s %s this machine's clock", offset.Abs().Seconds(), where),
		Other:  fmt.Sprintf("samples are taken every %.3g s", interval.Seconds()),
	}
}
