// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/intervals"
)

// activity determines what a late rank did in its steps, compared with the median of its peers in
// the same steps.
func (a *analysis) activity(late int, t *stepTable, sets [][]int, to *LateRank) {
	i := slices.IndexFunc(sets, func(set []int) bool { return slices.Contains(set, late) })
	if i < 0 {
		return
	}
	members, _, rows := t.compared(sets[i])
	type share [3]int64 // computing, moving, idle
	did := func(i int, v intervals.Interval) share {
		line := a.lines[a.job[i]]
		computing, working := line.computing.Within(v), line.working.Within(v)
		idle := int64(0)
		for _, gap := range line.idle(v) {
			idle += gap.End - gap.Start
		}
		return share{computing, working - computing, idle}
	}
	gaps := make([]intervals.Set, len(members))
	mine := slices.Index(members, late)
	for _, row := range rows {
		var others []share
		for k, m := range members {
			v := t.spans[row][m]
			if gaps[k] = append(gaps[k], a.lines[a.job[m]].idle(v)...); k != mine {
				others = append(others, did(m, v))
			}
		}
		own := did(late, t.spans[row][late])
		for k, more := range []*time.Duration{&to.Computing, &to.Copying, &to.Idle} {
			slices.SortFunc(others, func(a, b share) int { return cmp.Compare(a[k], b[k]) })
			*more += time.Duration(own[k] - others[len(others)/2][k])
		}
	}
	a.cause(late, members, gaps, to)
	if to.Computing > 0 {
		to.Kernels = a.kernels(a.job[late])
	}
}

// comparedHosts bounds the peers with whose ranges a late rank's are compared.
const comparedHosts = 8

// cause names the range in which the host of a late rank was for longer than its peers', while
// their devices were idle, on any thread: not the busiest thread but the one that launches is late.
func (a *analysis) cause(late int, members []int, gaps []intervals.Set, to *LateRank) {
	x := a.job[late]
	mine := x.during(union(gaps[slices.Index(members, late)]))
	var others []map[string]int64
	for k, m := range members {
		if m != late && len(others) < comparedHosts {
			others = append(others, a.job[m].during(union(gaps[k])))
		}
	}
	var in string
	var most int64
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		times := make([]int64, 0, len(others))
		for _, of := range others {
			times = append(times, of[name])
		}
		slices.Sort(times)
		if more := mine[name] - times[len(times)/2]; more > most {
			in, most = name, more
		}
	}
	if x.idle.Time > time.Duration(most) { // frames of call stacks are not among the ranges
		in, most = x.idle.Name, int64(x.idle.Time)
	}
	if 2*time.Duration(most) > to.Idle && to.Idle > 0 {
		to.In, to.InTime = in, time.Duration(most)
	}
}

// kernels reports whether the same kernels take longer on a rank than on the others, in the median,
// or whether it runs more of them. Empty if neither explains much.
func (a *analysis) kernels(late *profile) string {
	// Numbers of kernels within alike of each other count as equal. Both numbers only select the
	// text.
	const alike, slower = 0.1, 1.1
	var same, longer, more, most float64
	name := ""
	for _, k := range slices.Sorted(maps.Keys(late.kernels)) { // in order, as sums of floats depend on it
		mine := late.kernels[k]
		var others []ran
		for _, x := range a.job {
			if x != late {
				others = append(others, x.kernels[k])
			}
		}
		slices.SortFunc(others, func(a, b ran) int { return cmp.Compare(a.time, b.time) })
		typical := others[len(others)/2]
		if d := mine.count - typical.count; typical.count > 0 && math.Abs(float64(d)) <= alike*float64(typical.count) {
			usual := float64(typical.time) / float64(typical.count) * float64(mine.count)
			same += usual
			longer += float64(mine.time) - usual
			continue
		}
		d := float64(mine.time - typical.time)
		more += d
		if d > most {
			most, name = d, k
		}
	}
	switch {
	case longer > more && longer > (slower-1)*same:
		return fmt.Sprintf("the same kernels take %.3g times as long as there: a lower clock, larger inputs, or another "+
			"process on the device", 1+longer/same)
	case more > longer && name != "":
		return fmt.Sprintf("it runs more kernels, most of all %s", name)
	}
	return ""
}
