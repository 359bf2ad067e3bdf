// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// notable is the minimum share of the window from which lateness is reported, maxLate the maximum number of ranks that
// are named.
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
			Rank: x.rank, File: filepath.Base(x.file), Computing: time.Duration(a.lines[x].computing.Length()),
			Communicating: time.Duration(a.lines[x].communicating.Length()),
		}
		if x.steps > 0 {
			r.Step, r.Own = nanoseconds(x.stepTime/float64(x.steps)), nanoseconds(x.own())
		}
		out.Ranks = append(out.Ranks, r)
	}
	out.Start, out.End = window.Start, window.End
	out.Transfers, out.MoreTransfers = a.transfers()
	least := time.Duration(notable * float64(window.End-window.Start))
	absent := a.missing(all)
	arrivals, matched := a.arrivals(all, absent)
	switch {
	case len(arrivals) > 1:
		if out.Method = ByLength; matched {
			out.Method = ByArrival
		}
		a.absentCaused(arrivals)
		if absent != nil && out.Absent == 0 { // what is inferred about ranks without a profile is not worth reporting
			arrivals, _ = a.arrivals(all, nil)
		}
		a.byCollectives(slices.DeleteFunc(arrivals, func(x straggler.Arrival) bool { return x.Absent }), least)
		if a.stages(all) {
			out.Late, out.WaitingShare, out.Bubbles, out.Absent = nil, 0, a.bubbles(), 0
		} else {
			a.worse()
		}
	case len(all) > 0:
		out.Method = ByCommunication
		a.byCommunication(least)
	default:
		out.Method = ByOwnTime
		a.byOwnTime()
	}
	if out.Says = says(out); doubt {
		out.Says += inStep
	}
	return *out
}

// joinCollectives returns the collectives of all profiles in one list, of which each profile's become a part.
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

// stages reports whether the ranks are balanced stages of a pipeline: each sends to and receives from others in pairs
// only, and computes about as long as they do. Such ranks wait for each other alternately, regardless of the last one.
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

// arrivals returns when ranks arrived: by aligned clocks if most collectives then end together, otherwise by the
// lengths of runs.
func (a *analysis) arrivals(all []straggler.Collective, absent absentRanks) (list []straggler.Arrival, aligned bool) {
	known := straggler.Context{Absent: absent, Computing: a.computing, Stages: a.passed(all)}
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
	if a.out.Method == ByLength {
		a.leastWaited(others)
	}
	late := slices.DeleteFunc(slices.Clone(a.out.Ranks), func(r Rank) bool {
		return r.Last == 0 || r.Caused/others < max(1, least)
	})
	slices.SortStableFunc(late, func(x, y Rank) int { return cmp.Compare(y.Caused, x.Caused) })
	for _, r := range late[:min(maxLate, len(late))] {
		l := LateRank{Rank: r.Rank, Each: r.Caused / others}
		x := a.of(r.Rank)
		var keys []straggler.Identity
		most := 0.0
		for _, c := range byRank[r.Rank].LastAt {
			most = max(most, c.Held)
		}
		for _, c := range byRank[r.Rank].LastAt {
			if c.Held > most/10 { // time of the others that was lost by chance
				keys = append(keys, c.Identity())
			}
		}
		a.at(&l, x, keys)
		a.activity(x, keys, &l)
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

// leastWaited reports ranks that waited less than the median. Without clocks, the rank that arrives last may itself
// have been delayed by another one; the straggler waits nowhere.
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

// byCommunication names the rank that communicates least: it arrives last, and the others wait in collectives.
func (a *analysis) byCommunication(least time.Duration) {
	list := slices.Clone(a.out.Ranks)
	slices.SortStableFunc(list, func(x, y Rank) int { return cmp.Compare(x.Communicating, y.Communicating) })
	if each := list[len(list)/2].Communicating - list[0].Communicating; each >= max(1, least) {
		a.out.Late = []LateRank{{Rank: list[0].Rank, Each: each}}
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
	worst := slices.MaxFunc(verdicts, func(a, b straggler.Result) int { return cmp.Compare(a.Score, b.Score) })
	if worst.Slow {
		a.out.Late = []LateRank{{Rank: worst.Rank, Each: nanoseconds(worst.Median * (worst.Score - 1))}}
	}
}

func (x *profile) own() float64 {
	return straggler.Own(x.stepTime/float64(x.steps), x.exposed/float64(x.steps))
}

func nanoseconds(s float64) time.Duration { return time.Duration(s*1e9 + 0.5) }

// activity determines what a late rank did before the collectives at which it arrived last, compared with the median of
// the others. ahead is how many ns clocks are ahead; nil if unknown.
func (a *analysis) activity(late *profile, lastAt []straggler.Identity, to *LateRank) {
	from := int64(math.MinInt64) // all were recorded
	for _, x := range a.job {
		if a.ahead != nil {
			from = max(from, x.window.Start-a.ahead[x.rank])
		}
	}
	type share [3]int64 // computing, moving, idle
	at := func(x *profile, c *straggler.Collective) (share, intervals.Interval) {
		t, begin := a.lines[x], x.window.Start
		if a.ahead != nil {
			begin = from + a.ahead[x.rank]
		}
		v := t.before(c, begin)
		// Concurrent work counts in full: a rank that waits does more of it the longer it waits.
		whole := intervals.Interval{Start: v.Start, End: c.End}
		computing := t.computing.Within(whole)
		return share{computing, t.working.Within(whole) - computing, v.End - v.Start - t.working.Within(v)}, v
	}
	var gaps intervals.Set
	for _, k := range lastAt {
		mine, v := at(late, a.lines[late].at(k))
		var others []share
		for _, x := range a.job {
			if c := a.lines[x].at(k); c != nil && x != late {
				s, _ := at(x, c)
				others = append(others, s)
			}
		}
		for i, more := range []*time.Duration{&to.Computing, &to.Copying, &to.Idle} {
			slices.SortFunc(others, func(a, b share) int { return cmp.Compare(a[i], b[i]) })
			*more += time.Duration(mine[i] - others[len(others)/2][i])
		}
		gaps = append(gaps, a.lines[late].idle(v)...)
	}
	idle := union(gaps)
	in, inTime := late.longest(idle)
	if late.idle.Time > time.Duration(inTime) { // frames of call stacks have no spans
		in, inTime = late.idle.Name, int64(late.idle.Time)
	}
	if 2*inTime > idle.Length() {
		to.In, to.InTime = in, time.Duration(inTime)
	}
	if to.Computing > 0 {
		to.Kernels = a.kernels(late)
	}
}

// kernels reports whether the same kernels take longer on a rank than on the others, in the median, or whether it runs
// more of them. Empty if neither explains much.
func (a *analysis) kernels(late *profile) string {
	// Numbers of kernels within alike of each other count as equal. Both numbers only select the text.
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
