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

// maxJobs bounds the loops that are known, maxRanks the ranks of one.
const maxJobs, maxRanks = 1 << 12, 1 << 16

// Loop identifies ranks that are compared with each other.
type Loop struct{ Service, Job, Name string }

// Limits of Jobs.
type Limits struct {
	MaxWait    time.Duration // how long a step waits for missing ranks
	MinRanks   int           // fewer are not compared
	MaxWaiting int           // bounds the steps that wait, each rank's counted, over all loops
}

// Outcome is the outcome of a step.
type Outcome uint8

// Outcomes of a step.
const (
	Taken Outcome = iota
	Late          // the step was compared already
	Full          // there was no room
)

// Jobs collects the steps of the ranks of jobs until they can be compared. T is the caller's data for a rank's step.
type Jobs[T any] struct {
	limits  Limits
	loops   map[Loop]*loop[T]
	waiting int
}

type loop[T any] struct {
	world    int64 // 0 where unknown
	steps    map[stepID]*step[T]
	ranks    map[int64]lastStep
	run      int64  // number of the newest run
	begun    uint64 // halfway between the last end before it and the start of its first step, unix ns; 0: of the first run
	compared int64  // highest index compared in that run
	newest   uint64 // end of the newest step, unix ns
	seen     int64  // when the newest step arrived
	history  History
}

// stepID is a step of a run of the loop. A job that is restarted from a checkpoint starts a new run.
type stepID struct{ run, index int64 }

func (a stepID) compare(b stepID) int {
	return cmp.Or(cmp.Compare(a.run, b.run), cmp.Compare(a.index, b.index))
}

// lastStep is the newest step of a rank.
type lastStep struct {
	stepID
	end uint64
}

type step[T any] struct {
	first int64 // when the first rank's step arrived
	ranks map[int64]T
}

// noneCompared is below every index.
const noneCompared = -1 << 63

// NewJobs returns an empty collection.
func NewJobs[T any](limits Limits) *Jobs[T] {
	return &Jobs[T]{limits: limits, loops: make(map[Loop]*loop[T])}
}

// Waiting returns the number of steps that wait, each rank's counted.
func (g *Jobs[T]) Waiting() int { return g.waiting }

// Add takes a rank's step. start and end are unix ns on the rank's clock, now is the time by a clock that is not set;
// world is the number of ranks, 0 if it is not known. The same step of the same rank replaces the one before.
//
// A rank whose index does not increase although the step starts after its previous one ended has begun a new run (a
// job that was restarted from a checkpoint), however far back. Late steps of the previous run, which start in the
// first half of the pause or before, are separated from it, because ranks' clocks differ.
func (g *Jobs[T]) Add(key Loop, world, rank, index int64, start, end uint64, now int64, x T) Outcome {
	l := g.loops[key]
	if l == nil {
		if len(g.loops) >= maxJobs {
			return Full
		}
		// the caller's may refer to a batch's memory
		key = Loop{strings.Clone(key.Service), strings.Clone(key.Job), strings.Clone(key.Name)}
		l = &loop[T]{steps: make(map[stepID]*step[T]), ranks: make(map[int64]lastStep), compared: noneCompared}
		g.loops[key] = l
	}
	id := stepID{l.run, index}
	last, known := l.ranks[rank]
	switch {
	case start < l.begun: // a late step of the previous run
		id.run--
		if known {
			id.run = min(id.run, last.run)
		}
	case known && last.run == l.run && index <= last.index && start >= last.end:
		l.run++
		l.begun, l.compared = start-(start-min(start, l.newest))/2, noneCompared
		l.history = History{} // ranks may be on other hosts
		id.run = l.run
	}
	l.world, l.seen, l.newest = world, now, max(l.newest, end)
	if !known && len(l.ranks) >= maxRanks {
		return Full
	}
	if !known || last.compare(id) < 0 {
		l.ranks[rank] = lastStep{id, end}
	}

	s := l.steps[id]
	if s == nil {
		if id.run < l.run || id.index <= l.compared {
			return Late
		}
		s = &step[T]{first: now, ranks: make(map[int64]T)}
	}
	if _, again := s.ranks[rank]; !again {
		if g.waiting >= g.limits.MaxWaiting {
			return Full
		}
		g.waiting++
	}
	s.ranks[rank] = x
	l.steps[id] = s
	return Taken
}

// Compared is a step that is complete or has waited long enough.
type Compared[T any] struct {
	Loop   Loop
	Index  int64
	Newest uint64 // end of the loop's newest step, unix ns
	Ranks  []int64
	Steps  []T // by rank, as Ranks
	// Enough reports whether there are enough ranks for a comparison. Steps without enough are only removed.
	Enough bool
	// History holds the loop's earlier steps, for the comparison of this one.
	History *History
}

// Due removes the steps that are complete or have waited long enough, all of them if final, and passes each to take: of
// one loop in the order of their indices. Loops without steps since before forget are dropped.
func (g *Jobs[T]) Due(now, forget int64, final bool, take func(Compared[T])) {
	for key, l := range g.loops {
		for _, id := range slices.SortedFunc(maps.Keys(l.steps), stepID.compare) {
			s := l.steps[id]
			complete := l.world > 0 && int64(len(s.ranks)) >= l.world
			if !complete && !final && now-s.first < int64(g.limits.MaxWait) {
				continue
			}
			delete(l.steps, id)
			g.waiting -= len(s.ranks)
			if id.run == l.run {
				l.compared = max(l.compared, id.index)
			}
			c := Compared[T]{
				Loop: key, Index: id.index, Newest: l.newest, Enough: len(s.ranks) >= g.limits.MinRanks, History: &l.history,
			}
			c.Ranks = slices.Sorted(maps.Keys(s.ranks))
			for _, rank := range c.Ranks {
				c.Steps = append(c.Steps, s.ranks[rank])
			}
			take(c)
		}
		if len(l.steps) == 0 && l.seen < forget {
			delete(g.loops, key)
		}
	}
}
