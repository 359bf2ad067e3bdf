// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gpucapturereceiver

import (
	"time"

	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver/internal/ring"
)

// recordCost is what a recorded call or activity costs the program at most. Launches that nothing
// else limits took 1.9 µs longer in a window on an H200 and 4.7 µs on an H100 (docs/hardware.md).
const recordCost = 5 * time.Microsecond

// minPushes is the number of spans that a program must push outside a window, and be expected to
// push inside, for their rates to be compared.
const minPushes = 100

// pace spaces the windows of one process, so that they cost at most a share of its time.
type pace struct {
	every   time.Duration
	maxCost float64

	pushes uint64 // at the end of the last window
	since  time.Time
}

// cost is what is known of the cost of a window.
type cost struct {
	begin, end    time.Time // from the request until everything is disabled again
	records       int64     // of the busiest thread or device
	before, after uint64    // spans that the program had pushed at begin and end
}

// next returns the time from the beginning of a window to the next one, and the window's cost. The
// cost is the time for its records, or, if that is more, the time in which the program would have
// pushed the spans that it pushed less in the window than before.
func (p *pace) next(c cost) (time.Duration, time.Duration) {
	length := c.end.Sub(c.begin).Seconds()
	lost := min(float64(c.records)*recordCost.Seconds(), length)
	// Without a record, the program did nothing at all: it is stopped, or idle.
	if c.records > 0 && !p.since.IsZero() && c.before-p.pushes >= minPushes {
		rate := float64(c.before-p.pushes) / c.begin.Sub(p.since).Seconds()
		if expected := rate * length; expected >= minPushes {
			lost = max(lost, length*(1-float64(c.after-c.before)/expected))
		}
	}
	p.pushes, p.since = c.after, c.end
	return max(p.every, seconds(lost/p.maxCost)), seconds(lost)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// records returns the number of records of the busiest thread or device; each lost one counts.
func (w *window) records(lost int64) int64 {
	counts := map[uint64]int64{}
	most := int64(0)
	count := func(records []byte, of func(ring.Record) uint64) {
		for at := 0; at < len(records); at += ring.RecordSize {
			key := of(ring.Record(records[at : at+ring.RecordSize]))
			counts[key]++
			most = max(most, counts[key])
		}
	}
	count(w.calls, func(r ring.Record) uint64 { return uint64(r.Thread()) })
	clear(counts)
	count(w.raw, func(r ring.Record) uint64 { return uint64(r.Device()) })
	return most + lost
}
