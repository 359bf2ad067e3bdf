// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"maps"
	"slices"
	"time"
)

// skew is how far apart the clocks of ranks are at most. A restart that repeats a step takes longer.
const skew = int64(5 * time.Second)

const maxPasses = 64 // of a step; older ones are forgotten

// pass is a step of several ranks.
type pass struct {
	from, to int64 // unix ns, of all ranks
	own      int64 // ns: the longest time that a rank worked for itself
}

// passes have the own time of the slowest rank of each step, for which the others waited. A step that
// a restart repeats has several passes.
type passes struct {
	steps  map[int64][]pass
	newest int64
}

func (x *pass) contains(s *Step) bool { return s.Start <= x.to+skew && s.End >= x.from-skew }

func (p *passes) add(s Step) {
	if s.Sync <= 0 {
		return
	}
	if p.steps == nil {
		p.steps = map[int64][]pass{}
	}
	all := pass{s.Start, s.End, s.End - s.Start - s.Sync}
	list := slices.DeleteFunc(p.steps[s.Index], func(x pass) bool { // several if s is between them
		if !x.contains(&s) {
			return false
		}
		all = pass{min(all.from, x.from), max(all.to, x.to), max(all.own, x.own)}
		return true
	})
	p.steps[s.Index] = append(list[max(0, len(list)+1-maxPasses):], all)
	p.newest = s.Index
	if len(p.steps) > 2*maxSteps {
		maps.DeleteFunc(p.steps, func(i int64, _ []pass) bool { return i <= p.newest-maxSteps || i >= p.newest+maxSteps })
	}
}

// wait returns how long a rank waited in a step for the slowest one, in ns.
func (p *passes) wait(s Step) int64 {
	if s.Sync <= 0 {
		return 0
	}
	list := p.steps[s.Index]
	for i := range list {
		if list[i].contains(&s) {
			return min(s.Sync, max(0, list[i].own-(s.End-s.Start-s.Sync)))
		}
	}
	return 0
}
