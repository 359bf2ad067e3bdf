// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/straggler"
)

// activities are what a profile ran, in order, for questions about many intervals.
type activities struct {
	computing intervals.Set // kernels that are not collectives
	working   intervals.Set // and copies and memsets

	communicating intervals.Set
	exposed       intervals.Set // communication for which computation waits
	collectives   []straggler.Collective
	byIdentity    []int32 // positions of collectives
	byEnd         []int32
}

func (x *profile) timeline() *activities {
	n := len(x.collectives)
	t := &activities{collectives: x.collectives, byIdentity: make([]int32, n)}
	collectives, ends := make([]intervals.Interval, n), make([]int64, n)
	for i := range x.collectives {
		c := &x.collectives[i]
		t.byIdentity[i], ends[i] = int32(i), c.End
		collectives[i] = intervals.Interval{Start: c.Start, End: c.End}
	}
	slices.SortStableFunc(t.byIdentity, func(i, k int32) int {
		return compare(x.collectives[i].Identity(), x.collectives[k].Identity())
	})
	t.byEnd = slices.Clone(t.byIdentity)
	slices.SortStableFunc(t.byEnd, func(i, k int32) int { return cmp.Compare(x.collectives[i].End, x.collectives[k].End) })
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
	t.expose(ends)
	return t
}

// startDelay is how long after a collective the work that waited for it starts at most, in ns.
const startDelay = 50_000

// expose finds the communication for which computation waits: in a gap of it, until the last
// collective that ends there. One that still runs when the next kernel starts is not what that
// kernel waited for; then the rank itself was late beside its collectives.
func (t *activities) expose(ends []int64) {
	slices.Sort(ends)
	last := int64(-1 << 62) // end of the computation before
	wait := func(gap intervals.Interval) {
		n, _ := slices.BinarySearch(ends, gap.End+startDelay)
		if n == 0 || ends[n-1] <= gap.Start {
			return
		}
		gap.End = min(gap.End, ends[n-1])
		rest := gap.Start
		for _, idle := range t.communicating.Gaps(gap) {
			t.exposed.Add(intervals.Interval{Start: rest, End: idle.Start}, 0)
			rest = idle.End
		}
		t.exposed.Add(intervals.Interval{Start: rest, End: gap.End}, 0)
	}
	for _, v := range t.computing {
		if v.Start > last {
			wait(intervals.Interval{Start: last, End: v.Start})
		}
		last = max(last, v.End)
	}
	wait(intervals.Interval{Start: last, End: 1 << 62})
}

// at returns the run of a collective, the last one if several have its identity, and nil if there
// is none.
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

// during returns how long threads were in each range during the gaps: each moment of a thread
// counts for the innermost range.
func (x *profile) during(gaps intervals.Set) map[string]int64 {
	list := slices.Clone(x.ranges)
	slices.SortStableFunc(list, func(a, b hostRange) int {
		return cmp.Or(cmp.Compare(a.thread, b.thread), cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	times := map[string]int64{}
	var stack []hostRange
	for _, r := range list {
		for len(stack) > 0 && (stack[len(stack)-1].End <= r.Start || stack[len(stack)-1].thread != r.thread) {
			stack = stack[:len(stack)-1]
		}
		times[r.name] += gaps.Within(r.Interval)
		if len(stack) > 0 { // the outer range is not the innermost during this one
			around := stack[len(stack)-1]
			times[around.name] -= gaps.Within(intervals.Interval{Start: r.Start, End: min(r.End, around.End)})
		}
		stack = append(stack, r)
	}
	return times
}
