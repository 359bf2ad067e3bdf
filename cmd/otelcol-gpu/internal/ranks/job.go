// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/straggler"
)

// notable is the share of the window from which on lateness is worth a word, maxLate how many ranks are named.
const (
	notable = 0.01
	maxLate = 3
)

// Jobs compares the ranks of each job of several.
func (p *Profiles) Jobs() (list []page.Job) {
	for _, job := range p.jobs() {
		a := analysis{job: job, lines: map[*profile]*timeline{}}
		list = append(list, a.run())
	}
	return list
}

// analysis is of one job.
type analysis struct {
	job   []*profile
	lines map[*profile]*timeline
	ahead map[int64]int64 // by how many ns the clock of a rank is ahead; nil: not known
	out   page.Job
}

func (a *analysis) run() page.Job {
	out := &a.out
	out.ID, out.World = a.job[0].job, a.job[0].world
	var all []straggler.Collective
	var window intervals.Interval
	for _, x := range a.job {
		all = append(all, x.collectives...)
		a.lines[x] = x.timeline()
		if x.window.End-x.window.Start > window.End-window.Start {
			window = x.window
		}
		r := page.Rank{
			Rank: x.rank, File: filepath.Base(x.file), Computing: time.Duration(a.lines[x].computing.Length()),
			Communicating: time.Duration(a.lines[x].communicating.Length()),
		}
		if x.steps > 0 {
			r.Step, r.Own = nanoseconds(x.stepTime/float64(x.steps)), nanoseconds(x.own())
		}
		out.Ranks = append(out.Ranks, r)
	}
	out.Start, out.End = window.Start, window.End
	least := time.Duration(notable * float64(window.End-window.Start))
	arrivals, matched := a.arrivals(all)
	switch {
	case len(arrivals) > 1:
		if out.Method = page.ByLength; matched {
			out.Method = page.ByArrival
		}
		a.byCollectives(arrivals, least)
	case len(all) > 0:
		out.Method = page.ByCommunication
		a.byCommunication(least)
	default:
		out.Method = page.ByOwnTime
		a.byOwnTime()
	}
	out.Says = says(out)
	return *out
}

// arrivals are by aligned clocks where most collectives end together then, else by how long runs last: as if all of one
// collective ended together, whoever comes last runs shortest.
func (a *analysis) arrivals(all []straggler.Collective) (list []straggler.Arrival, aligned bool) {
	list = straggler.Arrivals(all)
	same := slices.Clone(all)
	number := map[key]int64{}
	for i := range same {
		k, length := keyOf(same[i]), same[i].End-same[i].Start
		if _, ok := number[k]; !ok {
			number[k] = int64(len(number)) << 40
		}
		same[i].End = number[k]
		same[i].Start = number[k] - length
	}
	byLength := straggler.Arrivals(same)
	if 2*collectives(list) < collectives(byLength) {
		return byLength, false
	}
	a.ahead = map[int64]int64{}
	for _, x := range list {
		a.ahead[x.Rank] = int64(x.Clock * 1e9)
	}
	return list, true
}

func collectives(list []straggler.Arrival) (sum int) {
	for _, a := range list {
		sum += a.Collectives
	}
	return sum
}

// byCollectives names the ranks that the others wait for.
func (a *analysis) byCollectives(list []straggler.Arrival, least time.Duration) {
	others := time.Duration(len(list) - 1)
	byRank := map[int64]straggler.Arrival{}
	for _, x := range list {
		byRank[x.Rank] = x
	}
	for i := range a.out.Ranks {
		r := &a.out.Ranks[i]
		x := byRank[r.Rank]
		r.Collectives, r.Last, r.Waited = x.Collectives, x.Last, nanoseconds(x.Waited)
		r.HeldUp, r.Caused = nanoseconds(x.HeldUp), nanoseconds(x.Caused)
	}
	if a.out.Method == page.ByLength {
		a.leastWaited(others)
	}
	late := slices.DeleteFunc(slices.Clone(a.out.Ranks), func(r page.Rank) bool { return r.Caused/others < max(1, least) })
	slices.SortStableFunc(late, func(x, y page.Rank) int { return cmp.Compare(y.Caused, x.Caused) })
	for _, r := range late[:min(maxLate, len(late))] {
		l := page.LateRank{Rank: r.Rank, Each: r.Caused / others}
		x := a.job[slices.IndexFunc(a.job, func(x *profile) bool { return x.rank == r.Rank })]
		var keys []key
		most := 0.0
		for _, c := range byRank[r.Rank].LastAt {
			most = max(most, c.Held)
		}
		for _, c := range byRank[r.Rank].LastAt {
			if c.Held > most/10 { // the others it lost by chance
				keys = append(keys, keyOf(c.Collective))
			}
		}
		a.at(&l, x, keys)
		a.doing(x, keys, &l)
		a.out.Late = append(a.out.Late, l)
	}
	if len(late) == 0 {
		return
	}
	var waited, communication time.Duration
	for _, r := range a.out.Ranks {
		if r.Rank != late[0].Rank {
			waited += r.Waited
			communication += r.Communicating
		}
	}
	if communication > 0 {
		a.out.WaitingShare = min(1, float64(waited)/float64(communication))
	}
}

// leastWaited blames ranks for what they waited less than the median. Without clocks it is not known who came last only
// because it had been held up elsewhere; but who holds the others up waits nowhere.
func (a *analysis) leastWaited(others time.Duration) {
	var waits []time.Duration
	for _, r := range a.out.Ranks {
		waits = append(waits, r.Waited)
	}
	slices.Sort(waits)
	for i := range a.out.Ranks {
		r := &a.out.Ranks[i]
		r.Caused = max(0, waits[len(waits)/2]-r.Waited) * others
	}
}

// at says at which collectives the rank came last, and when.
func (a *analysis) at(l *page.LateRank, x *profile, keys []key) {
	for i, k := range keys {
		since := time.Duration(a.lines[x].at[k].Start - x.window.Start)
		if i == 0 {
			l.First, l.Last = since, since
		}
		l.First, l.Last = min(l.First, since), max(l.Last, since)
		j := slices.IndexFunc(l.At, func(at page.LateAt) bool { return at.Collective == k.name && at.Group == k.group })
		if j < 0 {
			j = len(l.At)
			l.At = append(l.At, page.LateAt{Collective: k.name, Group: k.group})
		}
		l.At[j].Count++
	}
	slices.SortStableFunc(l.At, func(x, y page.LateAt) int { return cmp.Compare(y.Count, x.Count) })
}

// byCommunication names the rank that communicates least: it comes last, for the others wait in collectives.
func (a *analysis) byCommunication(least time.Duration) {
	list := slices.Clone(a.out.Ranks)
	slices.SortStableFunc(list, func(x, y page.Rank) int { return cmp.Compare(x.Communicating, y.Communicating) })
	if each := list[len(list)/2].Communicating - list[0].Communicating; each >= max(1, least) {
		a.out.Late = []page.LateRank{{Rank: list[0].Rank, Each: each}}
	}
}

// byOwnTime names the rank whose own time in steps is far above the others'.
func (a *analysis) byOwnTime() {
	var list []straggler.Rank
	for _, x := range a.job {
		if x.steps > 0 {
			list = append(list, straggler.Rank{Rank: x.rank, Own: x.own()})
		}
	}
	verdicts, _ := straggler.Compare(list)
	if len(verdicts) < 2 {
		return
	}
	worst := slices.MaxFunc(verdicts, func(a, b straggler.Verdict) int { return cmp.Compare(a.Score, b.Score) })
	if worst.Slow {
		a.out.Late = []page.LateRank{{Rank: worst.Rank, Each: nanoseconds(worst.Median * (worst.Score - 1))}}
	}
}

func (x *profile) own() float64 {
	return straggler.Own(x.stepTime/float64(x.steps), x.exposed/float64(x.steps))
}

func nanoseconds(s float64) time.Duration { return time.Duration(s*1e9 + 0.5) }
