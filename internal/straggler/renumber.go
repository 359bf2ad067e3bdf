// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"slices"
)

// Limits of the search for the collective at which a record starts.
const (
	maxShift   = 1024 // runs of a group
	maxPairs   = 64   // of runs that are examined for one shift
	leastPairs = 4
	precision  = 1_000 // ns, of the times in many records
)

// Renumber changes the sequences of one rank's collectives, as [Number] set them, to the sequences
// of another rank's if the two records start with different collectives. A collective ends on all
// ranks at nearly the same time, so with the right numbers the clocks differ by the same amount at
// all collectives. If that is also true for the current numbers, they stay, unless the records are
// of different length and other numbers make the clocks agree.
func Renumber(these, others []Collective) {
	mine, theirs := byGroup(these), byGroup(others)
	var group string
	most := leastPairs - 1
	for g, runs := range mine {
		if n := min(len(runs), len(theirs[g])); n > most || n == most && g < group && most >= leastPairs {
			group, most = g, n
		}
	}
	if most < leastPairs {
		return
	}
	begin := bestShift(mine[group], theirs[group])
	for g, runs := range mine {
		other := theirs[g]
		if len(other) == 0 {
			continue
		}
		shift := begin.by
		if g != group {
			shift = shiftAt(runs, other, begin.clock)
		}
		first := other[0].Sequence + int64(shift)
		for i, c := range runs {
			c.Sequence = first + int64(i)
		}
	}
}

// byGroup returns the runs of each group without stated numbers, by start.
func byGroup(all []Collective) map[string][]*Collective {
	groups := map[string][]*Collective{}
	for i := range all {
		if !all[i].Stated {
			groups[all[i].Group] = append(groups[all[i].Group], &all[i])
		}
	}
	for _, runs := range groups {
		slices.SortStableFunc(runs, func(x, y *Collective) int { return cmp.Compare(x.Start, y.Start) })
	}
	return groups
}

// shifted is the result if run i+by of one list is run i of the other.
type shifted struct {
	by     int
	clock  int64 // ns, by which the other's clock is ahead, in the median
	spread int64 // ns, median distance from that
	length int64 // ns, of the shorter runs, in the median
}

// bestShift finds for lists of one group the shift with the least spread.
func bestShift(x, y []*Collective) shifted {
	best, ok := shiftBy(x, y, 0)
	if ok && best.spread <= precision && abs(best.clock) <= best.length {
		return best
	}
	now, known := best, ok
	var agreed shifted
	agree := false
	for by := -min(maxShift, len(x)-1); by <= min(maxShift, len(y)-1); by++ {
		s, fits := shiftBy(x, y, by)
		if !fits || by == 0 {
			continue
		}
		if !ok || s.spread < best.spread {
			best, ok = s, true
		}
		if abs(s.clock) <= s.length/4 && (!agree || abs(s.clock) < abs(agreed.clock)) {
			agreed, agree = s, true
		}
	}
	switch {
	case !known || 3*best.spread+precision < now.spread:
		return best
	case agree && len(x) != len(y) && agreed.spread <= now.spread+precision && abs(now.clock) > now.length:
		return agreed
	default:
		return now
	}
}

// shiftBy compares runs with each other, at most maxPairs of them, and reports whether they can be
// the same: at least half of the shorter list has a partner, and three quarters of those have its
// name.
func shiftBy(x, y []*Collective, by int) (s shifted, ok bool) {
	from, to := max(0, -by), min(len(x), len(y)-by)
	pairs := to - from
	if pairs < leastPairs || 2*pairs < min(len(x), len(y)) {
		return s, false
	}
	looked := min(pairs, maxPairs)
	apart, lengths := make([]int64, 0, maxPairs), make([]int64, 0, maxPairs)
	for k := range looked {
		a := x[from+k*pairs/looked]
		b := y[from+k*pairs/looked+by]
		if a.Name == b.Name {
			apart = append(apart, b.End-a.End)
			lengths = append(lengths, min(a.End-a.Start, b.End-b.Start))
		}
	}
	if 4*len(apart) < 3*looked {
		return s, false
	}
	s = shifted{by: by, length: middle(lengths)}
	s.clock, s.spread = spreadOf(apart)
	return s, true
}

// shiftAt returns the shift of another group, the clock being known.
func shiftAt(x, y []*Collective, clock int64) int {
	looked := min(len(x), maxPairs)
	shifts := make([]int64, 0, looked)
	for k := range looked {
		i := k * len(x) / looked
		end := x[i].End + clock
		j, _ := slices.BinarySearchFunc(y, end, func(c *Collective, t int64) int { return cmp.Compare(c.End, t) })
		if j == len(y) || j > 0 && end-y[j-1].End < y[j].End-end {
			j--
		}
		if j > 0 && j < len(y)-1 { // at the ends the nearest is unknown
			shifts = append(shifts, int64(j-i))
		}
	}
	if len(shifts) == 0 {
		return 0
	}
	return int(middle(shifts))
}

// FewMeetings is a number of meetings that does not prove that two ranks belong to one job.
const FewMeetings = 3

// Met reports whether the collectives that two records have in common by group, name and sequence
// ended together except for a constant, by which the clock of the others is ahead, in ns: within a
// quarter of their minimum duration, in the median. spread is that median, in ns.
func Met(these, others []Collective) (clock, spread int64, ok bool) {
	seen := make(map[Identity]Collective, len(these))
	for _, c := range these {
		seen[c.Identity()] = c
	}
	var readings []reading
	var lengths []int64
	for _, c := range others {
		if same, ok := seen[c.Identity()]; ok {
			readings = append(readings, reading{c.End, float64(c.End - same.End)})
			lengths = append(lengths, min(c.End-c.Start, same.End-same.Start))
		}
	}
	if len(readings) < FewMeetings {
		return 0, 0, false
	}
	line := clockOf(readings)
	clock, spread = int64(line.ahead), int64(line.spread(readings))
	return clock, spread, spread <= middle(lengths)/4
}

// spreadOf returns the median of values and the median of their distances from it. It changes the
// values.
func spreadOf(values []int64) (median, spread int64) {
	median = middle(values)
	for i := range values {
		values[i] = abs(values[i] - median)
	}
	return median, middle(values)
}

// middle returns the upper median, of values which it sorts.
func middle(values []int64) int64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func abs(v int64) int64 { return max(v, -v) }
