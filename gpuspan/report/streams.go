// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/intervals"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
)

// maxOpen bounds the disjoint intervals that may still grow.
const maxOpen = 1024

// union measures the union of intervals that arrive in any order, in bounded memory: the oldest of
// more than maxOpen disjoint intervals is closed, and what arrives before its end later on counts
// as covered already, so the length is never too large.
type union struct {
	open   intervals.Set[int64]
	closed int64 // length of closed intervals
	mark   int64 // end of the latest closed interval
	marked bool
}

func (u *union) add(start, end int64) {
	if u.marked {
		start = max(start, u.mark)
	}
	u.open.Add(start, end)
	if n := len(u.open.List); n > maxOpen { // half at a time, so that closing costs O(1) an interval
		length, mark := u.open.Take(n / 2)
		u.closed, u.mark, u.marked = u.closed+length, mark, true
	}
}

func (u *union) length() int64 { return u.closed + u.open.Length() }

// A stream does one thing after the other. So if one outermost section is inside another of its
// stream, it is part of that section's work, regardless of the context it was started with, such as
// a section in a phase that is started with the step's context:
//
//	optimizer  ├────────────┤   outermost
//	adamw        ├────────┤     outermost by its context; within optimizer
//
// The other's time includes it. gpu_join and gpu_metrics nest spans by the same rule.
// An operation that runs both alone and inside another has a row for each.
type streams map[streamKey]*timeline

type streamKey struct{ device, stream int }

// timeline is what ran on one stream.
type timeline struct {
	runs    []run
	covered union
}

// run is an outermost timed section that no later one enclosed so far.
type run struct {
	start, end int64 // unix nanoseconds
	node       statistics.Node
	launched   bool // no device timed it, and its end is not its work's
	first      bool // in the process
	precision  string
	work       work
}

// maxRuns limits the runs that are kept of a stream, and so the number of runs inside one section.
// maxStreams limits the streams.
const maxRuns, maxStreams = 1024, 1024

// of returns the timeline of a stream. Streams beyond the limit share one.
func (s streams) of(k streamKey) *timeline {
	if s[k] == nil {
		if len(s) >= maxStreams {
			k = streamKey{}
		}
		if s[k] == nil {
			s[k] = &timeline{}
		}
	}
	return s[k]
}

// busy returns for how long anything ran, summed over the streams.
func (s streams) busy() (t time.Duration) {
	for _, x := range s {
		t += time.Duration(x.covered.length())
	}
	return t
}

// add adds a run, in the order of ends as a profiler reports the runs of a stream, and calls inside
// with each run inside it.
func (s streams) add(k streamKey, r run, inside func(run)) {
	x := s.of(k)
	n := len(x.runs)
	for n > 0 && x.runs[n-1].start >= r.start {
		n--
	}
	kept := x.runs[:n]
	for _, in := range x.runs[n:] {
		if in.end <= r.end {
			inside(in)
		} else {
			kept = append(kept, in)
		}
	}
	if len(kept) == maxRuns {
		kept = slices.Delete(kept, 0, maxRuns/2)
	}
	x.runs = append(kept, r)
}
