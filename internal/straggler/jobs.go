// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxJobs bounds the loops that are known, maxRanks the ranks of one, maxRuns its runs whose late
// steps are accepted.
const maxJobs, maxRanks, maxRuns = 1 << 12, 1 << 16, 64

// Loop identifies ranks that are compared with each other.
type Loop struct{ Service, Job, Name string }

// Limits of Jobs.
type Limits struct {
	MaxWait    time.Duration // how long a step waits for missing ranks
	MinRanks   int           // fewer are not compared
	MaxWaiting int           // bounds the steps that wait, each rank's counted, over all loops
	// EverySteps is the mean number of steps until an innocent rank of a job is named, at least.
	// Default 10,000.
	EverySteps float64
}

// Outcome is the outcome of a step.
type Outcome uint8

// Outcomes of a step.
const (
	Taken  Outcome = iota
	Late           // the step was compared already
	Full           // there was no room
	Shared         // two processes report the same rank at the same time
)

// Jobs collects the steps of the ranks of jobs until they can be compared. T is the caller's data
// for a rank's step.
type Jobs[T any] struct {
	limits  Limits
	loops   map[Loop]*loop[T]
	waiting int
}

type loop[T any] struct {
	world   int64 // 0 where unknown
	steps   map[stepID]*step[T]
	ranks   map[int64]*lastStep
	runs    []*pass // in the order of time, never empty
	newest  uint64  // end of the newest step, unix ns
	seen    int64   // when the newest step arrived
	shared  bool    // two processes report the same rank at the same time
	history History
}

// pass is a run of the loop, in which the index increases: an epoch, an evaluation, or the time
// until a job is restarted from a checkpoint. Each rank's restarts are its own: spans arrive in
// batches, so that one rank's next run may arrive before another's last. Runs of different ranks
// are the same if they are at the same time.
type pass struct {
	begun    uint64 // halfway between the last end before it and the start of its first step, unix ns; 0: of the first run
	end      uint64 // of its newest step, unix ns
	compared int64  // highest index compared
}

// stepID is a step of a run of the loop.
type stepID struct {
	run   *pass
	index int64
}

func (a stepID) compare(b stepID) int {
	return cmp.Or(cmp.Compare(a.run.begun, b.run.begun), cmp.Compare(a.index, b.index))
}

// lastStep is the newest step of a rank, and the processes that reported the rank.
type lastStep struct {
	stepID
	end       uint64
	processes [2]process // the newest first
}

// process is when a process reported steps, unix ns, and the run of its newest one.
type process struct {
	id, start, end uint64
	run            *pass
}

// Report is a rank's step. Start and End are unix ns on the rank's clock. World is the number of
// ranks and Process identifies the process; both are 0 if unknown.
type Report struct {
	World, Rank, Index  int64
	Start, End, Process uint64
}

type step[T any] struct {
	first int64 // when the first rank's step arrived
	ranks map[int64]reported[T]
}

type reported[T any] struct {
	start, process uint64
	of             T
}

// noneCompared is below every index.
const noneCompared = -1 << 63

// NewJobs returns an empty collection.
func NewJobs[T any](limits Limits) *Jobs[T] {
	return &Jobs[T]{limits: limits, loops: make(map[Loop]*loop[T])}
}

// Waiting returns the number of steps that wait, each rank's counted.
func (g *Jobs[T]) Waiting() int { return g.waiting }

// Add takes a rank's step. now is the time by a clock that is not set. The same step of the same
// rank replaces the one before.
//
// Two processes that report the same rank at the same time belong to two jobs with one ID, whose
// ranks cannot be distinguished: from then on no step of the loop is compared.
func (g *Jobs[T]) Add(key Loop, s Report, now int64, x T) Outcome {
	l := g.loops[key]
	if l == nil {
		if len(g.loops) >= maxJobs {
			return Full
		}
		// the caller's may refer to a batch's memory
		key = Loop{strings.Clone(key.Service), strings.Clone(key.Job), strings.Clone(key.Name)}
		l = &loop[T]{
			steps: make(map[stepID]*step[T]), ranks: make(map[int64]*lastStep), runs: []*pass{{compared: noneCompared}},
			history: History{every: g.limits.EverySteps},
		}
		g.loops[key] = l
	}
	last := l.ranks[s.Rank]
	id := stepID{l.runOf(last, s), s.Index}
	l.world, l.seen, l.newest = s.World, now, max(l.newest, s.End)
	if last == nil {
		if len(l.ranks) >= maxRanks {
			return Full
		}
		last = &lastStep{stepID: id, end: s.End}
		l.ranks[s.Rank] = last
	}
	if id.run == nil {
		return Late
	}
	id.run.end = max(id.run.end, s.End)
	if last.compare(id) < 0 {
		last.stepID, last.end = id, s.End
	}
	if last.by(s, id.run) {
		l.history.forget(s.Rank) // it may be on another host
	}
	l.shared = l.shared || last.contradicted()

	waits := l.steps[id]
	if waits == nil {
		if !l.shared && id.index <= id.run.compared {
			return Late
		}
		waits = &step[T]{first: now, ranks: make(map[int64]reported[T])}
	}
	before, again := waits.ranks[s.Rank]
	if again {
		apart := max(before.start, s.Start) - min(before.start, s.Start)
		l.shared = l.shared || before.process != s.Process || apart > (s.End-s.Start)/2
	}
	switch {
	case l.shared:
		return Shared
	case again:
	case g.waiting >= g.limits.MaxWaiting:
		return Full
	default:
		g.waiting++
	}
	waits.ranks[s.Rank] = reported[T]{s.Start, s.Process, x}
	l.steps[id] = waits
	return Taken
}

// runOf returns the run of a rank's step; nil if it is too old. last is the rank's newest step, nil
// if there is none.
func (l *loop[T]) runOf(last *lastStep, s Report) *pass {
	length := s.End - s.Start
	if last == nil {
		return l.at(s.Start)
	}
	slack := length / 2
	if s.Process != 0 {
		switch s.Process {
		case last.processes[0].id:
		case last.processes[1].id:
			return last.processes[1].run
		default:
			slack = max(slack, uint64(maxSkew)) // started on another host, perhaps
		}
	}
	k := slices.Index(l.runs, last.run)
	switch {
	case k < 0 || s.Start+length < last.run.begun: // a late step of a run before
		return l.at(s.Start)
	case s.Index > last.index:
		// After a pause, it may be the step of a restarted job that this rank had not reached
		// before.
		pause := s.Start > last.end+uint64(s.Index-last.index)*length
		if !pause || k+1 == len(l.runs) || s.Start < l.runs[k+1].begun {
			return last.run
		}
		return l.at(s.Start)
	case s.Start+slack < last.end: // a late step
		return l.at(s.Start)
	}
	// The rank has begun another run. Clocks of ranks differ by less than half of a step or of the
	// pause.
	next := k + 1
	for next < len(l.runs) && l.runs[next].begun <= s.Start+length/2 {
		next++
	}
	if next > k+1 {
		return l.runs[next-1]
	}
	r := &pass{begun: s.Start - (s.Start-min(s.Start, last.run.end))/2, compared: noneCompared}
	r.begun = max(r.begun, last.run.begun+1)
	l.runs = slices.Insert(l.runs, next, r)
	if len(l.runs) > maxRuns {
		l.runs = slices.Delete(l.runs, 0, 1)
	}
	return r
}

// at returns the run at a time; nil if the time is before all known runs.
func (l *loop[T]) at(start uint64) *pass {
	for _, r := range slices.Backward(l.runs) {
		if r.begun <= start {
			return r
		}
	}
	return nil
}

// by records which process reported the step, and reports whether it is another one than before.
func (p *lastStep) by(s Report, in *pass) (changed bool) {
	if s.Process == 0 {
		return false
	}
	for i := range p.processes {
		if o := &p.processes[i]; o.id == s.Process {
			if s.End > o.end {
				o.end, o.run = s.End, in
			}
			o.start = min(o.start, s.Start)
			return false
		}
	}
	changed = p.processes[0].id != 0
	p.processes[1], p.processes[0] = p.processes[0], process{s.Process, s.Start, s.End, in}
	return changed
}

// contradicted reports whether two processes reported the rank at the same time. Ranks are
// restarted on other hosts, whose clocks differ, so that a short overlap means nothing.
func (p *lastStep) contradicted() bool {
	a, b := p.processes[0], p.processes[1]
	if a.id == 0 || b.id == 0 {
		return false
	}
	from, to := max(a.start, b.start), min(a.end, b.end)
	return to > from && to-from > uint64(maxSkew) && to-from > min(a.end-a.start, b.end-b.start)/4
}

// maxSkew is how far clocks of hosts may differ.
const maxSkew = 500 * time.Millisecond

// Compared is a step that is complete or has waited long enough.
type Compared[T any] struct {
	Loop   Loop
	Index  int64
	Newest uint64 // end of the loop's newest step, unix ns
	Ranks  []int64
	Steps  []T // by rank, as Ranks
	// Enough reports whether there are enough ranks for a comparison. Steps without enough are only
	// removed.
	Enough bool
	// Shared reports that two processes report the same ranks; then Enough is false.
	Shared bool
	// World is the number of ranks of the job; 0 if unknown.
	World int64
	// History holds the loop's earlier steps, for the comparison of this one.
	History *History
}

// Missing reports whether ranks did not report the step.
func (c *Compared[T]) Missing() bool { return int64(len(c.Ranks)) < c.World }

// Due removes the steps that are complete or have waited long enough, all of them if final, and
// passes each to take: of one loop in the order of their indices. Loops without steps since before
// forget are dropped.
func (g *Jobs[T]) Due(now, forget int64, final bool, take func(Compared[T])) {
	for key, l := range g.loops {
		for _, id := range slices.SortedFunc(maps.Keys(l.steps), stepID.compare) {
			s := l.steps[id]
			complete := l.world > 0 && int64(len(s.ranks)) >= l.world
			if !complete && !l.shared && !final && now-s.first < int64(g.limits.MaxWait) {
				continue
			}
			delete(l.steps, id)
			g.waiting -= len(s.ranks)
			id.run.compared = max(id.run.compared, id.index)
			c := Compared[T]{
				Loop: key, Index: id.index, Newest: l.newest, Shared: l.shared, World: l.world, History: &l.history,
				Enough: len(s.ranks) >= g.limits.MinRanks && !l.shared,
			}
			c.Ranks = slices.Sorted(maps.Keys(s.ranks))
			for _, rank := range c.Ranks {
				c.Steps = append(c.Steps, s.ranks[rank].of)
			}
			take(c)
		}
		if len(l.steps) == 0 && l.seen < forget {
			l.history.clear()
			delete(g.loops, key)
		}
	}
}
