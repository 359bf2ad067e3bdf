// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"cmp"
	"slices"
)

// Classes of activities, as bits, so that what runs together is a number.
const (
	classCompute = 1 << iota
	classComm
	classCopy
	stateStarved // not a class: idle for want of launches
)

// activity is one record of a profiler: [start, end) in unix ns.
type activity struct {
	start, end uint64
	launch     uint64 // when the host began to launch it; 0 where unknown
	class      uint8
}

// timeline is one device's activities that are not analysed yet. Everything before settled is.
type timeline struct {
	pending []activity
	settled uint64 // 0 before the first analysis
	newest  uint64 // end of the newest activity
	seen    int64  // wall clock of the last one, unix ns
}

// add takes an activity; false when its whole time has been analysed.
func (t *timeline) add(x activity, now int64) bool {
	if x.end <= t.settled {
		return false
	}
	x.start = max(x.start, t.settled)
	t.pending = append(t.pending, x)
	t.newest, t.seen = max(t.newest, x.end), now
	return true
}

// first is the earliest time of which settle may speak.
func (t *timeline) first() uint64 {
	if t.settled > 0 || len(t.pending) == 0 {
		return t.settled
	}
	first := t.pending[0].start
	for i := range t.pending {
		first = min(first, t.pending[i].start)
	}
	return first
}

// edge is where an activity begins or ends.
type edge struct {
	at     uint64
	launch uint64
	class  uint8
	begin  bool
}

// settle analyses up to a time and returns the nanoseconds spent in each state. Gaps above maxGap are in none. A gap
// that is still open at that time waits for the activity that ends it.
func (t *timeline) settle(to, maxGap uint64) (spent [stateStarved + 1]uint64) {
	if len(t.pending) == 0 || to <= t.settled {
		return spent
	}
	edges := make([]edge, 0, 2*len(t.pending))
	keep := t.pending[:0]
	for _, x := range t.pending {
		if x.start < to {
			edges = append(edges, edge{x.start, x.launch, x.class, true}, edge{min(x.end, to), 0, x.class, false})
		}
		if x.end > to {
			x.start = max(x.start, to)
			keep = append(keep, x)
		}
	}
	if len(edges) == 0 {
		return spent // nothing begins before to
	}
	// Ends before begins, so that touching activities leave no gap of length 0 and do not overlap.
	slices.SortFunc(edges, func(a, b edge) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		switch {
		case a.begin == b.begin:
			return 0
		case a.begin:
			return 1
		}
		return -1
	})
	var running [classCopy + 1]int
	state, at := 0, t.settled
	for _, e := range edges {
		d := e.at - at
		switch {
		case state != 0:
			spent[state] += d
		case t.settled == 0 && at == 0, d > maxGap:
			// before the first activity, or a pause of the profiler
		case e.launch > at:
			spent[stateStarved] += d
		default:
			spent[0] += d
		}
		at = e.at
		if e.begin {
			running[e.class]++
			state |= int(e.class)
		} else if running[e.class]--; running[e.class] == 0 {
			state &^= int(e.class)
		}
	}
	t.settled = at
	t.pending = append([]activity(nil), keep...)
	return spent
}
