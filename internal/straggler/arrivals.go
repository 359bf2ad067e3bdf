// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"slices"

	"github.com/otelgpu/otelgpu/internal/intervals"
)

// Collective is one rank's run of a collective: [Start, End) in ns on the rank's clock.
type Collective struct {
	Rank int64
	// Group identifies the process group within the job: a name that several groups have merges
	// them.
	Group string
	Name  string // distinguishes collectives of a group, such as all_reduce; runs of different names never match
	// Sequence is the number of the collective in its group, as the source states it, or as
	// [Number] gives it.
	Sequence   int64
	Stated     bool  // Sequence is from the source; [Number] and [Renumber] leave it
	Step       int32 // number of the rank's step that launched it, from 1 on; 0: not known
	Start, End int64
	Bytes      int64 // that it moves; 0: not stated
}

// Identity is what the runs of one collective on several ranks have in common.
type Identity struct {
	Group, Name string
	Sequence    int64
}

// Identity returns the identity of the run's collective.
func (c *Collective) Identity() Identity { return Identity{c.Group, c.Name, c.Sequence} }

// bubble is the rank that causes the waits between the stages of a pipeline.
const bubble = -2

// Context is what is known about ranks beyond their runs. Nil functions know nothing.
type Context struct {
	// Computing returns for how many ns of an interval on a rank's own clock it computed.
	Computing func(rank int64, v intervals.Interval) int64
	// Stages reports whether a collective passes results between stages of a pipeline that take
	// equally long. Such a receiver waits by nature, so the sender causes nothing.
	Stages func(Identity) bool
}

// Arrival is the result of the collectives for one rank.
type Arrival struct {
	Rank        int64
	Collectives int // that were matched
	Last        int // at which this rank arrived last
	// Waited is how many seconds this rank waited for the last one, HeldUp how many the others
	// together waited for this one, Delay how long this rank alone delayed all others: by how much
	// it was later than the rank before it. Time that passes in several collectives counts once.
	Waited, HeldUp, Delay float64
	// Caused is how many seconds the others together lost because of this rank, at any collective:
	// their waits, except time in which they compute. A rank that arrives last because it was
	// itself delayed, at a collective without the others, is not charged for that part.
	Caused float64
	// LastAt are this rank's runs at which it arrived last and caused most of that itself, by
	// start.
	LastAt []Lateness
	// Clock is how many seconds the rank's clock was ahead of the others', by the matched ends.
	Clock float64
}

// Lateness is a run, on the rank's own clock, and how many seconds the others together waited
// there.
type Lateness struct {
	*Collective
	Held float64
}

// maxParts is the number of runs of one stated sequence that are distinguished.
const maxParts = 1 << 10

// Number sets Sequence if the source states none: to the run's number among its rank's runs in the
// group, by start. Several runs of one stated number, as coalesced collectives have it, become
// parts of that number. Number(all) is called once. The numbers match if the records of all ranks
// start with the same collective, otherwise see [Renumber]. It sorts all by start.
func Number(all []Collective) {
	type key struct {
		rank  int64
		group string
	}
	slices.SortStableFunc(all, func(x, y Collective) int { return cmp.Compare(x.Start, y.Start) })
	type part struct {
		key
		name     string
		sequence int64
	}
	next, parts := map[key]int64{}, map[part]int64{}
	for i := range all {
		k := key{all[i].Rank, all[i].Group}
		if all[i].Stated {
			p := part{k, all[i].Name, all[i].Sequence}
			all[i].Sequence = all[i].Sequence*maxParts + min(parts[p], maxParts-1)
			parts[p]++
			continue
		}
		all[i].Sequence = next[k]
		next[k]++
	}
}

// run is one rank's run of a collective. Many are kept at one time, so a run refers to the
// collective instead of containing it.
type run struct {
	*Collective
	own, aligned intervals.Interval // on the rank's clock, on aligned clocks
}

// gathering are the runs of one collective by start, on aligned clocks.
type gathering struct {
	runs  []run
	rank  int64 // the last to arrive, and when
	start int64 // on aligned clocks
}

// Arrivals matches collectives of at least two ranks and computes which rank waited for which. The
// clocks of ranks are aligned by the ends: a collective ends on all ranks at nearly the same time,
// whichever was late. A collective whose aligned ends differ by more than its shortest run is not
// one that all ranks wait for, and is omitted; so is one that a rank runs twice. The result is by
// rank and refers to all.
func Arrivals(all []Collective, known Context) []Arrival { return arrivals(match(all), known) }

// ArrivalsByLength returns the arrivals as if all runs of one collective ended together, so that
// the last rank to arrive runs shortest, whatever the clocks of ranks show.
func ArrivalsByLength(all []Collective, known Context) []Arrival {
	known.Computing = nil // the runs have artificial times
	groups := match(all)
	for i, runs := range groups {
		for k := range runs {
			r := &runs[k]
			r.own.End = int64(i) << 40
			r.own.Start = r.own.End - (r.End - r.Start)
		}
	}
	return arrivals(groups, known)
}

func arrivals(groups [][]run, known Context) []Arrival {
	clocks := align(groups)
	list := make([]gathering, 0, len(groups))
	for _, runs := range groups {
		for i := range runs {
			r := &runs[i]
			c := clocks[r.Rank]
			r.aligned.Start = r.own.Start - int64(c.aheadAt(r.own.Start))
			r.aligned.End = r.own.End - int64(c.aheadAt(r.own.End))
		}
		if !joint(runs) {
			continue
		}
		slices.SortStableFunc(runs, func(x, y run) int { return cmp.Compare(x.aligned.Start, y.aligned.Start) })
		last := &runs[len(runs)-1]
		list = append(list, gathering{runs: runs, rank: last.Rank, start: last.aligned.Start})
	}
	slices.SortStableFunc(list, func(x, y gathering) int { // before what follows from them
		return cmp.Compare(x.start, y.start)
	})
	s := study{byRank: map[int64]*Arrival{}, past: map[int64]*history{}, waits: map[int64]*intervals.Set{}, known: known}
	for i := range list {
		s.add(&list[i])
	}
	out := make([]Arrival, 0, len(s.byRank))
	for _, a := range s.byRank {
		if a.Clock = clocks[a.Rank].ahead * 1e-9; a.Collectives > 0 {
			out = append(out, *a)
		}
	}
	slices.SortFunc(out, func(x, y Arrival) int { return cmp.Compare(x.Rank, y.Rank) })
	return out
}

// study is what is known of ranks by the collectives so far.
type study struct {
	known  Context
	byRank map[int64]*Arrival
	past   map[int64]*history
	waits  map[int64]*intervals.Set // on the rank's own clock
}

func (s *study) rank(rank int64) (*Arrival, *history) {
	if s.byRank[rank] == nil {
		s.byRank[rank] = &Arrival{Rank: rank}
		s.past[rank] = &history{}
		s.waits[rank] = &intervals.Set{}
	}
	return s.byRank[rank], s.past[rank]
}

// add counts a collective.
func (s *study) add(g *gathering) {
	last := &g.runs[len(g.runs)-1] // that a rank with runs arrived at
	a, past := s.rank(g.rank)
	before, hasBefore := past.before(g.start + precision)
	second := &g.runs[len(g.runs)-2]
	culprit := g.rank // of what the last rank did not inherit
	if s.known.Stages != nil && s.known.Stages(last.Identity()) {
		culprit = bubble
	}
	var held, waits, inherited, waiting float64
	for i := range g.runs {
		y := &g.runs[i]
		arrival, theirs := s.rank(y.Rank)
		arrival.Collectives++
		if y.Rank == g.rank {
			continue
		}
		wait := g.start - y.aligned.Start
		waited, idle := s.wait(y, wait)
		arrival.Waited += seconds(waited)
		held += seconds(waited)
		waits += float64(wait)
		waiting++
		lost := seconds(idle)
		if other, ok := theirs.before(y.aligned.Start + precision); ok && hasBefore && wait > 0 {
			part, causes := before.since(other, wait)
			inherited += part
			for _, c := range causes {
				s.charge(c.rank, lost*c.ns/float64(wait))
			}
			lost *= 1 - part/float64(wait)
		}
		s.charge(culprit, lost)
	}
	a.Last++
	a.Delay += seconds(g.start - second.aligned.Start)
	a.HeldUp += held
	if 2*inherited <= waits {
		a.LastAt = append(a.LastAt, Lateness{last.Collective, held})
	}
	delays := before.delays
	if mine := waits - inherited; mine > 0 {
		delays = delays.plus(delay{culprit, mine / waiting})
	}
	for _, x := range g.runs {
		s.past[x.Rank].add(meeting{x.aligned.End, delays})
	}
}

// charge adds lost seconds to what a rank caused.
func (s *study) charge(rank int64, lost float64) {
	if rank != bubble {
		s.byRank[rank].Caused += lost
	}
}

// wait adds the wait in a run, and returns how many ns of it are not part of another wait, and how
// many of these the rank did not compute. The collective would have ended earlier without the wait,
// so the wait is the end of the run.
func (s *study) wait(r *run, length int64) (waited, idle int64) {
	v := intervals.Interval{Start: r.own.End - min(length, r.own.End-r.own.Start), End: r.own.End}
	waits := s.waits[r.Rank]
	for _, gap := range waits.Gaps(v) {
		waited += gap.End - gap.Start
		if idle += gap.End - gap.Start; s.known.Computing != nil {
			idle -= s.known.Computing(r.Rank, gap)
		}
	}
	waits.Add(v, 0)
	return waited, idle
}

// meeting is the end of a collective for a rank, and the delays of it and of everything before.
type meeting struct {
	end    int64
	delays delays
}

// delays are the ns by which each rank has delayed a meeting, by rank. They are not changed.
type delays []delay

type delay struct {
	rank int64
	ns   float64
}

// maxDelays bounds the ranks of delays. The shortest are dropped, which are chance.
const maxDelays = 32

// plus returns the delays with a longer one of a rank.
func (d delays) plus(more delay) delays {
	i, found := slices.BinarySearchFunc(d, more.rank, func(d delay, rank int64) int { return cmp.Compare(d.rank, rank) })
	out := make(delays, 0, len(d)+1)
	if out = append(out, d...); found {
		out[i].ns += more.ns
		return out
	}
	if out = slices.Insert(out, i, more); len(out) > maxDelays {
		least := slices.MinFunc(out, func(x, y delay) int { return cmp.Compare(x.ns, y.ns) })
		out = slices.DeleteFunc(out, func(d delay) bool { return d == least })
	}
	return out
}

// of returns the delay of a rank.
func (d delays) of(rank int64) float64 {
	i, found := slices.BinarySearchFunc(d, rank, func(d delay, rank int64) int { return cmp.Compare(d.rank, rank) })
	if !found {
		return 0
	}
	return d[i].ns
}

// since returns how many ns of a wait for a rank come from its last meeting, which ended after the
// waiting rank's because of delays that the other has not had, and from whom.
func (m meeting) since(other meeting, wait int64) (ns float64, causes delays) {
	most := float64(min(wait, m.end-other.end))
	if most <= 0 {
		return 0, nil
	}
	for _, d := range m.delays {
		if more := d.ns - other.delays.of(d.rank); more > 0 {
			causes = append(causes, delay{d.rank, more})
			ns += more
		}
	}
	if ns > most {
		for i := range causes {
			causes[i].ns *= most / ns
		}
		ns = most
	}
	return ns, causes
}

// history are a rank's latest collectives, by end.
type history []meeting

// maxHistory bounds a history: what is before its begin was long before.
const maxHistory = 4096

func (h *history) add(m meeting) {
	if len(*h) == maxHistory {
		*h = append((*h)[:0], (*h)[maxHistory/2:]...)
	}
	i := len(*h)
	for i > 0 && (*h)[i-1].end > m.end { // few run at one time
		i--
	}
	*h = slices.Insert(*h, i, m)
}

// before returns the last one that had ended by then.
func (h *history) before(t int64) (meeting, bool) {
	i, _ := slices.BinarySearchFunc(*h, t+1, func(m meeting, t int64) int { return cmp.Compare(m.end, t) })
	if i == 0 {
		return meeting{}, false
	}
	return (*h)[i-1], true
}

// match groups the runs by collective.
func match(all []Collective) [][]run {
	number := map[Identity]int{}
	var sizes []int // by number
	for i := range all {
		k := all[i].Identity()
		n, ok := number[k]
		if !ok {
			n = len(sizes)
			number[k] = n
			sizes = append(sizes, 0)
		}
		sizes[n]++
	}
	free := make([]run, len(all)) // one block: lists that grow would take twice as much
	groups := make([][]run, len(sizes))
	for n, size := range sizes {
		groups[n], free = free[:0:size], free[size:]
	}
	for i := range all {
		n := number[all[i].Identity()]
		groups[n] = append(groups[n], run{Collective: &all[i], own: intervals.Interval{Start: all[i].Start, End: all[i].End}})
	}
	ranks := map[int64]struct{}{}
	return slices.DeleteFunc(groups, func(runs []run) bool {
		clear(ranks)
		for _, r := range runs {
			ranks[r.Rank] = struct{}{}
		}
		return len(runs) < 2 || len(ranks) < len(runs)
	})
}

// align computes how far each rank's clock is ahead: the median over its collectives of its end
// minus the median end of the ranks whose clocks are known, or a line through these if the clock
// drifts. It starts with one rank and continues with the ranks that it meets, because a rank may
// meet only some of the others. Ranks that never meet, not even through others, are aligned apart.
func align(groups [][]run) map[int64]clock {
	ahead := map[int64]clock{} // of the first rank, whose clock is the reference
	for len(groups) > 0 {
		found := map[int64][]reading{}
		rest := groups[:0:0]
		for _, runs := range groups {
			var ends []float64
			first := runs[0].own.End
			for _, r := range runs {
				if c, ok := ahead[r.Rank]; ok {
					ends = append(ends, float64(r.own.End-first)-c.aheadAt(r.own.End))
				}
			}
			if len(ends) < len(runs) {
				rest = append(rest, runs)
			}
			if len(ends) == 0 {
				continue
			}
			m := median(ends)
			for _, r := range runs {
				if _, ok := ahead[r.Rank]; !ok {
					found[r.Rank] = append(found[r.Rank], reading{r.own.End, float64(r.own.End-first) - m})
				}
			}
		}
		if groups = rest; len(found) == 0 && len(rest) > 0 {
			ahead[rest[0][0].Rank] = clock{}
		}
		for rank, readings := range found {
			ahead[rank] = clockOf(readings)
		}
	}
	values := make([]float64, 0, len(ahead))
	for _, c := range ahead {
		values = append(values, c.ahead)
	}
	m := median(values)
	for rank, c := range ahead {
		c.ahead -= m
		ahead[rank] = c
	}
	return ahead
}

// joint reports whether the runs ended together.
func joint(runs []run) bool {
	shortest := runs[0].aligned.End - runs[0].aligned.Start
	first, last := runs[0].aligned.End, runs[0].aligned.End
	for _, r := range runs {
		shortest = min(shortest, r.aligned.End-r.aligned.Start)
		first, last = min(first, r.aligned.End), max(last, r.aligned.End)
	}
	return shortest > 0 && last-first <= shortest
}

func seconds(ns int64) float64 { return float64(ns) * 1e-9 }
