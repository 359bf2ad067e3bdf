// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// Limits of the search for ranks without a profile.
const (
	largestWorld = 1 << 16
	leastRuns    = semconv.FindingLateRankCollectives // minimum number of a kind of collective, to know its shortest time
)

// joint is one collective, as the ranks with a profile ran it.
type joint struct {
	bytes, ranks int64
	shortest     int64 // ns; of the last rank with a profile, which waits only for ranks without one
	present      int
	absent       []int64
	row          int   // of its step; negative: not compared
	arrived, end int64 // of the last rank with a profile, on aligned clocks
	last         int   // the profile of that rank
	apart        []apart
}

// apart is how long after its collective before a rank arrived, in ns: its own time, unless
// collectives overlap work.
type apart struct {
	profile int32
	ns      float32
}

// joints returns the collectives of the job. Groups that do not list their members are complete if
// the job has as many profiles as ranks; otherwise their members without a profile are the job's
// if the group has its size.
func (a *analysis) joints(all []straggler.Collective, t *stepTable) map[straggler.Identity]*joint {
	present, number := map[int64]bool{}, map[int64]int{}
	for i, x := range a.job {
		present[x.rank], number[x.rank] = true, i
	}
	if a.out.World <= largestWorld {
		for rank := range a.out.World {
			if !present[rank] {
				a.out.Missing = append(a.out.Missing, rank)
			}
		}
	}
	absent := map[string][]int64{}
	sizes := map[string]int64{}
	joints := map[straggler.Identity]*joint{}
	ends := map[int64]int64{} // of the collective before, by rank, on its clock
	for i := range all {
		c := &all[i]
		if i == 0 || all[i-1].Rank != c.Rank {
			ends = map[int64]int64{}
		}
		if a.of(c.Rank).paired[c.Group] { // a stage of a pipeline waits by nature
			ends[c.Rank] = max(ends[c.Rank], c.End)
			continue
		}
		j := joints[c.Identity()]
		if j == nil {
			if _, ok := sizes[c.Group]; !ok {
				sizes[c.Group], absent[c.Group] = a.lacking(c, present)
			}
			j = &joint{
				bytes: c.Bytes, ranks: sizes[c.Group], shortest: c.End - c.Start, absent: absent[c.Group], row: -1,
				apart: make([]apart, 0, min(len(a.job), max(1, int(sizes[c.Group])-len(absent[c.Group])))),
			}
			joints[c.Identity()] = j
		}
		j.present++
		j.shortest = min(j.shortest, c.End-c.Start)
		if row, ok := t.row(number[c.Rank], c); ok && j.row < 0 {
			j.row = row
		}
		if a.ahead != nil {
			if at := c.Start - a.ahead[c.Rank]; at > j.arrived {
				j.arrived, j.last = at, number[c.Rank]
			}
			j.end = max(j.end, c.End-a.ahead[c.Rank])
		}
		if before, ok := ends[c.Rank]; ok {
			j.apart = append(j.apart, apart{int32(number[c.Rank]), float32(c.Start - before)})
		}
		ends[c.Rank] = max(ends[c.Rank], c.End)
	}
	return joints
}

// lacking returns how many ranks run a collective, and which of them have no profile.
func (a *analysis) lacking(c *straggler.Collective, present map[int64]bool) (size int64, absent []int64) {
	members := membersOf(c.Group)
	if len(members) == 0 {
		if size = a.sizeOf(c); size == a.out.World && size > 0 {
			return size, a.out.Missing
		}
		return size, nil
	}
	for _, rank := range members {
		if !present[rank] {
			absent = append(absent, rank)
		}
	}
	return int64(len(members)), absent
}

// sizeOf returns the number of ranks of a group, as its messages state it; 0: not known.
func (a *analysis) sizeOf(c *straggler.Collective) int64 {
	return a.of(c.Rank).messages[sentAs{c.Group, c.Name, c.Bytes}].Ranks
}

// absentLate decides whether ranks without a profile are late: whether even the last rank with one
// waits, step by step, for longer than any rank with a profile is late itself. What a transfer
// takes is known from complete groups or from the shorter runs, never from the shortest one, which
// is noise.
func (a *analysis) absentLate(t *stepTable, sets [][]int, joints map[straggler.Identity]*joint) {
	if len(a.out.Missing) == 0 || len(t.own) == 0 {
		return
	}
	byEnd := a.latestEnds(joints)
	whole, part := map[groupKind][]float64{}, map[groupKind]map[string][]*joint{}
	lacking := map[int64]bool{}
	for k, j := range joints {
		if j.row < 0 || j.ranks < 2 {
			continue
		}
		kind := groupKind{k.Name, j.bytes, j.ranks}
		if len(j.absent) == 0 {
			whole[kind] = append(whole[kind], float64(j.shortest))
			continue
		}
		if part[kind] == nil {
			part[kind] = map[string][]*joint{}
		}
		part[kind][k.Group] = append(part[kind][k.Group], j)
		for _, rank := range j.absent {
			lacking[rank] = true
		}
	}
	margin := straggler.Material * t.length
	total := make([]float64, len(t.own))
	steady, where := true, ""
	for _, kind := range slices.SortedFunc(maps.Keys(part), func(x, y groupKind) int {
		return cmp.Or(cmp.Compare(x.name, y.name), cmp.Compare(x.bytes, y.bytes), cmp.Compare(x.ranks, y.ranks))
	}) {
		base, spread := 0.0, 0.0
		if list := whole[kind]; len(list) >= 2*leastRuns {
			slices.Sort(list)
			base = list[len(list)/2]
			spread = deviation(list, base)
		} else {
			var list []float64
			for _, runs := range part[kind] {
				for _, j := range runs {
					list = append(list, byEnd.excess(j))
				}
			}
			slices.Sort(list)
			// A rank that is late in most steps is not in a few.
			base = list[len(list)/6]
			spread = 2 * (base - list[0]) / 1.35
		}
		bound := max(4*spread, semconv.FindingLateRankAbsentExcess*base, leastExcess)
		most := make([]float64, len(total))
		for _, group := range slices.Sorted(maps.Keys(part[kind])) {
			sums := make([]float64, len(total))
			var runs []float64
			for _, j := range part[kind][group] {
				e := byEnd.excess(j)
				runs = append(runs, e)
				if e-base > bound {
					sums[j.row] += e - base
				}
			}
			for i := range most {
				most[i] = max(most[i], sums[i])
			}
			if slices.Sort(sums); sums[len(sums)/2] > margin {
				slices.Sort(runs)
				m := runs[len(runs)/2]
				steady = steady && deviation(runs, m)/max(1, m) <= max(0.01, spread/max(1, base))*3
				where = cmp.Or(where, a.label(group))
			}
		}
		for i := range total {
			total[i] += most[i]
		}
	}
	unique := a.uniqueDelays(t, joints)
	share := float64(len(lacking)) / float64(len(lacking)+len(a.job))
	hits, sum := 0, 0.0
	inherited, all := a.inherited(t, sets), 0.0
	for i, v := range total {
		all += inherited[i]
		if sum += v; v-margin > max(unique[i], inherited[i]) {
			hits++
		}
	}
	if all/float64(len(total)) > margin { // a neighbor in the pipeline is late: the rest is noise of two ranks
		share = max(share, 0.5)
	}
	mean := sum / float64(len(total))
	if straggler.BinomialTail(len(total), share, hits) > semconv.FindingLateRankAbsentAlpha || mean <= margin {
		return
	}
	a.out.Absent, a.out.AbsentHits, a.out.AbsentSteps = time.Duration(sum), hits, len(total)
	if steady && hits == len(total) && where != "" {
		a.out.AbsentOrLink = where
	}
}

// leastExcess is the smallest time, in ns, by which a transfer is longer than usual.
const leastExcess = 20_000

// uniqueDelays returns by how much one rank with a profile alone delayed each step at most, in ns:
// all of the step, or its collectives one by one.
func (a *analysis) uniqueDelays(t *stepTable, joints map[straggler.Identity]*joint) []float64 {
	sums := make([][]float64, len(t.own))
	for s := range sums {
		sums[s] = make([]float64, len(a.job))
	}
	for _, j := range joints {
		if j.row < 0 || len(j.apart) < 2 {
			continue
		}
		order := slices.SortedFunc(slices.Values(j.apart), func(x, y apart) int { return cmp.Compare(y.ns, x.ns) })
		sums[j.row][order[0].profile] += float64(order[0].ns - order[1].ns)
	}
	out := make([]float64, len(t.own))
	for s, row := range t.own {
		var known []float64
		for _, v := range row {
			if v == v {
				known = append(known, v)
			}
		}
		if slices.Sort(known); len(known) > 1 {
			out[s] = known[len(known)-1] - known[len(known)-2]
		}
		out[s] = max(out[s], slices.Max(sums[s]))
	}
	return out
}

// inherited returns what ranks without a profile may have waited in each step for late stages of
// their own pipelines, in ns. Delays of stages add up.
func (a *analysis) inherited(t *stepTable, sets [][]int) []float64 {
	linked := map[int64]bool{}
	for _, rank := range a.out.Missing {
		linked[rank] = true
	}
	for known := 0; known < len(linked); {
		known = len(linked)
		for _, x := range a.job {
			for group := range x.paired {
				if members := membersOf(group); slices.ContainsFunc(members, func(r int64) bool { return linked[r] }) {
					for _, r := range members {
						linked[r] = true
					}
				}
			}
		}
	}
	out := make([]float64, len(t.own))
	for s, row := range t.own {
		for _, set := range sets {
			for _, i := range set {
				if !linked[a.job[i].rank] {
					continue
				}
				least := math.Inf(1)
				for _, k := range set {
					if k != i && row[k] < least {
						least = row[k]
					}
				}
				if d := row[i] - least; !math.IsNaN(d) && !math.IsInf(d, 0) {
					out[s] += d
				}
			}
		}
	}
	return out
}

// latest is when each rank without a profile left collectives, by the runs of others.
type latest map[int64][]int64

func (a *analysis) latestEnds(joints map[straggler.Identity]*joint) latest {
	l := latest{}
	if a.ahead == nil {
		return l
	}
	for _, j := range joints {
		for _, rank := range j.absent {
			l[rank] = append(l[rank], j.end)
		}
	}
	for _, list := range l {
		slices.Sort(list)
	}
	return l
}

// excess returns for how long even the last rank with a profile ran a collective, without the time
// for which ranks without one are expected to be late: since they left the collective before, they
// have the work of their peers.
func (l latest) excess(j *joint) float64 {
	if len(j.apart) == 0 || len(l) == 0 {
		return float64(j.shortest)
	}
	own := slices.SortedFunc(slices.Values(j.apart), func(x, y apart) int { return cmp.Compare(x.ns, y.ns) })
	if own[0].ns < 0 { // collectives overlap work, which shows nothing
		return float64(j.shortest)
	}
	expected := j.arrived
	for _, rank := range j.absent {
		list := l[rank]
		if i, _ := slices.BinarySearch(list, j.end); i > 0 {
			expected = max(expected, list[i-1]+int64(own[len(own)/2].ns))
		}
	}
	return float64(max(0, j.shortest-max(0, min(expected, j.end)-j.arrived)))
}

// deviation returns the robust standard deviation of values from m.
func deviation(values []float64, m float64) float64 {
	away := make([]float64, 0, len(values))
	for _, v := range values {
		away = append(away, math.Abs(v-m))
	}
	slices.Sort(away)
	return 1.4826 * away[len(away)/2]
}

// worse keeps the worse cause: the latest rank with a profile, a slow group, or the ranks without a
// profile.
func (a *analysis) worse() {
	if a.out.Absent == 0 {
		return
	}
	known := time.Duration(0)
	if len(a.out.Late) > 0 {
		known = a.out.Late[0].Each
	}
	for _, g := range a.out.SlowGroups {
		known = max(known, g.Each*time.Duration(a.out.AbsentSteps))
	}
	if known >= a.out.Absent {
		a.out.Absent, a.out.AbsentOrLink = 0, ""
		return
	}
	a.out.Late, a.out.WaitingShare = nil, 0
}

// membersOf returns the ranks in the identity of a process group, as PyTorch lists them: "3 [0,
// 2]". It is empty if they are not listed or shortened.
func membersOf(group string) (list []int64) {
	_, text, _ := strings.Cut(group, "[")
	text, _, ok := strings.Cut(text, "]")
	if !ok {
		return nil
	}
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(word), 10, 64)
		if err != nil {
			return nil
		}
		list = append(list, n)
	}
	return list
}

// listed names ranks, the first few if there are many.
func listed(ranks []int64) string {
	const most = 4
	var names []string
	for _, rank := range ranks[:min(most, len(ranks))] {
		names = append(names, strconv.FormatInt(rank, 10))
	}
	text := "rank " + strings.Join(names, ", ")
	if len(ranks) > 1 {
		text = "ranks " + strings.Join(names, ", ")
	}
	if more := len(ranks) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// absentFacts returns the facts of the sentence on ranks without a profile.
func (j *Job) absentFacts() finding.Late {
	return finding.Late{
		Who: listed(j.Missing) + " without a profile", Hits: int64(j.AbsentHits), Steps: int64(j.AbsentSteps),
		By: j.Absent / time.Duration(max(1, j.AbsentSteps)),
	}
}

// absentFinding returns the finding on how much time ranks without a profile cost each of the
// others.
func absentFinding(j *Job) finding.Finding {
	late := j.absentFacts()
	late.Each, late.Of = j.Absent, time.Duration(j.End-j.Start)
	v := finding.LateRank(&late, semconv.FindingLateRankThreshold, finding.Medium)
	v.Subject = listed(j.Missing)
	v.Evidence = fmt.Sprintf("%d ranks compared: even the last of them waits at collectives, for longer than any of them "+
		"is late", len(j.Ranks))
	v.Remedy = "profile the missing ranks, too"
	return v
}
