// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"fmt"
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

// kindOfRun distinguishes collectives that take equally long if all ranks arrive together.
type kindOfRun struct {
	name         string
	bytes, ranks int64
}

// joint is one collective, as the ranks with a profile ran it.
type joint struct {
	kindOfRun
	shortest int64 // ns
	absent   []int64
}

// absentRanks returns which members of a collective have no profile, and how much later than the last run the last of
// them arrived; see straggler.Context.
type absentRanks = func(straggler.Identity) (members []int64, late int64)

// missing lists ranks of the job without a profile, and finds when they arrived. The last rank to arrive at a
// collective runs it only as long as the transfer takes. If even the shortest run of a collective is longer than the
// shortest one of its kind, the last rank has no profile. It returns nil if all ranks have one.
func (a *analysis) missing(all []straggler.Collective) absentRanks {
	present := map[int64]bool{}
	for _, x := range a.job {
		present[x.rank] = true
	}
	if a.out.World > largestWorld {
		return nil
	}
	for rank := range a.out.World {
		if !present[rank] {
			a.out.Missing = append(a.out.Missing, rank)
		}
	}
	if len(a.out.Missing) == 0 {
		return nil
	}
	joints := map[straggler.Identity]*joint{}
	least := map[kindOfRun]int64{}
	runs := map[kindOfRun]int{}
	for i := range all {
		c := &all[i]
		members := membersOf(c.Group)
		if c.Bytes == 0 || len(members) < 2 {
			continue
		}
		j := joints[c.Identity()]
		if j == nil {
			j = &joint{kindOfRun: kindOfRun{c.Name, c.Bytes, int64(len(members))}, shortest: c.End - c.Start}
			for _, rank := range members {
				if !present[rank] {
					j.absent = append(j.absent, rank)
				}
			}
			joints[c.Identity()] = j
			runs[j.kindOfRun]++
		}
		j.shortest = min(j.shortest, c.End-c.Start)
		if n, ok := least[j.kindOfRun]; !ok || j.shortest < n {
			least[j.kindOfRun] = j.shortest
		}
	}
	return func(c straggler.Identity) (members []int64, late int64) {
		j := joints[c]
		if j == nil || len(j.absent) == 0 {
			return nil, 0
		}
		if runs[j.kindOfRun] >= leastRuns {
			late = j.shortest - least[j.kindOfRun]
		}
		return j.absent, late
	}
}

// absentCaused sets how long each of the others waited because of ranks without a profile, if that is worth reporting,
// and lists these ranks by how much each caused.
func (a *analysis) absentCaused(list []straggler.Arrival) {
	caused := map[int64]float64{}
	var sum float64
	for _, x := range list {
		if x.Absent {
			caused[x.Rank] = x.Caused
			sum += x.Caused
		}
	}
	each := nanoseconds(sum / float64(len(a.job)))
	if float64(each) < max(1, semconv.FindingLateRankThreshold*float64(a.out.End-a.out.Start)) {
		return
	}
	a.out.Absent = each
	slices.SortStableFunc(a.out.Missing, func(x, y int64) int { return cmp.Compare(caused[y], caused[x]) })
}

// worse keeps the worse straggler: the latest rank with a profile, or the ranks without one.
func (a *analysis) worse() {
	if a.out.Absent == 0 {
		return
	}
	if len(a.out.Late) > 0 && a.out.Late[0].Each >= a.out.Absent {
		a.out.Absent = 0
		return
	}
	a.out.Late, a.out.WaitingShare = nil, 0
}

// membersOf returns the ranks in the identity of a process group, as PyTorch lists them: "3 [0, 2]". It is empty if
// they are not listed or shortened.
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

// absentFinding returns the finding on how much time ranks without a profile cost each of the others.
func absentFinding(j *Job) finding.Finding {
	v := finding.LateRank(j.Missing[0], j.Absent, time.Duration(j.End-j.Start),
		semconv.FindingLateRankThreshold, finding.Medium)
	v.Subject = listed(j.Missing)
	v.Chain = []string{
		"all ranks with a profile wait for one without: " + listed(j.Missing),
		fmt.Sprintf("each waits %s for it", FormatTime(j.Absent)),
	}
	v.Evidence = fmt.Sprintf("%d ranks compared: even the last of them waits at collectives, against the shortest of the "+
		"same kind", len(j.Ranks))
	v.Remedy = "profile the missing ranks, too"
	return v
}
