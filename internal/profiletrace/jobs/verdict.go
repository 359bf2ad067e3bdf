// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// Observation is what steps show that do not suffice for a statement about a rank.
type Observation struct {
	Rank  int64         `json:"rank"`
	Step  int           `json:"step"`    // the step in which the rank was latest, from 1 on
	Late  time.Duration `json:"late_ns"` // then, above the median of its peers
	Steps int           `json:"steps"`   // that were compared
	Peers int           `json:"peers"`   // ranks
	Needs int           `json:"needs"`   // steps that suffice to name a rank that is last in each
	Each  time.Duration `json:"each_ns"` // mean wait of a rank at all collectives
	Last  int           `json:"last"`    // collectives at which the rank arrived last
	Of    int           `json:"of"`      // collectives of the rank
	Hits  int           `json:"hits"`    // steps in which the rank was clearly the last
}

// TooFew reports whether more steps could decide.
func (o *Observation) TooFew() bool { return o.Steps < o.Needs }

// decide sets which ranks are late, or what was observed. arrivals are what each rank cost the
// others.
func (a *analysis) decide(t *stepTable, sets [][]int, joints map[straggler.Identity]*joint) []straggler.LateRank {
	var named []straggler.LateRank
	var most *Observation
	for _, set := range sets {
		members, own, rows := t.compared(set)
		if len(members) < 2 || len(own) == 0 {
			continue
		}
		late := straggler.LateRanks(own, t.length, len(a.job))
		if len(late) == 0 || late[0].P == 0 {
			list := straggler.LateRanksByRound(own, a.rounds(joints, members, rows), t.length, leastExcess, len(a.job))
			if len(list) > 0 {
				late = list
			}
		}
		for _, v := range late {
			v.Rank = members[v.Rank]
			named = append(named, v)
		}
		if o := observe(own, straggler.Material*t.length); most == nil || o.Late > most.Late {
			o.Rank, o.Peers = a.job[members[o.Rank]].rank, len(members)
			o.Needs = straggler.StepsToJudge(len(members), len(a.job))
			most = &o
		}
	}
	slices.SortStableFunc(named, func(x, y straggler.LateRank) int { return cmp.Compare(y.Excess, x.Excess) })
	if len(named) == 0 {
		a.out.Observed = most
	}
	return named
}

// overlapping is the share of a rank's communication from which it overlaps work.
const overlapping = 0.1

// rounds returns the collectives of members only, in the steps that are compared. There are none if
// collectives overlap work, as a delay then shows in all that follow, and in a pipeline, whose
// stages wait between them.
func (a *analysis) rounds(joints map[straggler.Identity]*joint, members, rows []int) (list []straggler.Round) {
	for _, i := range members {
		line := a.lines[a.job[i]]
		if len(a.job[i].paired) > 0 || float64(line.exposed.Length()) < (1-overlapping)*float64(line.communicating.Length()) {
			return nil
		}
	}
	for _, j := range joints {
		r := straggler.Round{Step: slices.Index(rows, j.row)}
		if r.Step < 0 || len(j.apart) < 2 {
			continue
		}
		r.Ranks, r.Own = make([]int, len(j.apart)), make([]float64, len(j.apart))
		for k, x := range j.apart {
			r.Ranks[k], r.Own[k] = slices.Index(members, int(x.profile)), float64(x.ns)
		}
		if !slices.Contains(r.Ranks, -1) {
			list = append(list, r)
		}
	}
	return list
}

// observe returns the greatest lateness in one step.
func observe(own straggler.OwnTimes, margin float64) (o Observation) {
	o.Steps = len(own)
	hits := map[int]int{}
	late := 0.0
	for s, row := range own {
		order := slices.Sorted(slices.Values(row))
		n := len(order)
		for i, v := range row {
			if v-margin > order[max(0, n-2)] {
				hits[i]++
			}
			if d := v - order[(n-1)/2]; d > late {
				late, o.Rank, o.Step = d, int64(i), s+1
			}
		}
	}
	o.Late, o.Hits = time.Duration(late), hits[int(o.Rank)]
	return o
}

// SlowGroup is a process group whose transfers take longer than the transfers of its sisters, or
// than its link explains.
type SlowGroup struct {
	Group      string        `json:"group"`
	Collective string        `json:"collective"`
	Bytes      int64         `json:"bytes"`
	Time       time.Duration `json:"time_ns"`            // of a step's transfers, median
	Sister     time.Duration `json:"sister_ns,omitzero"` // of the fastest other group; 0: there is none
	Each       time.Duration `json:"each_ns"`            // what a step loses
	LinkShare  float64       `json:"link_share,omitzero"`
	Steps      int           `json:"steps"` // compared
}

// groupKind is collectives that take equally long in all groups of equal size.
type groupKind struct {
	name         string
	bytes, ranks int64
}

// slowGroups finds groups that move the same bytes more slowly than their sister groups. A transfer
// lasts from the last arrival to the end, so it is as long as the shortest run of its members, and
// lateness does not change it.
func (a *analysis) slowGroups(t *stepTable, joints map[straggler.Identity]*joint) {
	sums := map[groupKind]map[string]map[int]float64{} // by group and row
	runs := map[groupKind]map[string]int{}
	for k, j := range joints {
		if len(j.absent) > 0 || j.present < 2 || j.row < 0 {
			continue
		}
		kind := groupKind{k.Name, j.bytes, j.ranks}
		if sums[kind] == nil {
			sums[kind], runs[kind] = map[string]map[int]float64{}, map[string]int{}
		}
		if sums[kind][k.Group] == nil {
			sums[kind][k.Group] = map[int]float64{}
		}
		sums[kind][k.Group][j.row] += float64(j.shortest)
		runs[kind][k.Group]++
	}
	for kind, groups := range sums {
		if len(groups) < 2 {
			continue
		}
		fastest := 0.0
		for _, rows := range groups {
			if m := medianOf(rows); fastest == 0 || m < fastest {
				fastest = m
			}
		}
		for group, rows := range groups {
			slow := 0
			for _, v := range rows {
				if v > semconv.FindingLateRankSlowGroup*fastest {
					slow++
				}
			}
			loss := medianOf(rows) - fastest
			if runs[kind][group] >= leastRuns && float64(slow) >= semconv.FindingLateRankSlowSteps*float64(len(rows)) &&
				loss > straggler.Material*t.length {
				a.out.SlowGroups = append(a.out.SlowGroups, SlowGroup{
					Group: a.label(group), Collective: kind.name, Bytes: kind.bytes, Time: time.Duration(medianOf(rows)),
					Sister: time.Duration(fastest), Each: time.Duration(loss), Steps: len(rows),
				})
			}
		}
	}
	if len(a.out.SlowGroups) == 0 {
		a.slowLinks(t)
	}
	slices.SortFunc(a.out.SlowGroups, func(x, y SlowGroup) int {
		return cmp.Or(cmp.Compare(y.Each, x.Each), cmp.Compare(x.Group, y.Group))
	})
	a.out.SlowGroups = a.out.SlowGroups[:min(maxLate, len(a.out.SlowGroups))]
}

// slowLinks finds large messages that take far longer than the link that the device has explains.
func (a *analysis) slowLinks(t *stepTable) {
	const large = semconv.FindingExposedCommunicationLargeMessage
	for i := range a.out.Transfers {
		x := &a.out.Transfers[i]
		if x.LinkRate <= 0 || x.LinkShare >= semconv.FindingExposedCommunicationLink || x.Bytes < large || len(t.own) == 0 ||
			x.Recorded < int(x.Ranks) {
			continue
		}
		loss := float64(x.Time) * (1 - x.LinkShare) / float64(len(t.own))
		if loss > semconv.FindingLateRankThreshold*t.length {
			a.out.SlowGroups = append(a.out.SlowGroups, SlowGroup{
				Group: x.Members, Collective: x.Collective, Bytes: x.Bytes, Time: x.Time / time.Duration(len(t.own)),
				Each: time.Duration(loss), LinkShare: x.LinkShare, Steps: len(t.own),
			})
		}
	}
}

func medianOf(rows map[int]float64) float64 {
	if len(rows) == 0 {
		return 0
	}
	values := slices.Sorted(maps.Values(rows))
	return values[(len(values)-1)/2]
}

// label returns the name of a group for people, with its ranks.
func (a *analysis) label(group string) string {
	for _, x := range a.job {
		if name := x.labels[group]; name != "" {
			if members := membersOf(group); len(members) > 0 {
				return fmt.Sprintf("%s %d", name, members)
			}
			return name
		}
	}
	return group
}

// carried sets by how much ranks were late when their profiles began: that was caused before. Steps
// are compared by the start of the first one that all profiles have.
func (a *analysis) carried(sets [][]int) {
	if a.ahead == nil {
		return
	}
	for _, set := range sets {
		starts := map[int]int64{}
		for _, i := range set {
			x := a.job[i]
			if at, ok := x.stepStarts[1]; ok {
				starts[i] = at - a.ahead[x.rank]
			}
		}
		if len(starts) < len(set) || len(set) < 2 {
			continue
		}
		order := slices.Sorted(maps.Values(starts))
		n := len(order)
		window := float64(a.out.End - a.out.Start)
		late := order[n-1] - order[(n-1)/2]
		// Windows that start steps apart show nothing.
		if float64(late) < notable*window || order[n-1]-order[n-2] < late/2 || 2*late > a.shortestStep(set) {
			continue
		}
		for i, at := range starts {
			if at == order[n-1] {
				a.out.Carried = append(a.out.Carried, Carried{a.job[i].rank, time.Duration(late)})
			}
		}
	}
}

// Carried is a rank that was late already when its profile began.
type Carried struct {
	Rank int64         `json:"rank"`
	Late time.Duration `json:"late_ns"`
}

func (a *analysis) shortestStep(set []int) int64 {
	least := int64(1) << 62
	for _, i := range set {
		if x := a.job[i]; x.steps > 0 {
			least = min(least, int64(x.stepTime/float64(x.steps)*1e9))
		}
	}
	return least
}

// certainty returns how certain it is that a rank is late.
func certainty(v *straggler.LateRank) finding.Certainty {
	switch {
	case v.Sure() && v.Rounds == 0:
		return finding.High
	case v.Likely():
		return finding.Medium
	}
	return finding.Low
}
