// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"
)

// Cause is why ranks wait for another one.
type Cause string

// Causes.
const (
	Missing    Cause = "missing"    // the rank has not entered the operation
	Mismatched Cause = "mismatched" // the rank entered another operation, or one of another size or type
	Stalled    Cause = "stalled"    // the rank entered the operation, and its device has not begun it; or no rank lags
	Dead       Cause = "dead"       // the rank left no dump, or one of an earlier run
)

// Hang is an operation in which ranks wait, with the ranks that they wait for.
type Hang struct {
	Cause     Cause
	Ranks     []int // that are waited for; empty if the dumps do not show them
	Group     GroupName
	Sequence  int64
	Operation string
	Detail    string // what differs, for people
	Waiting   []int  // ranks that wait in this operation
	// Ranks that wait in other operations because of this one.
	Elsewhere []int
	Since     time.Time      // when the first of Waiting entered the operation; zero if no rank waits
	Last      map[int]*Entry // the newest entry of each of Ranks that left a dump with entries
	// Whether each of Ranks is certain. It is not if ranks may wait in operations that the recorder
	// does not record.
	Certain bool
	// Whether a dump of Ranks exists that cannot be read; with the cause Dead only.
	Unreadable bool
}

// Report is the result of Analyze.
type Report struct {
	World   int   // number of ranks of the job, as far as the dumps show
	Ranks   []int // with a dump of this run
	Without []int // ranks without a dump
	Stale   []int // ranks whose dump is of an earlier run; they count as ranks without a dump
	Hangs   []Hang
	// Why the dumps do not show whether the job hangs; empty if they do.
	NotJudged string
}

// Analyze compares the dumps of a job's ranks. Dumps of one rank count once. It does not change
// them. problems are why other dumps were not read: an UnreadableError tells a rank with such a
// dump from one without.
func Analyze(dumps []*Dump, problems ...error) Report {
	j := newJob(dumps)
	for _, problem := range problems {
		if unreadable, ok := errors.AsType[*UnreadableError](problem); ok {
			if rank, ok := RankOf(unreadable.Path); ok {
				j.unreadable = append(j.unreadable, rank)
			}
		}
	}
	r := Report{World: j.world, Ranks: slices.Sorted(maps.Keys(j.dumps)), Without: j.without, Stale: j.stale}
	// Half of the ranks are needed to know the majority.
	if 2*len(r.Ranks) < r.World {
		r.NotJudged = "fewer than half of the ranks left a dump"
		return r
	}
	var all []*wait
	for _, g := range j.groups {
		if w := g.stuck(j); w != nil {
			all = append(all, w)
		}
	}
	all = append(all, j.transfers()...)
	all = append(all, j.failed(all)...)
	slices.SortStableFunc(all, func(a, b *wait) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.group.String(), b.group.String()))
	})
	if len(all) > 0 && j.running(all) {
		r.NotJudged = "the ranks waited for less time when they were dumped than between other operations " +
			"(dump again while the job hangs)"
		return r
	}
	r.Hangs = j.causes(all)
	return r
}

func (j *job) isUnreadable(rank int) bool { return slices.Contains(j.unreadable, rank) }

// running reports whether the waits are no longer than the time that passes between operations
// anyway: dumps of a job that runs show the operations in which the ranks just are.
func (j *job) running(all []*wait) bool {
	var waited time.Duration
	for _, d := range j.dumps {
		if d.Written.IsZero() {
			return false
		}
	}
	for _, w := range all {
		if w.since.IsZero() || len(w.differing) > 0 {
			return false
		}
		for _, rank := range w.waiting {
			waited = max(waited, j.dumps[rank].Written.Sub(w.since))
		}
	}
	return waited >= 0 && waited <= j.pause()
}

// pause returns the longest time between two operations of a rank.
func (j *job) pause() (longest time.Duration) {
	for _, d := range j.dumps {
		longest = max(longest, cmp.Or(d.pause, pause(d.Entries)))
	}
	return longest
}

// restart is how much older than the oldest entries of the others the newest entry of a dump of an
// earlier run is, at least. Ranks begin their first collective within less time of each other, and
// a run hangs for minutes before it ends.
const restart = time.Minute

// job is what all dumps have in common.
type job struct {
	dumps   map[int]*Dump
	world   int
	without []int
	stale   []int
	// Ranks whose dump cannot be read.
	unreadable []int

	groups  []*group
	current map[int]*Entry // the first operation that each rank has not finished; later ones are queued behind it
}

func newJob(dumps []*Dump) *job {
	j := &job{dumps: map[int]*Dump{}, current: map[int]*Entry{}}
	for _, d := range dumps {
		if old := j.dumps[d.Rank]; old == nil || better(d, old) {
			j.dumps[d.Rank] = d
		}
	}
	for rank, d := range j.dumps {
		older := countIf(j.dumps, func(o *Dump) bool { return o != d && d.newest().Add(restart).Before(o.oldest()) })
		if 2*older > len(j.dumps)-1 {
			j.stale = append(j.stale, rank)
		}
	}
	slices.Sort(j.stale)
	for _, rank := range j.stale {
		delete(j.dumps, rank)
	}
	j.collectGroups()
	for rank := range j.world {
		if j.dumps[rank] == nil && !slices.Contains(j.stale, rank) {
			j.without = append(j.without, rank)
		}
	}
	byName := map[GroupName][]*group{}
	for _, g := range j.groups {
		g.complete(j)
		byName[g.name] = append(byName[g.name], g)
	}
	for rank, d := range j.dumps {
		for i := range d.Entries {
			if e := &d.Entries[i]; !e.finished() && (e.PointToPoint || slices.ContainsFunc(byName[e.Group], func(g *group) bool {
				return g.byRank[rank][e.Sequence] == e && g.waits(j, rank, e.Sequence)
			})) {
				j.current[rank] = e
				break
			}
		}
	}
	return j
}

// better reports whether a dump says more than another one of the same rank: a newer one, or one
// with stacks.
func better(d, old *Dump) bool {
	if c := d.newest().Compare(old.newest()); c != 0 {
		return c > 0
	}
	return d.frames() > old.frames()
}

func (d *Dump) frames() (n int) {
	for i := range d.Entries {
		n += len(d.Entries[i].Frames)
	}
	return n
}

func (d *Dump) oldest() time.Time {
	if len(d.Entries) == 0 {
		return time.Time{}
	}
	return d.Entries[0].Created
}

func (d *Dump) newest() time.Time {
	if len(d.Entries) == 0 {
		return time.Time{}
	}
	return d.Entries[len(d.Entries)-1].Created
}

func countIf(all map[int]*Dump, is func(*Dump) bool) (n int) {
	for _, d := range all {
		if is(d) {
			n++
		}
	}
	return n
}

// wait is an operation that does not end, before waits are followed to their cause.
type wait struct {
	cause     Cause
	group     GroupName
	sequence  int64
	operation string
	detail    string
	waiting   []int
	queued    []int // of waiting: the rank's device is still in an earlier operation
	since     time.Time
	// Ranks that are waited for. Ranks in absent may wait elsewhere, the others have reached the
	// operation.
	differing, stalled, absent, dead []int
	uncertain                        bool
	blocks                           []*wait // in which absent or stalled ranks wait
	follows                          bool    // all of the ranks that are waited for wait elsewhere
}

// causes returns the waits that follow from no other one.
func (j *job) causes(all []*wait) []Hang {
	in := map[int][]*wait{} // by rank that waits
	for _, w := range all {
		for _, rank := range slices.Concat(w.waiting, w.differing) {
			in[rank] = append(in[rank], w)
		}
	}
	for _, w := range all {
		w.follow(in)
	}
	for _, w := range all {
		w.explain(j)
	}
	var hangs []Hang
	for _, w := range all {
		if w.follows || slices.ContainsFunc(w.blocks, func(b *wait) bool { return subset(w.guilty(), b.guilty()) }) {
			continue
		}
		sameRanks := func(h Hang) bool { return len(h.Ranks) > 0 && slices.Equal(h.Ranks, w.guilty()) }
		if slices.ContainsFunc(hangs, sameRanks) {
			continue // the same ranks are waited for in an earlier operation
		}
		hangs = append(hangs, j.hang(w))
	}
	doubtTransfers(hangs)
	// A rank that is proven to be missing explains why others wait, so ranks without a dump prove
	// nothing.
	if slices.ContainsFunc(hangs, func(h Hang) bool { return h.Cause != Dead && h.Certain && len(h.Ranks) > 0 }) {
		hangs = slices.DeleteFunc(hangs, func(h Hang) bool {
			return h.Cause == Dead && !slices.ContainsFunc(h.Ranks, func(rank int) bool { return !j.isUnreadable(rank) })
		})
		for i := range hangs {
			hangs[i].Certain = hangs[i].Certain && hangs[i].Cause != Dead
		}
	}
	if len(hangs) == 0 && len(all) > 0 {
		hangs = append(hangs, circle(all))
	}
	for i := range hangs {
		h := &hangs[i]
		for rank := range in {
			if !slices.Contains(h.Waiting, rank) && !slices.Contains(h.Ranks, rank) &&
				!slices.ContainsFunc(hangs, func(o Hang) bool { return slices.Contains(o.Waiting, rank) }) {
				h.Elsewhere = append(h.Elsewhere, rank)
			}
		}
		slices.Sort(h.Elsewhere)
	}
	return hangs
}

// doubtTransfers marks hangs as uncertain if ranks of Gloo, which records no send and receive, may
// wait for each other in one.
func doubtTransfers(hangs []Hang) {
	missing := map[int]bool{}
	for _, h := range hangs {
		for _, rank := range h.Ranks {
			if last := h.Last[rank]; h.Cause == Missing && last != nil && last.Backend == "gloo" {
				missing[rank] = true
			}
		}
	}
	if len(missing) < 2 {
		return
	}
	for i := range hangs {
		h := &hangs[i]
		if h.Cause == Missing && slices.ContainsFunc(h.Ranks, func(rank int) bool { return missing[rank] }) {
			h.Certain = false
			h.Detail = "Gloo does not record send and recv, in which these ranks may wait for each other"
		}
	}
}

// follow removes ranks that wait in other operations from the ranks that are waited for.
func (w *wait) follow(in map[int][]*wait) {
	elsewhere := func(rank int) bool {
		found := false
		for _, other := range in[rank] {
			if other != w {
				found = true
				if !slices.Contains(w.blocks, other) {
					w.blocks = append(w.blocks, other)
				}
			}
		}
		return found
	}
	waitedFor := len(w.guilty())
	w.absent = slices.DeleteFunc(w.absent, elsewhere)
	w.stalled = slices.DeleteFunc(w.stalled, elsewhere)
	w.follows = waitedFor > 0 && len(w.guilty()) == 0
	if waitedFor == 0 && slices.ContainsFunc(w.queued, elsewhere) {
		w.follows = true
	}
}

// explain removes ranks that the operations name in which the others wait. A rank without a dump
// may wait there, too, so that it is named with little certainty, and not at all if it left a dump.
func (w *wait) explain(j *job) {
	if len(w.absent)+len(w.stalled) > 0 {
		w.dead = slices.DeleteFunc(w.dead, j.isUnreadable)
	}
	if len(w.blocks) == 0 || len(w.dead) == 0 || len(w.differing) > 0 {
		return
	}
	named := func(rank int) bool {
		return slices.ContainsFunc(w.blocks, func(b *wait) bool { return slices.Contains(b.guilty(), rank) })
	}
	if slices.ContainsFunc(slices.Concat(w.absent, w.stalled), func(rank int) bool { return !named(rank) }) {
		return
	}
	w.absent, w.stalled, w.uncertain = nil, nil, true
	w.dead = slices.DeleteFunc(w.dead, func(rank int) bool { return named(rank) || j.isUnreadable(rank) })
}

// guilty returns the ranks that are waited for, in order.
func (w *wait) guilty() []int {
	all := slices.Concat(w.differing, w.stalled, w.absent, w.dead)
	if len(w.differing) > 0 {
		all = slices.Clone(w.differing) // ranks abort after a mismatch, so the others may be its victims
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func subset(a, b []int) bool {
	return !slices.ContainsFunc(a, func(rank int) bool { return !slices.Contains(b, rank) })
}

func (j *job) hang(w *wait) Hang {
	h := Hang{
		Cause: w.reason(), Ranks: w.guilty(), Group: w.group, Sequence: w.sequence, Operation: w.operation,
		Detail: w.detail, Waiting: w.waiting, Since: w.since, Last: map[int]*Entry{}, Certain: !w.uncertain,
	}
	for _, rank := range h.Ranks {
		if h.Cause == Dead && j.isUnreadable(rank) {
			h.Unreadable = true
		}
		if d := j.dumps[rank]; d != nil && len(d.Entries) > 0 {
			h.Last[rank] = &d.Entries[len(d.Entries)-1]
		}
	}
	return h
}

// reason returns the strongest cause. The dumps of missing ranks prove more than absent dumps.
func (w *wait) reason() Cause {
	switch {
	case w.cause != "":
		return w.cause
	case len(w.differing) > 0:
		return Mismatched
	case len(w.absent) > 0:
		return Missing
	case len(w.stalled) > 0:
		return Stalled
	case len(w.dead) > 0:
		return Dead
	default:
		return Stalled
	}
}

// circle describes ranks that wait for each other in several operations.
func circle(all []*wait) Hang {
	first := all[0]
	h := Hang{
		Cause: Mismatched, Group: first.group, Sequence: first.sequence, Operation: first.operation,
		Detail: "the ranks enter several operations in different orders and wait for each other",
		Since:  first.since, Certain: true,
	}
	for _, w := range all {
		h.Waiting = append(h.Waiting, w.waiting...)
	}
	slices.Sort(h.Waiting)
	h.Waiting = slices.Compact(h.Waiting)
	return h
}
