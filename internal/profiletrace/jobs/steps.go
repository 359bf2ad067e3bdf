// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/straggler"
)

// stepTable is what each rank did in each step of a job: a step of a rank ends with its last
// collective. Times are ns.
type stepTable struct {
	own    [][]float64            // own time by step and profile; NaN: not known
	length float64                // median step
	rows   []map[int64]int        // by profile and number of its step
	spans  [][]intervals.Interval // by step and profile, on its clock
}

// unit is a step of one profile.
type unit struct {
	number int64
	end    int64                // of its last collective
	last   []straggler.Identity // the last collective of each group
	row    int
	known  bool
}

// units divides the collectives of a profile into steps: the profile's own or, without any,
// steps that end with the collective of most ranks that is run least often.
func (a *analysis) units(x *profile, ranksOf map[string]int) (list []unit) {
	stepOf := func(c *straggler.Collective) int64 { return int64(c.Step) }
	if !slices.ContainsFunc(x.collectives, func(c straggler.Collective) bool { return c.Step > 0 }) {
		type kind struct {
			group, name string
			bytes       int64
		}
		count := map[kind]int{}
		for i := range x.collectives {
			c := &x.collectives[i]
			count[kind{c.Group, c.Name, c.Bytes}]++
		}
		end := slices.MinFunc(slices.Collect(maps.Keys(count)), func(x, y kind) int {
			return cmp.Or(cmp.Compare(ranksOf[y.group], ranksOf[x.group]), cmp.Compare(count[x], count[y]),
				cmp.Compare(x.group, y.group), cmp.Compare(x.name, y.name), cmp.Compare(x.bytes, y.bytes))
		})
		number := int64(1)
		// Everything repeats as often, give or take what is missing at the ends; else all is one
		// step.
		n := count[end]
		repeats := n > leastRuns
		for k, c := range count {
			rest := c % n
			repeats = repeats && (k.group != end.group || c >= n-1 && (rest <= 1 || rest == n-1))
		}
		stepOf = func(c *straggler.Collective) int64 {
			n := number
			if repeats && end == (kind{c.Group, c.Name, c.Bytes}) {
				number++
			}
			return n
		}
	}
	at := map[int64]int{}
	for i := range x.collectives { // by start
		c := &x.collectives[i]
		n := stepOf(c)
		if n <= 0 || n >= int64(len(at))+maxSteps {
			continue
		}
		k, ok := at[n]
		if !ok {
			k = len(list)
			at[n] = k
			list = append(list, unit{number: n})
		}
		u := &list[k]
		u.end = max(u.end, c.End)
		if g := slices.IndexFunc(u.last, func(k straggler.Identity) bool { return k.Group == c.Group }); g >= 0 {
			u.last[g] = c.Identity()
		} else {
			u.last = append(u.last, c.Identity())
		}
		c.Step = int32(n)
	}
	slices.SortFunc(list, func(a, b unit) int { return cmp.Compare(a.number, b.number) })
	return list
}

// maxSteps bounds the steps of a profile that are compared.
const maxSteps = 1 << 14

// table finds the steps that profiles have in common by their collectives, whatever their clocks
// and numbers are.
func (a *analysis) table() *stepTable {
	ranksOf := map[string]int{}
	for _, x := range a.job {
		for group := range x.groups() {
			ranksOf[group]++
		}
	}
	for group, n := range ranksOf {
		ranksOf[group] = max(n, len(membersOf(group)))
	}
	all := make([][]unit, len(a.job))
	longest := 0
	for i, x := range a.job {
		if len(x.collectives) > 0 {
			all[i] = a.units(x, ranksOf)
		}
		if len(all[i]) > len(all[longest]) {
			longest = i
		}
	}
	rows := map[straggler.Identity]int{}
	take := func(list []unit) {
		for i := range list {
			u := &list[i]
			u.known = true
			for _, k := range u.last {
				if _, ok := rows[k]; !ok {
					rows[k] = u.row
				}
			}
		}
	}
	for i := range all[longest] {
		all[longest][i].row = i
	}
	take(all[longest])
	placed := map[int]bool{longest: true}
	for again := true; again; {
		again = false
		for i, list := range all {
			if placed[i] || !place(list, rows) {
				continue
			}
			take(list)
			placed[i], again = true, true
		}
	}
	for i, list := range all { // of parts of a job without common collectives
		if !placed[i] && len(list) == len(all[longest]) {
			for k := range list {
				list[k].row = k
			}
			take(list)
		}
	}
	return a.fill(all)
}

// place gives units the rows of the collectives that are known, and reports whether any is.
func place(list []unit, rows map[straggler.Identity]int) bool {
	anchor, row := -1, 0
	for i := range list {
		for _, k := range list[i].last {
			if n, ok := rows[k]; ok {
				anchor, row = i, n
			}
		}
	}
	for i := range list {
		list[i].row = row + i - anchor
	}
	return anchor >= 0
}

func (a *analysis) fill(all [][]unit) *stepTable {
	t := &stepTable{rows: make([]map[int64]int, len(all))}
	least, most := math.MaxInt, math.MinInt
	for _, list := range all {
		for _, u := range list {
			if u.known {
				least, most = min(least, u.row), max(most, u.row)
			}
		}
	}
	if most < least {
		return t
	}
	for range most - least + 1 {
		row := make([]float64, len(all))
		for i := range row {
			row[i] = math.NaN()
		}
		t.own, t.spans = append(t.own, row), append(t.spans, make([]intervals.Interval, len(all)))
	}
	var lengths []float64
	for i, list := range all {
		x := a.job[i]
		line := a.lines[x]
		t.rows[i] = map[int64]int{}
		before := a.begin(x, list)
		for k, u := range list {
			if !u.known {
				continue
			}
			t.rows[i][u.number] = u.row - least
			v := intervals.Interval{Start: before, End: u.end}
			consecutive := k == 0 || u.number == list[k-1].number+1
			if before = u.end; v.Start <= 0 || v.Start >= v.End || !consecutive {
				continue
			}
			t.spans[u.row-least][i] = v
			lengths = append(lengths, float64(v.End-v.Start))
			if x.unrecorded {
				continue
			}
			if t.own[u.row-least][i] = -float64(line.exposed.Within(v)); a.ahead != nil {
				// A step is equally long on all ranks; on clocks that cannot be aligned, its length
				// means nothing.
				t.own[u.row-least][i] += float64(v.End - v.Start)
			}
		}
	}
	if len(lengths) > 0 {
		slices.Sort(lengths)
		t.length = lengths[len(lengths)/2]
	}
	return t
}

// begin returns when the first unit of a profile began; 0 if that is unknown.
func (a *analysis) begin(x *profile, list []unit) int64 {
	if len(list) == 0 {
		return 0
	}
	if at, ok := x.stepStarts[list[0].number]; ok {
		return at
	}
	if len(x.stepStarts) > 0 || a.ahead == nil {
		return 0
	}
	from := int64(math.MinInt64) // all were recorded
	for _, y := range a.job {
		from = max(from, y.window.Start-a.ahead[y.rank])
	}
	return from + a.ahead[x.rank]
}

// row returns the row of a run of a profile; false if its step is not compared.
func (t *stepTable) row(profile int, c *straggler.Collective) (int, bool) {
	if t.rows == nil || t.rows[profile] == nil {
		return 0, false
	}
	n, ok := t.rows[profile][int64(c.Step)]
	return n, ok
}

// peers returns the sets of profiles that do the same work: ranks with common collectives, except
// of groups that contain several stages of a pipeline. Stages without replicas are compared with
// one another.
func (a *analysis) peers(all []straggler.Collective) (sets [][]int) {
	number := map[int64]int{}
	for i, x := range a.job {
		number[x.rank] = i
	}
	parent := make([]int, len(a.job))
	for i := range parent {
		parent[i] = i
	}
	var root func(int) int
	root = func(i int) int {
		if parent[i] != i {
			parent[i] = root(parent[i])
		}
		return parent[i]
	}
	groups, paired := a.members(all)
	spans := severalStages(groups, paired)
	staged := map[int]bool{}
	for group, ranks := range groups {
		for rank := range ranks {
			staged[number[rank]] = staged[number[rank]] || paired[group]
		}
		if spans(ranks) {
			continue
		}
		first := -1
		for _, rank := range slices.Sorted(maps.Keys(ranks)) {
			if first >= 0 {
				parent[root(number[rank])] = root(first)
			}
			first = number[rank]
		}
	}
	by := map[int][]int{}
	for i := range a.job {
		by[root(i)] = append(by[root(i)], i)
	}
	var stages []int
	for _, k := range slices.Sorted(maps.Keys(by)) {
		if set := by[k]; len(set) > 1 {
			sets = append(sets, set)
		} else if staged[set[0]] {
			stages = append(stages, set[0])
		}
	}
	if len(stages) > 1 {
		sort.Ints(stages)
		sets = append(sets, stages)
	}
	return sets
}

// compared returns the own times of a set in the steps that all of it have, without profiles that
// have few of them.
func (t *stepTable) compared(set []int) (members []int, own straggler.OwnTimes, rows []int) {
	has := func(i int) (n int) {
		for _, row := range t.own {
			if !math.IsNaN(row[i]) {
				n++
			}
		}
		return n
	}
	most := 0
	for _, i := range set {
		most = max(most, has(i))
	}
	for _, i := range set {
		if most > 0 && 2*has(i) >= most {
			members = append(members, i)
		}
	}
	for n, row := range t.own {
		values := make([]float64, 0, len(members))
		for _, i := range members {
			if !math.IsNaN(row[i]) {
				values = append(values, row[i])
			}
		}
		if len(values) == len(members) && len(members) > 0 {
			own, rows = append(own, values), append(rows, n)
		}
	}
	return members, own, rows
}
