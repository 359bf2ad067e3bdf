// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// notable is the minimum share of the window from which lateness is reported, maxLate the maximum
// number of ranks that are named.
const (
	notable = semconv.FindingLateRankLiveThreshold
	maxLate = 3
)

// Jobs compares the ranks of each job of several.
func (p *Profiles) Jobs() (list []Job) {
	for _, job := range p.jobs() {
		a := analysis{job: job, lines: map[*profile]*activities{}}
		list = append(list, a.run())
	}
	return list
}

// analysis is the analysis of one job.
type analysis struct {
	job   []*profile
	lines map[*profile]*activities
	ahead map[int64]int64 // ns by which the clock of a rank is ahead; nil: unknown
	out   Job
}

// inStep describes a job whose ranks cannot be distinguished from another job's.
const inStep = " Profiles of several jobs of this size fit together, for they ran in step, and nothing in them " +
	"names their job: a rank may be another job's (name it: gpu.job.id in the profiles, or a folder for each job)."

func (a *analysis) run() Job {
	out := &a.out
	out.ID, out.World = a.job[0].job, a.job[0].world
	doubt := slices.ContainsFunc(a.job, func(x *profile) bool { return x.doubt })
	all := joinCollectives(a.job)
	var window intervals.Interval
	for _, x := range a.job {
		a.lines[x] = x.timeline()
		if x.window.End-x.window.Start > window.End-window.Start {
			window = x.window
		}
		r := Rank{
			Rank: x.rank, File: filepath.Base(x.file), path: x.file, devices: x.devices,
			Computing:     time.Duration(a.lines[x].computing.Length()),
			Communicating: time.Duration(a.lines[x].communicating.Length()),
		}
		if x.steps > 0 {
			r.Step, r.Own = nanoseconds(x.stepTime/float64(x.steps)), nanoseconds(x.own())
		}
		out.Ranks = append(out.Ranks, r)
		if x.unrecorded {
			out.Unrecorded = append(out.Unrecorded, x.rank)
		}
	}
	out.Start, out.End = window.Start, window.End
	out.Transfers, out.MoreTransfers = a.transfers()
	arrivals, matched := a.arrivals(all)
	switch {
	case len(arrivals) > 1:
		if out.Method = ByLength; matched {
			out.Method = ByArrival
		}
		a.byCollectives(arrivals)
		table := a.table()
		joints := a.joints(all, table)
		a.slowGroups(table, joints)
		if a.stages(all) {
			out.Bubbles = a.bubbles()
			break
		}
		out.Path = a.path(joints)
		sets := a.peers(all)
		a.name(a.decide(table, sets, joints), table, sets, arrivals)
		a.carried(sets)
		a.absentLate(table, sets, joints)
		a.worse()
	case len(all) > 0:
		out.Method = ByCommunication
		a.byOwnTime(func(x *profile) float64 {
			return float64(window.End-window.Start-a.lines[x].communicating.Length()) / 1e9
		})
	default:
		out.Method = ByOwnTime
		a.byOwnTime((*profile).own)
	}
	if out.Says = says(out); doubt {
		out.Says += inStep
	}
	if text := out.Path.says(); text != "" {
		out.Says = strings.TrimSuffix(out.Says, ".") + ". " + text
	}
	return *out
}

// joinCollectives returns the collectives of all profiles in one list, of which each profile's
// become a part.
func joinCollectives(job []*profile) []straggler.Collective {
	n := 0
	for _, x := range job {
		n += len(x.collectives)
	}
	all := make([]straggler.Collective, 0, n)
	for _, x := range job {
		from := len(all)
		all = append(all, x.collectives...)
		x.collectives = all[from:len(all):len(all)]
	}
	return all
}

// even is the factor by which the stages of a balanced pipeline may differ in computing time.
const even = semconv.FindingLateRankPipeline

// stages reports whether the ranks are balanced stages of a pipeline: each sends to and receives
// from others in pairs only, and computes about as long as they do. Such ranks wait for each other
// alternately, regardless of the last one.
func (a *analysis) stages(all []straggler.Collective) bool {
	ranks := map[string][]int64{} // by group
	for i := range all {
		c := &all[i]
		if name := strings.ToLower(c.Name); !strings.Contains(name, "send") && !strings.Contains(name, "recv") {
			return false
		}
		if of := ranks[c.Group]; !slices.Contains(of, c.Rank) {
			if len(of) == 2 {
				return false
			}
			ranks[c.Group] = append(of, c.Rank)
		}
	}
	computing := func(x, y Rank) int { return cmp.Compare(x.Computing, y.Computing) }
	least, most := slices.MinFunc(a.out.Ranks, computing), slices.MaxFunc(a.out.Ranks, computing)
	return len(a.job) > 2 && float64(most.Computing) <= even*float64(least.Computing)
}

// bubbles returns the mean share of the job's time in which a rank does not compute.
func (a *analysis) bubbles() float64 {
	var sum float64
	for _, r := range a.out.Ranks {
		sum += float64(r.Computing)
	}
	return max(0, 1-sum/float64(len(a.out.Ranks))/float64(max(1, a.out.End-a.out.Start)))
}

// arrivals returns when ranks arrived: by aligned clocks if most collectives then end together,
// otherwise by the lengths of runs.
func (a *analysis) arrivals(all []straggler.Collective) (list []straggler.Arrival, aligned bool) {
	known := straggler.Context{Computing: a.computing, Stages: a.passed(all)}
	list = straggler.Arrivals(all, known)
	byLength := straggler.ArrivalsByLength(all, known)
	if 2*collectives(list) < collectives(byLength) {
		return byLength, false
	}
	a.ahead = map[int64]int64{}
	for _, x := range list {
		a.ahead[x.Rank] = int64(x.Clock * 1e9)
	}
	return list, true
}

// computing returns for how long a rank computed within an interval on its clock.
func (a *analysis) computing(rank int64, v intervals.Interval) int64 {
	return a.lines[a.of(rank)].computing.Within(v)
}

// of returns the profile of a rank, which must have one.
func (a *analysis) of(rank int64) *profile {
	i, _ := slices.BinarySearchFunc(a.job, rank, func(x *profile, rank int64) int { return cmp.Compare(x.rank, rank) })
	return a.job[i]
}

func collectives(list []straggler.Arrival) (sum int) {
	for _, a := range list {
		sum += a.Collectives
	}
	return sum
}

// byCollectives sets how long each rank waited at collectives, and for whom.
func (a *analysis) byCollectives(list []straggler.Arrival) {
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
	if a.out.Method == ByLength {
		a.leastWaited(time.Duration(len(list) - 1))
	}
}

// name reports the ranks that are late, with what they cost and what they did.
func (a *analysis) name(named []straggler.LateRank, t *stepTable, sets [][]int, list []straggler.Arrival) {
	rows := map[int64]*Rank{}
	var waits time.Duration
	for i := range a.out.Ranks {
		rows[a.out.Ranks[i].Rank] = &a.out.Ranks[i]
		waits += a.out.Ranks[i].Waited
	}
	others := time.Duration(len(a.out.Ranks) - 1)
	if o := a.out.Observed; o != nil {
		o.Each, o.Last, o.Of = waits/(others+1), rows[o.Rank].Last, rows[o.Rank].Collectives
	}
	for i := range named[:min(maxLate, len(named))] {
		v := &named[i]
		x := a.job[v.Rank]
		l := LateRank{
			Rank: x.rank, Each: rows[x.rank].Caused / others, Excess: time.Duration(v.Excess), Hits: v.Hits, Steps: v.Steps,
			InHits: time.Duration(v.InHits),
			Rounds: v.Rounds, RoundHits: v.RoundHits, P: v.P, Certainty: certainty(v),
		}
		l.Each = max(l.Each, 1)
		var keys []straggler.Identity
		if k := slices.IndexFunc(list, func(y straggler.Arrival) bool { return y.Rank == x.rank }); k >= 0 {
			keys = costly(list[k].LastAt)
		}
		a.at(&l, x, keys)
		a.activity(v.Rank, t, sets, &l)
		a.out.Late = append(a.out.Late, l)
	}
	if len(a.out.Late) == 0 {
		return
	}
	var waited, communication time.Duration
	for _, r := range a.out.Ranks {
		if r.Rank != a.out.Late[0].Rank {
			waited += r.Waited
			communication += r.Communicating
		}
	}
	if communication > 0 {
		a.out.WaitingShare = min(1, float64(waited)/float64(communication))
	}
}

// costly returns the collectives at which a rank was last, without those at which the others waited
// little, by chance.
func costly(list []straggler.Lateness) (keys []straggler.Identity) {
	most := 0.0
	for _, c := range list {
		most = max(most, c.Held)
	}
	for _, c := range list {
		if c.Held > most/10 {
			keys = append(keys, c.Identity())
		}
	}
	return keys
}

// leastWaited reports ranks that waited less than the median. Without clocks, the rank that arrives
// last may itself have been delayed by another one; the straggler waits nowhere.
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

// at records the collectives at which the rank arrived last, and when.
func (a *analysis) at(l *LateRank, x *profile, keys []straggler.Identity) {
	for i, k := range keys {
		group := cmp.Or(x.labels[k.Group], k.Group)
		since := time.Duration(a.lines[x].at(k).Start - x.window.Start)
		if i == 0 {
			l.First, l.Last = since, since
		}
		l.First, l.Last = min(l.First, since), max(l.Last, since)
		j := slices.IndexFunc(l.At, func(at LateAt) bool { return at.Collective == k.Name && at.Group == group })
		if j < 0 {
			j = len(l.At)
			l.At = append(l.At, LateAt{Collective: k.Name, Group: group})
		}
		l.At[j].Count++
	}
	slices.SortStableFunc(l.At, func(x, y LateAt) int { return cmp.Compare(y.Count, x.Count) })
}

// byOwnTime names the rank whose own time is far above the others': in steps or, without matching
// collectives, all time in which it does not communicate.
func (a *analysis) byOwnTime(own func(*profile) float64) {
	var list []straggler.Rank
	for _, x := range a.job {
		if v := own(x); v > 0 {
			list = append(list, straggler.Rank{Rank: x.rank, Own: v})
		}
	}
	results, _ := straggler.Compare(list)
	if len(results) < 2 {
		return
	}
	worst := slices.MaxFunc(results, func(a, b straggler.Result) int { return cmp.Compare(a.Score, b.Score) })
	if worst.Slow {
		each := nanoseconds(worst.Median * (worst.Score - 1))
		a.out.Late = []LateRank{{Rank: worst.Rank, Each: each, Excess: each, Certainty: finding.Low}}
	}
}

// own returns a mean step without exposed communication, in s; 0: there are no steps.
func (x *profile) own() float64 {
	if x.steps == 0 {
		return 0
	}
	return straggler.Own(x.stepTime/float64(x.steps), x.exposed/float64(x.steps))
}

func nanoseconds(s float64) time.Duration { return time.Duration(s*1e9 + 0.5) }
