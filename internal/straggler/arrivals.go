// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"slices"
)

// Collective is one rank's run of a collective: [Start, End) in ns on the rank's clock.
type Collective struct {
	Rank int64
	// Group identifies the process group within the job: a name that several groups have merges them.
	Group string
	Name  string // distinguishes collectives of a group, such as all_reduce; runs of different names never match
	// Sequence is the number of the collective in its group, as the source states it, or as [Number] gives it.
	Sequence   int64
	Stated     bool // Sequence is from the source; [Number] and [Renumber] leave it
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

// Arrival is the result of the collectives for one rank.
type Arrival struct {
	Rank        int64
	Collectives int // that were matched
	Last        int // at which this rank arrived last
	// Waited is how many seconds this rank waited for the last one, HeldUp how many the others together waited for this
	// one, Delay how long this rank alone delayed all others: by how much it was later than the rank before it.
	Waited, HeldUp, Delay float64
	// Caused is how many seconds the others together waited because of this rank, at any collective: a rank that arrives
	// last because it was itself delayed, at a collective without the others, is not charged for that part.
	Caused float64
	// LastAt are this rank's runs at which it arrived last and caused most of that itself, by start.
	LastAt []Lateness
	// Clock is how many seconds the rank's clock was ahead of the others', by the matched ends.
	Clock float64
}

// Lateness is a run, on the rank's own clock, and how many seconds the others together waited there.
type Lateness struct {
	Collective
	Held float64
}

// maxParts is the number of runs of one stated sequence that are distinguished.
const maxParts = 1 << 10

// Number sets Sequence if the source states none: to the run's number among its rank's runs in the group, by start.
// Several runs of one stated number, as coalesced collectives have it, become parts of that number. Number(all) is
// called once. The numbers match if the records of all ranks start with the same collective, otherwise see [Renumber].
// It sorts all by start.
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

// Arrivals matches collectives of at least two ranks and computes which rank waited for which. The clocks of ranks are
// aligned by the ends: a collective ends on all ranks at nearly the same time, whichever was late. A collective whose
// aligned ends differ by more than its shortest run is not one that all ranks wait for, and is omitted; so is one that
// a rank runs twice. The result is by rank.
func Arrivals(all []Collective) []Arrival {
	groups := match(all)
	clocks := align(groups)
	byRank := map[int64]*Arrival{}
	own := map[Identity]map[int64]Collective{} // on the rank's own clock
	for _, runs := range groups {
		byRank := make(map[int64]Collective, len(runs))
		own[runs[0].Identity()] = byRank
		for i := range runs {
			byRank[runs[i].Rank] = runs[i]
			c := clocks[runs[i].Rank]
			runs[i].Start -= int64(c.aheadAt(runs[i].Start))
			runs[i].End -= int64(c.aheadAt(runs[i].End))
		}
		slices.SortStableFunc(runs, func(x, y Collective) int { return cmp.Compare(x.Start, y.Start) })
	}
	groups = slices.DeleteFunc(groups, func(runs []Collective) bool { return !joint(runs) })
	slices.SortStableFunc(groups, func(x, y []Collective) int { // before what follows from them
		return cmp.Compare(x[len(x)-1].Start, y[len(y)-1].Start)
	})
	past := map[int64]*history{}
	for _, runs := range groups {
		last := runs[len(runs)-1]
		for _, x := range runs {
			if byRank[x.Rank] == nil {
				byRank[x.Rank] = &Arrival{Rank: x.Rank, Clock: clocks[x.Rank].ahead * 1e-9}
				past[x.Rank] = &history{}
			}
			byRank[x.Rank].Collectives++
			byRank[x.Rank].Waited += seconds(last.Start - x.Start)
		}
		a := byRank[last.Rank]
		a.Last++
		a.Delay += seconds(last.Start - runs[len(runs)-2].Start)
		before, hasBefore := past[last.Rank].before(last.Start)
		var held, inherited int64
		for _, y := range runs[:len(runs)-1] {
			wait := last.Start - y.Start
			held += wait
			if other, ok := past[y.Rank].before(y.Start); ok && hasBefore {
				inherited += min(wait, max(0, before.end-other.end))
			}
		}
		a.HeldUp += seconds(held)
		if 2*inherited <= held {
			a.LastAt = append(a.LastAt, Lateness{own[last.Identity()][last.Rank], seconds(held)})
		}
		blame := map[int64]float64{last.Rank: 1}
		if held > 0 && inherited > 0 {
			part := float64(inherited) / float64(held)
			blame[last.Rank] -= part
			for rank, b := range before.blame {
				blame[rank] += part * b
			}
		}
		for rank, b := range blame {
			byRank[rank].Caused += b * seconds(held)
		}
		for _, x := range runs {
			past[x.Rank].add(meeting{x.End, blame})
		}
	}
	out := make([]Arrival, 0, len(byRank))
	for _, a := range byRank {
		out = append(out, *a)
	}
	slices.SortFunc(out, func(x, y Arrival) int { return cmp.Compare(x.Rank, y.Rank) })
	return out
}

// meeting is the end of a collective for a rank, and the parts of 1 by which ranks caused it.
type meeting struct {
	end   int64
	blame map[int64]float64
}

// history are a rank's collectives so far, by end.
type history []meeting

func (h *history) add(m meeting) {
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

// match groups copies of the runs by collective.
func match(all []Collective) [][]Collective {
	byKey := map[Identity][]Collective{}
	var order []Identity
	for _, c := range all {
		k := c.Identity()
		if byKey[k] == nil {
			order = append(order, k)
		}
		byKey[k] = append(byKey[k], c)
	}
	out := make([][]Collective, 0, len(order))
	for _, k := range order {
		runs := byKey[k]
		ranks := map[int64]struct{}{}
		for _, r := range runs {
			ranks[r.Rank] = struct{}{}
		}
		if len(runs) > 1 && len(ranks) == len(runs) {
			out = append(out, runs)
		}
	}
	return out
}

// align computes how far each rank's clock is ahead: the median over its collectives of its end minus the median end of
// the ranks whose clocks are known, or a line through these if the clock drifts. It starts with one rank and continues
// with the ranks that it meets, because a rank may meet only some of the others. Ranks that never meet, not even
// through others, are aligned apart.
func align(groups [][]Collective) map[int64]clock {
	ahead := map[int64]clock{} // of the first rank, whose clock is the reference
	for len(groups) > 0 {
		found := map[int64][]reading{}
		rest := groups[:0:0]
		for _, runs := range groups {
			var ends []float64
			first := runs[0].End
			for _, r := range runs {
				if c, ok := ahead[r.Rank]; ok {
					ends = append(ends, float64(r.End-first)-c.aheadAt(r.End))
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
					found[r.Rank] = append(found[r.Rank], reading{r.End, float64(r.End-first) - m})
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
func joint(runs []Collective) bool {
	shortest := runs[0].End - runs[0].Start
	first, last := runs[0].End, runs[0].End
	for _, r := range runs {
		shortest = min(shortest, r.End-r.Start)
		first, last = min(first, r.End), max(last, r.End)
	}
	return shortest > 0 && last-first <= shortest
}

func seconds(ns int64) float64 { return float64(ns) * 1e-9 }
