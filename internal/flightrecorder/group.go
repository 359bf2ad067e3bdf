// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// group is a process group with the collectives that its ranks recorded.
type group struct {
	name    GroupName
	members []int // empty until complete, if no dump states them
	stated  bool  // a dump states the members
	byRank  map[int]map[int64]*Entry
	size    int // by the sizes of all-gathers and reduce-scatters; 0 if unknown
}

func newGroup(name GroupName, members []int, stated bool) *group {
	return &group{
		name: name, members: slices.Sorted(slices.Values(members)), stated: stated, byRank: map[int]map[int64]*Entry{},
	}
}

// isDefault reports whether a group is the one of all ranks, which PyTorch calls "0" and
// default_pg.
func (g *group) isDefault() bool {
	return g.name.Description == "default_pg" || g.name.Name == "default_pg" ||
		g.name.Name == "0" && g.name.Description == ""
}

// collectGroups finds the groups and the number of ranks. Groups of one name are different ones if
// their members are stated and differ.
func (j *job) collectGroups() {
	type identity struct {
		GroupName
		members string
	}
	known := map[identity]*group{}
	for _, rank := range slices.Sorted(maps.Keys(j.dumps)) {
		d := j.dumps[rank]
		j.world = max(j.world, rank+1)
		groups := map[GroupName]*group{} // of this rank: groups of equal names can have other members
		find := func(name GroupName, listed bool) *group {
			if g := groups[name]; g != nil {
				return g
			}
			members := d.Groups[name]
			id := identity{name, fmt.Sprint(members)}
			if known[id] == nil {
				known[id] = newGroup(name, members, listed || len(members) > 0)
				j.groups = append(j.groups, known[id])
			}
			groups[name] = known[id]
			return known[id]
		}
		for i := range d.Entries {
			e := &d.Entries[i]
			g := find(e.Group, false)
			if g.byRank[rank] == nil {
				g.byRank[rank] = map[int64]*Entry{}
			}
			if e.PointToPoint {
				continue
			}
			g.byRank[rank][e.Sequence] = e
			g.size = max(g.size, e.groupSize())
		}
		for name := range d.Groups { // also one that the rank is a member of and never used
			find(name, true)
		}
	}
	for _, g := range j.groups {
		if len(g.members) > 0 {
			j.world = max(j.world, slices.Max(g.members)+1)
		}
		if g.isDefault() {
			j.world = max(j.world, g.size)
		}
	}
	for _, rank := range j.stale {
		j.world = max(j.world, rank+1)
	}
	slices.SortStableFunc(j.groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.name.Name, b.name.Name), cmp.Compare(a.name.Description, b.name.Description),
			slices.Compare(a.members, b.members))
	})
}

// complete adds the members that the dumps imply: all ranks for the default group, ranks with
// entries for others, and the ranks without a dump if exactly they are missing in the size of the
// group.
func (g *group) complete(j *job) {
	if g.stated {
		return
	}
	if g.isDefault() {
		for rank := range j.world {
			g.members = append(g.members, rank)
		}
		return
	}
	g.members = slices.Sorted(maps.Keys(g.byRank))
	if gone := slices.Concat(j.without, j.stale); len(gone) > 0 && len(g.members)+len(gone) == g.size {
		g.members = append(g.members, gone...)
		slices.Sort(g.members)
	}
}

// groupSize returns the number of ranks in the group by the sizes of an all-gather or a
// reduce-scatter, otherwise 0.
func (e *Entry) groupSize() int {
	in, out := elements(e.InputSizes), elements(e.OutputSizes)
	if strings.Contains(e.Operation, "reduce_scatter") {
		in, out = out, in
	} else if !strings.Contains(e.Operation, "all_gather") && !strings.Contains(e.Operation, "allgather") {
		return 0
	}
	if in <= 0 || out%in != 0 || out/in > 1<<20 {
		return 0
	}
	return int(out / in)
}

// elements returns the number of elements of all tensors, -1 if it is absurd.
func elements(shapes [][]int64) (sum int64) {
	for _, shape := range shapes {
		n := int64(1)
		for _, d := range shape {
			if d < 0 || d > 0 && n > (1<<56)/d {
				return -1
			}
			n *= d
		}
		if sum += n; sum > 1<<60 {
			return -1
		}
	}
	return sum
}

// last returns the highest sequence number that a rank entered, 0 if none.
func (g *group) last(rank int) (last int64) {
	for sequence := range g.byRank[rank] {
		last = max(last, sequence)
	}
	return last
}

// waits reports whether a rank is in a collective: it has not finished it, nor a later one that
// proves that the recorder only had not noticed the end.
func (g *group) waits(j *job, rank int, sequence int64) bool {
	e := g.byRank[rank][sequence]
	if e == nil || e.finished() {
		return false
	}
	for later, o := range g.byRank[rank] {
		if later > sequence && o.finished() && g.finishedByOthers(j, rank, sequence) {
			return false
		}
	}
	return true
}

func (g *group) finishedByOthers(j *job, rank int, sequence int64) bool {
	for _, other := range g.members {
		if e := g.byRank[other][sequence]; other != rank && j.dumps[other] != nil && (e == nil || !e.finished()) {
			return false
		}
	}
	return true
}

// stuck returns the first collective of the group that does not end, nil if all end.
func (g *group) stuck(j *job) *wait {
	front, failed := g.front(j)
	if front == 0 {
		return nil
	}
	if w := g.mismatch(j, front); w != nil {
		return w
	}
	// Gloo finishes what fails, so it is not known that a rank waits.
	w := &wait{group: g.name, sequence: front, uncertain: failed}
	started := false
	for _, rank := range g.members {
		if e := g.byRank[rank][front]; e != nil && e.State != Scheduled {
			started = true
		}
	}
	for _, rank := range g.members {
		e := g.byRank[rank][front]
		switch {
		case j.dumps[rank] == nil:
			w.dead = append(w.dead, rank)
		case e == nil && g.last(rank) < front:
			if g.last(rank) == 0 && j.dumps[rank].Overwritten {
				w.uncertain = true // its entries of this group may have been overwritten
			}
			w.absent = append(w.absent, rank)
		case e == nil: // overwritten: the rank is beyond it
		case e.State == Scheduled && !e.finished() && started:
			w.stalled = append(w.stalled, rank)
		default:
			w.see(j, rank, e, failed || g.waits(j, rank, front))
		}
	}
	if failed && len(w.dead) == 0 {
		return nil
	}
	// A rank that has left the collective that others are in is not waiting. If only one rank is in
	// it, it lags itself.
	if !failed && len(w.waiting) == 1 && len(w.guilty()) == 0 && len(g.members) > 1 {
		w.stalled, w.waiting = w.waiting, nil
	}
	w.doubt(j)
	return w
}

// see records a rank that entered the collective.
func (w *wait) see(j *job, rank int, e *Entry, waits bool) {
	w.operation = e.Operation
	if waits {
		if current := j.current[rank]; current != nil && current != e {
			w.queued = append(w.queued, rank)
		}
		w.waiting = append(w.waiting, rank)
		if w.since.IsZero() || e.Created.Before(w.since) {
			w.since = e.Created
		}
	}
}

// doubt marks a wait as uncertain if an absent rank is in an operation whose peer is not recorded.
func (w *wait) doubt(j *job) {
	for _, rank := range w.absent {
		d := j.dumps[rank]
		for i := range d.Entries {
			if e := &d.Entries[i]; e.PointToPoint && !e.finished() && e.Peer < 0 {
				w.uncertain = true
				w.detail = fmt.Sprintf("rank %d waits in %s, whose peer is not recorded", rank, e.Operation)
			}
		}
	}
}

// front returns the first collective in which a rank waits. Gloo finishes an operation that fails;
// if a rank left no dump, the last collective of such a group may have failed.
func (g *group) front(j *job) (front int64, failed bool) {
	for rank, entries := range g.byRank {
		for sequence := range entries {
			if (front == 0 || sequence < front) && g.waits(j, rank, sequence) {
				front = sequence
			}
		}
	}
	if front > 0 {
		return front, false
	}
	gloo, everybody := false, true
	for _, rank := range g.members {
		if last := g.last(rank); last > 0 {
			front = max(front, last)
			gloo = gloo || g.byRank[rank][last].Backend == "gloo"
		}
		everybody = everybody && j.dumps[rank] != nil
	}
	if !gloo || (everybody && !g.differs(front)) {
		return 0, false
	}
	return front, true
}

// failed returns the newest collectives of Gloo that ended although a rank had not entered them, so
// that they failed. Dumps are not written at one time: this is only said of a rank whose dump was
// written long after the others entered, or if others wait for a rank that has done nothing since.
func (j *job) failed(all []*wait) (found []*wait) {
	waitedFor := map[*Entry]bool{} // the newest entries of the ranks that others wait for
	for _, w := range all {
		for _, rank := range w.absent {
			if entries := j.dumps[rank].Entries; len(entries) > 0 {
				waitedFor[&entries[len(entries)-1]] = true
			}
		}
	}
	for _, g := range j.groups {
		var front int64
		for _, rank := range g.members {
			front = max(front, g.last(rank))
		}
		w := &wait{group: g.name, sequence: front, uncertain: true}
		stopped := false
		for _, rank := range g.members {
			if e := g.byRank[rank][front]; e != nil && e.Backend == "gloo" && needsAll(e.Operation) {
				w.see(j, rank, e, e.finished())
				stopped = stopped || waitedFor[e]
			}
		}
		for _, rank := range g.members {
			if d := j.dumps[rank]; d != nil && g.last(rank) < front && (g.last(rank) > 0 || !d.Overwritten) &&
				(stopped || d.Written.Sub(w.since) > j.pause()) {
				w.absent = append(w.absent, rank)
			}
		}
		known := slices.ContainsFunc(all, func(o *wait) bool { return o.group == g.name })
		if len(w.waiting) > 0 && len(w.absent) > 0 && !known {
			found = append(found, w)
		}
	}
	return found
}

// needsAll reports whether no rank can finish a collective before all have entered it. The root of
// a broadcast can.
func needsAll(operation string) bool {
	return strings.Contains(operation, "all") || strings.Contains(operation, "reduce_scatter") || operation == "barrier"
}
