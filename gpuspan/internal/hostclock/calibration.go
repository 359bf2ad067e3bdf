// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hostclock

import (
	"sync/atomic"
	"time"
)

// A read of the processor's counter takes a third of one of the monotonic clock, which is half of
// what Start and End take. The polling thread compares the two in each pass, and between two passes
// the counter extrapolates:
//
//	monotonic  ──x─────────x─────────x──── passes
//	counter      └── line ─┘└── line ─┘
//
// The line continues where it was, so that time does not step back, and approaches the monotonic
// clock within settle. It is not used longer than its own uncertainty allows: then the monotonic
// clock is read, as by a program that was idle.
type calibration struct {
	line     atomic.Pointer[line] // nil: the counter is not used
	from, to reading              // the baseline of the rate, from one to two rebase long
}

// reading is one moment on both clocks.
type reading struct {
	count uint64
	ns    int64
}

// line gives the time of counts from its start on.
type line struct {
	count uint64
	limit uint64 // counts for which it is good
	ns    int64
	rate  uint64 // ns per count, times 2^32
}

const (
	rebase   = time.Second
	settle   = 100 * time.Millisecond
	farthest = 250 * time.Millisecond // that a line is used, and twice its baseline at most
	shortest = 5 * time.Millisecond   // baseline

	// A larger difference is no drift: the machine slept, or runs on another processor. Then the
	// line steps.
	largestDrift = int64(time.Microsecond)
	slowestRead  = 2 * time.Microsecond // of three, beyond which a comparison is worth nothing
)

func (l *line) at(count uint64) int64 { return l.ns + int64((count-l.count)*l.rate>>32) }

// now returns the time by the counter, and false if it is not known well enough.
func (c *calibration) now() (int64, bool) {
	l := c.line.Load()
	if l == nil {
		return 0, false
	}
	n := counter()
	if n-l.count > l.limit { // also where the counter is behind
		return 0, false
	}
	return l.at(n), true
}

// observe calibrates the counter by a moment on both clocks. It belongs to one goroutine.
func (c *calibration) observe(r reading) {
	switch {
	case c.to == reading{}:
		c.from, c.to = r, r
		return
	case r.ns-c.to.ns >= int64(rebase):
		c.from, c.to = c.to, r
	}
	baseline, counts := r.ns-c.from.ns, r.count-c.from.count
	if baseline < int64(shortest) || r.count <= c.from.count {
		return
	}
	rate := float64(baseline) / float64(counts)
	next := &line{count: r.count, ns: r.ns}
	if old := c.line.Load(); old != nil && r.count-old.count <= old.limit {
		if drift := r.ns - old.at(r.count); max(drift, -drift) <= largestDrift {
			next.ns -= drift
			rate *= 1 + float64(drift)/float64(settle)
		} else { // what it was calibrated by does not hold any more
			c.from, c.to = r, r
			c.line.Store(nil)
			return
		}
	}
	next.rate = uint64(rate * (1 << 32))
	next.limit = uint64(float64(min(int64(farthest), 2*baseline)) / rate)
	c.line.Store(next)
}

// read reads both clocks at one moment, which is the middle of the fastest of three attempts.
func read(monotonic func() int64) (r reading, ok bool) {
	best := int64(slowestRead)
	for range 3 {
		before, a, b := monotonic(), counter(), monotonic()
		if d := b - before; d < best {
			best, r, ok = d, reading{a, before + d/2}, true
		}
	}
	return r, ok
}
