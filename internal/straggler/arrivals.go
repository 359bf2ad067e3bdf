// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"slices"
)

// Collective is one rank's run of a collective: [Start, End) in ns on the rank's clock.
type Collective struct {
	Rank  int64
	Group string // process group; empty where there is one
	Name  string // what tells collectives of a group apart, such as all_reduce; runs of different names never match
	// Sequence is the number of the collective in its group, as the source states it, or as [Number] gives it.
	Sequence   int64
	Start, End int64
}

// Arrival is what the collectives say of one rank.
type Arrival struct {
	Rank        int64
	Collectives int // that were matched
	Last        int // at which this rank came last
	// Waited is for how many seconds this rank waited for the last one, HeldUp for how many the others together
	// waited for this one, Delay how long this rank alone held all others up: by how much it was later than the rank
	// before it.
	Waited, HeldUp, Delay float64
	// LastAt are this rank's runs at which it came last, on its own clock, by start.
	LastAt []Collective
	// Clock is by how many seconds the rank's clock was ahead of the others', by the matched ends.
	Clock float64
}

// Number sets Sequence where the source states none: to the run's number among those of its rank and group, by start.
// That holds as long as the records of all ranks begin with the same collective. It sorts all by start.
func Number(all []Collective) {
	type key struct {
		rank  int64
		group string
	}
	slices.SortStableFunc(all, func(x, y Collective) int { return cmp.Compare(x.Start, y.Start) })
	next := map[key]int64{}
	for i := range all {
		k := key{all[i].Rank, all[i].Group}
		all[i].Sequence = next[k]
		next[k]++
	}
}

// Arrivals matches collectives of at least two ranks and says who waited for whom. The clocks of ranks are aligned by
// the ends: a collective ends on all ranks at nearly one time, whoever was late. A collective whose ends then still
// differ by more than its shortest run is none that all ranks wait for, and left out, and so is one that a rank runs
// twice. The result is by rank.
func Arrivals(all []Collective) []Arrival {
	groups := match(all)
	clocks := align(groups)
	byRank := map[int64]*Arrival{}
	for _, runs := range groups {
		for i := range runs {
			c := clocks[runs[i].Rank]
			runs[i].Start -= c
			runs[i].End -= c
		}
		slices.SortStableFunc(runs, func(x, y Collective) int { return cmp.Compare(x.Start, y.Start) })
		if !joint(runs) {
			continue
		}
		last := runs[len(runs)-1]
		for i, x := range runs {
			a := byRank[x.Rank]
			if a == nil {
				a = &Arrival{Rank: x.Rank, Clock: seconds(clocks[x.Rank])}
				byRank[x.Rank] = a
			}
			a.Collectives++
			a.Waited += seconds(last.Start - x.Start)
			if i < len(runs)-1 {
				continue
			}
			a.Last++
			own := x
			own.Start += clocks[x.Rank]
			own.End += clocks[x.Rank]
			a.LastAt = append(a.LastAt, own)
			a.Delay += seconds(last.Start - runs[i-1].Start)
			for _, y := range runs[:i] {
				a.HeldUp += seconds(last.Start - y.Start)
			}
		}
	}
	out := make([]Arrival, 0, len(byRank))
	for _, a := range byRank {
		slices.SortFunc(a.LastAt, func(x, y Collective) int { return cmp.Compare(x.Start, y.Start) })
		out = append(out, *a)
	}
	slices.SortFunc(out, func(x, y Arrival) int { return cmp.Compare(x.Rank, y.Rank) })
	return out
}

// match puts the runs of one collective together, copies of them.
func match(all []Collective) [][]Collective {
	type key struct {
		group, name string
		sequence    int64
	}
	byKey := map[key][]Collective{}
	var order []key
	for _, c := range all {
		k := key{c.Group, c.Name, c.Sequence}
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

// align finds by how much each rank's clock is ahead: the median over its collectives of its end minus the median end.
func align(groups [][]Collective) map[int64]int64 {
	ahead := map[int64][]float64{}
	for _, runs := range groups {
		first := runs[0].End
		ends := make([]float64, len(runs))
		for i, r := range runs {
			ends[i] = float64(r.End - first) // small numbers, which a float64 holds exactly
		}
		m := median(slices.Clone(ends))
		for i, r := range runs {
			ahead[r.Rank] = append(ahead[r.Rank], ends[i]-m)
		}
	}
	out := make(map[int64]int64, len(ahead))
	for rank, values := range ahead {
		out[rank] = int64(median(values))
	}
	return out
}

// joint says whether the runs ended together.
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
