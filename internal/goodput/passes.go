// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"maps"
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

func (p *passes) of(s Step) *pass {
	list := p.steps[s.Index]
	for i := range list {
		if s.Start <= list[i].to+skew && s.End >= list[i].from-skew {
			return &list[i]
		}
	}
	return nil
}

func (p *passes) add(s Step) {
	if s.Sync <= 0 {
		return
	}
	own := s.End - s.Start - s.Sync
	if x := p.of(s); x != nil {
		x.from, x.to, x.own = min(x.from, s.Start), max(x.to, s.End), max(x.own, own)
		return
	}
	if p.steps == nil {
		p.steps = map[int64][]pass{}
	}
	list := p.steps[s.Index]
	p.steps[s.Index] = append(list[max(0, len(list)+1-maxPasses):], pass{s.Start, s.End, own})
	p.newest = s.Index
	if len(p.steps) > 2*maxSteps {
		maps.DeleteFunc(p.steps, func(i int64, _ []pass) bool { return i <= p.newest-maxSteps || i >= p.newest+maxSteps })
	}
}

// wait returns how long a rank waited in a step for the slowest one, in ns.
func (p *passes) wait(s Step) int64 {
	x := p.of(s)
	if s.Sync <= 0 || x == nil {
		return 0
	}
	return min(s.Sync, max(0, x.own-(s.End-s.Start-s.Sync)))
}
