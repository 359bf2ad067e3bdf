// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/straggler"
)

// activities are what a profile ran, in order, for questions about many intervals.
type activities struct {
	computing intervals.Set // kernels that are not collectives
	working   intervals.Set // and copies and memsets

	communicating intervals.Set
	ends          []int64 // of collectives, in order
	collectives   []straggler.Collective
	byIdentity    []int32 // positions of collectives
}

func (x *profile) timeline() *activities {
	n := len(x.collectives)
	t := &activities{collectives: x.collectives, ends: make([]int64, n), byIdentity: make([]int32, n)}
	collectives := make([]intervals.Interval, n)
	for i := range x.collectives {
		c := &x.collectives[i]
		t.byIdentity[i], t.ends[i] = int32(i), c.End
		collectives[i] = intervals.Interval{Start: c.Start, End: c.End}
	}
	slices.Sort(t.ends)
	slices.SortStableFunc(t.byIdentity, func(i, k int32) int {
		return compare(x.collectives[i].Identity(), x.collectives[k].Identity())
	})
	t.communicating = union(collectives)
	if x.compute == nil && x.moves == nil {
		x.compute, x.moves = x.trimmed.compute.Set(), x.trimmed.moves.Set()
		x.trimmed.compute, x.trimmed.moves = intervals.Compact{}, intervals.Compact{}
	}
	t.computing, t.working = x.compute, x.compute
	if len(x.moves) > 0 {
		t.working = joined(x.compute, x.moves)
	}
	x.compute, x.moves = nil, nil
	return t
}

// at returns the run of a collective, the last one if several have its identity, and nil if there is none.
func (t *activities) at(k straggler.Identity) *straggler.Collective {
	i := sort.Search(len(t.byIdentity), func(i int) bool {
		return compare(t.collectives[t.byIdentity[i]].Identity(), k) > 0
	})
	if i == 0 {
		return nil
	}
	if c := &t.collectives[t.byIdentity[i-1]]; c.Identity() == k {
		return c
	}
	return nil
}

func compare(a, b straggler.Identity) int {
	return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), strings.Compare(a.Group, b.Group), strings.Compare(a.Name, b.Name))
}

// joined joins two sets.
func joined(a, b intervals.Set) (set intervals.Set) {
	for len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && a[0].Start <= b[0].Start {
			set.Add(a[0], 0)
			a = a[1:]
			continue
		}
		set.Add(b[0], 0)
		b = b[1:]
	}
	return set
}

// idle returns the parts of an interval in which the device did nothing.
func (t *activities) idle(v intervals.Interval) (gaps intervals.Set) {
	for _, gap := range t.working.Gaps(v) {
		gaps = append(gaps, t.communicating.Gaps(gap)...)
	}
	return gaps
}

// union joins intervals in any order, at the cost of sorting them.
func union(list []intervals.Interval) (set intervals.Set) {
	slices.SortFunc(list, func(a, b intervals.Interval) int { return cmp.Compare(a.Start, b.Start) })
	for _, v := range list {
		set.Add(v, 0)
	}
	return set
}

// before returns the time in which a rank could have come to a collective: since the one before, or, before its first
// one, since all ranks were recorded. from is the latter, on the rank's clock.
func (t *activities) before(c *straggler.Collective, from int64) intervals.Interval {
	if i, _ := slices.BinarySearch(t.ends, c.Start+1); i > 0 {
		from = max(from, t.ends[i-1])
	}
	return intervals.Interval{Start: min(from, c.Start), End: c.Start}
}

// longest returns the range in which most of the gaps passed on the host's busiest thread: each moment counts for the
// innermost range. The time is 0 if no range is known.
func (x *profile) longest(gaps intervals.Set) (name string, time int64) {
	main := boundedmap.Largest(x.rangesOf)
	list := slices.DeleteFunc(slices.Clone(x.ranges), func(r hostRange) bool { return r.thread != main })
	slices.SortStableFunc(list, func(a, b hostRange) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	times := map[string]int64{}
	var stack []hostRange
	for _, r := range list {
		for len(stack) > 0 && stack[len(stack)-1].End <= r.Start {
			stack = stack[:len(stack)-1]
		}
		times[r.name] += gaps.Within(r.Interval)
		if len(stack) > 0 { // the outer range is not the innermost during this one
			around := stack[len(stack)-1]
			times[around.name] -= gaps.Within(intervals.Interval{Start: r.Start, End: min(r.End, around.End)})
		}
		stack = append(stack, r)
	}
	name = boundedmap.Largest(times)
	return name, times[name]
}
