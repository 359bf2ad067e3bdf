// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hostclock

import (
	"sync/atomic"
	"time"
)

// Clock is the clock of the goroutines that start and end sections: nanoseconds since the profiler
// started, monotonic. They are converted to wall-clock times when spans end, with the wall clock's
// offset at that time, so that a step of the wall clock does not change durations.
type Clock struct {
	base   time.Time
	unix   int64            // of base
	read   func() time.Time // nil: the process's own clock
	ahead  func() int64     // wall clock minus (unix + elapsed), read now; nil where read is not
	Offset atomic.Int64     // the same, as currently assumed

	counted calibration // of the processor's counter, which is faster to read; unused where read is not nil
}

// stepThreshold separates steps of the wall clock from the time between the wall and monotonic
// reads of one time.Now.
const stepThreshold = int64(20 * time.Microsecond)

// New reads now once to find out which clock it is: a time with a monotonic reading is from
// time.Now.
func New(now func() time.Time) *Clock {
	c := &Clock{base: now()}
	if c.base == c.base.Round(0) {
		c.read = now
	}
	c.unix = c.base.UnixNano()
	if c.read == nil {
		c.ahead = func() int64 {
			t := time.Now()
			return t.UnixNano() - c.unix - int64(t.Sub(c.base))
		}
	}
	return c
}

// Now returns time since the profiler started: by the processor's counter, or by time.Since, which
// costs half of time.Now, because it reads one clock instead of two.
func (c *Clock) Now() int64 {
	if c.read != nil {
		return c.ask()
	}
	if ns, ok := c.counted.now(); ok {
		return ns
	}
	return c.monotonic()
}

func (c *Clock) monotonic() int64 { return int64(time.Since(c.base)) }

// ask reads a clock other than the process's own. If it panics it is replaced by that.
func (c *Clock) ask() (ns int64) {
	defer func() {
		if recover() != nil {
			ns = int64(time.Since(c.base))
		}
	}()
	return int64(c.read().Sub(c.base))
}

// Time returns a point of the axis with its monotonic reading.
func (c *Clock) Time(ns int64) time.Time { return c.base.Add(time.Duration(ns)) }

// Wall returns a point of the axis in unix nanoseconds.
func (c *Clock) Wall(ns int64) int64 { return c.At(ns, c.Offset.Load()) }

// At returns the wall time for an offset that was read before. All times of a section use one
// offset, so that a step of the wall clock does not distort their differences.
func (c *Clock) At(ns, offset int64) int64 { return c.unix + ns + offset }

// Observe calibrates the processor's counter, and detects steps of the wall clock. A step is
// confirmed by a second reading: on a busy machine, one time.Now in tens of thousands is
// interrupted between its two clocks, even for milliseconds.
func (c *Clock) Observe() {
	if c.ahead == nil {
		return
	}
	if steady() {
		if r, ok := read(c.monotonic); ok {
			c.counted.observe(r)
		}
	}
	if offset := c.ahead(); stepped(c.Offset.Load(), offset) && !stepped(offset, c.ahead()) {
		c.Offset.Store(offset)
	}
}

func stepped(from, to int64) bool { return max(to-from, from-to) > stepThreshold }
