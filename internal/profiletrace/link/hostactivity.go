// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

func (s *Sweep) flag(r *event.Record) vocabulary.Meaning {
	f := &s.flags[r.Name]
	if !f.Found {
		*f = vocabulary.MeaningOf(r.Kind, s.in.Names.Name(r.Name))
		if f.Queue && s.in.Count(event.KindStep) == 0 && !s.in.Names.AnyIs(vocabulary.Trains) {
			f.Class = timeline.RangeOutside
		}
	}
	return *f
}

// name sets the names of the range that the frame is.
func (f *frame) name(r *event.Record, fl *vocabulary.Meaning) {
	if fl.Tries && f.trial == 0 {
		f.trial, f.tried = r.Name, r.Key
	}
	switch {
	case fl.Moves && f.mover == 0:
		f.mover = r.Name
	case fl.Moves, r.Kind == event.KindRuntime, r.Kind == event.KindStep, fl.Class == timeline.RangeBuiltin:
	default:
		f.mover, f.caller = 0, r.Name
	}
	switch r.Kind {
	case event.KindOperator:
		f.Op, f.opAt, f.named = r.Name, r.Key, r.Name
	case event.KindAnnotation, event.KindModule:
		f.named, f.around = r.Name, r.Name
	case event.KindOther:
		f.named = r.Name
	}
}

// needs returns the time from which the host's activity may be queried.
func (s *Sweep) needs() int64 {
	if len(s.devices) < s.ordinals {
		return s.first
	}
	least := int64(math.MaxInt64)
	for _, d := range s.devices {
		least = min(least, d.verdicts.Needs(s.first))
	}
	return least
}

// previous returns the end of the launch before, of the thread or of its process's main one.
func (t *thread) previous(s *Sweep) int64 {
	last := t.last
	if p := t.process; p.hasMain {
		last = max(last, s.threads[p.main].last)
	}
	return last
}

// launched records a call that put work on a device.
func (t *thread) launched(r *event.Record) {
	t.last, t.recorded = r.Key+r.Duration, 0
	if p := t.process; !p.hasMain {
		p.main, p.hasMain = r.Track, true
	}
}

// around returns the logs of the threads that a launch may have waited for: its own, its process's
// main one, the one that launched before, and the ranges beside them.
func (s *Sweep) around(proc *Process, a *Activity, before uint32, hasBefore bool) []*timeline.Log {
	s.threadsOf = s.threadsOf[:0]
	put := func(track uint32) {
		t := &s.threads[track]
		for ; t != nil; t = t.beside {
			if slices.Contains(s.threadsOf, &t.log) {
				return
			}
			s.threadsOf = append(s.threadsOf, &t.log)
		}
	}
	if s.profiler != nil { // it delays any thread
		s.threadsOf = append(s.threadsOf, &s.profiler.log)
	}
	if a.HasLaunch {
		put(a.Launch.thread)
	}
	if proc.hasMain {
		put(proc.main)
	}
	if hasBefore {
		put(before)
	}
	return s.threadsOf
}

// others returns the frame in which a thread of the process other than around's was for more than
// half of the time; of several, the longest. Threads that wait do not count.
func (s *Sweep) others(proc *Process, from, to int64) (name uint32) {
	most := (to - from) / 2
	for i := range s.threads {
		t := &s.threads[i]
		if t.process != proc || t == s.profiler || slices.Contains(s.threadsOf, &t.log) {
			continue
		}
		n, d := t.log.Longest(from, to)
		if d > most && !vocabulary.ContainsAny(s.in.Names.Name(n), vocabulary.WaitingFrames) {
			most, name = d, n
		}
	}
	return name
}
