// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/straggler"
)

// Path is the critical path of a job across its ranks: the chain of work that its time consists of.
// Where a rank waits in a collective for another one, the path continues on that one. Its parts and
// transfers add up to its length.
type Path struct {
	Length     time.Duration `json:"length_ns"`
	Transfers  time.Duration `json:"transfers_ns"` // from the last rank's arrival to the end
	Collective string        `json:"collective,omitempty"`
	Ranks      []PathRank    `json:"ranks"` // the longest first
}

// PathRank is what the path has of one rank outside of transfers.
type PathRank struct {
	Rank      int64         `json:"rank"`
	Time      time.Duration `json:"time_ns"`
	Computing time.Duration `json:"computing_ns"`
	Copying   time.Duration `json:"copying_ns"`
	Idle      time.Duration `json:"idle_ns"` // the device did nothing; its host was longest in In
	In        string        `json:"in,omitempty"`
	InTime    time.Duration `json:"in_ns,omitzero"`
	gaps      intervals.Set
}

// path walks back from the last work of the job. It needs aligned clocks.
func (a *analysis) path(joints map[straggler.Identity]*joint) *Path {
	if a.ahead == nil {
		return nil
	}
	out := &Path{}
	parts := map[int]*PathRank{}
	transfers := map[string]int64{}
	at, t, first := -1, int64(-1<<62), int64(1)<<62 // profile and time on aligned clocks
	for i, x := range a.job {
		line := a.lines[x]
		for _, set := range []intervals.Set{line.working, line.communicating} {
			if n := len(set); n > 0 {
				first = min(first, set[0].Start-a.ahead[x.rank])
				if end := set[n-1].End - a.ahead[x.rank]; end > t {
					at, t = i, end
				}
			}
		}
	}
	if at < 0 {
		return nil
	}
	end := t
	for t > first {
		x := a.job[at]
		line, ahead := a.lines[x], a.ahead[x.rank]
		c, stop := line.gate(t + ahead)
		var j *joint
		if c != nil {
			j = joints[c.Identity()]
		}
		from := max(first, stop-ahead)
		if c == nil {
			from = first
		}
		a.own(parts, at, intervals.Interval{Start: from + ahead, End: t + ahead})
		if t = from; t <= first {
			break
		}
		last, arrived := at, c.Start-ahead
		if j != nil && j.arrived > arrived && j.present > 1 {
			last, arrived = j.last, j.arrived
		}
		if arrived >= t { // clocks are not exact
			arrived = t - 1
		}
		arrived = max(arrived, first)
		transfers[c.Name] += t - arrived
		at, t = last, arrived
	}
	out.Length = time.Duration(end - first)
	for name, n := range transfers {
		out.Transfers += time.Duration(n)
		if m := transfers[out.Collective]; n > m || n == m && name < out.Collective {
			out.Collective = name
		}
	}
	for _, i := range slices.Sorted(maps.Keys(parts)) {
		p := parts[i]
		slices.Reverse(p.gaps)
		in := a.job[i].during(union(p.gaps))
		for _, name := range slices.Sorted(maps.Keys(in)) {
			if d := time.Duration(in[name]); d > p.InTime {
				p.In, p.InTime = name, d
			}
		}
		if x := &a.job[i].idle; x.Time > p.InTime && 2*x.Time > p.Idle { // frames are not among the ranges
			p.In, p.InTime = x.Name, min(x.Time, p.Idle)
		}
		out.Ranks = append(out.Ranks, *p)
	}
	slices.SortStableFunc(out.Ranks, func(x, y PathRank) int { return cmp.Compare(y.Time, x.Time) })
	return out
}

// gate returns the last collective of a profile that its work waited for until a time, and when
// that wait ended: an exposed one, or the one before on the same queue. Nil if there is none.
func (t *activities) gate(at int64) (*straggler.Collective, int64) {
	if c := t.endedBy(at); c != nil && at-c.End <= startDelay {
		return c, c.End
	}
	n := sort.Search(len(t.exposed), func(i int) bool { return t.exposed[i].End > at })
	if n == 0 {
		return nil, 0
	}
	c := t.endedBy(t.exposed[n-1].End + startDelay)
	if c == nil {
		return nil, 0
	}
	return c, min(c.End, at)
}

// endedBy returns the last collective that had ended at a time; nil if there is none.
func (t *activities) endedBy(at int64) *straggler.Collective {
	n := sort.Search(len(t.byEnd), func(i int) bool { return t.collectives[t.byEnd[i]].End > at })
	if n == 0 {
		return nil
	}
	return &t.collectives[t.byEnd[n-1]]
}

// own adds an interval of a profile, on its clock, to the path.
func (a *analysis) own(parts map[int]*PathRank, i int, v intervals.Interval) {
	if v.Start >= v.End {
		return
	}
	p := parts[i]
	if p == nil {
		p = &PathRank{Rank: a.job[i].rank}
		parts[i] = p
	}
	line := a.lines[a.job[i]]
	computing, working := line.computing.Within(v), line.working.Within(v)
	p.Time += time.Duration(v.End - v.Start)
	p.Computing += time.Duration(computing)
	p.Copying += time.Duration(working - computing)
	for _, gap := range slices.Backward(line.idle(v)) {
		p.Idle += time.Duration(gap.End - gap.Start)
		p.gaps = append(p.gaps, gap)
	}
}

// pathParts is how many ranks the sentence on the path names.
const pathParts = 3

// says describes the path in one sentence.
func (p *Path) says() string {
	if p == nil || p.Length <= 0 {
		return ""
	}
	share := func(d time.Duration) string { return fmt.Sprintf("%.0f %%", 100*float64(d)/float64(p.Length)) }
	var list []string
	rest := p.Length - p.Transfers
	for i := range p.Ranks[:min(pathParts, len(p.Ranks))] {
		r := &p.Ranks[i]
		if rest -= r.Time; 100*r.Time < p.Length {
			rest += r.Time
			break
		}
		text := fmt.Sprintf("rank %d %s (kernels %s", r.Rank, share(r.Time), share(r.Computing))
		if 100*r.Idle >= p.Length {
			text += ", device idle " + share(r.Idle)
			if 2*r.InTime > r.Idle {
				text += ", its host mostly in " + r.In
			}
		}
		list = append(list, text+")")
	}
	if 100*rest >= p.Length {
		list = append(list, "other ranks "+share(rest))
	}
	if 100*p.Transfers >= p.Length {
		list = append(list, "transfers "+share(p.Transfers))
	}
	return pathStart + ": " + strings.Join(list, ", ") + "."
}
