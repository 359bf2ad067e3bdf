// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"maps"
	"math"

	"github.com/otelgpu/otelgpu/internal/straggler"
)

// members returns the ranks with runs in each group, and the groups in which pairs of ranks send
// and receive.
func (a *analysis) members(all []straggler.Collective) (groups map[string]map[int64]bool, paired map[string]bool) {
	groups, paired = map[string]map[int64]bool{}, map[string]bool{}
	for i := range all {
		c := &all[i]
		if groups[c.Group] == nil {
			groups[c.Group] = map[int64]bool{}
			if a.of(c.Rank).paired[c.Group] {
				paired[c.Group] = true
			}
		}
		groups[c.Group][c.Rank] = true
	}
	return groups, paired
}

// severalStages returns whether ranks contain two that send to each other: different stages of a
// pipeline.
func severalStages(groups map[string]map[int64]bool, paired map[string]bool) func(ranks map[int64]bool) bool {
	pairs := map[[2]int64]bool{}
	for group := range paired {
		for x := range groups[group] {
			for y := range groups[group] {
				if x != y {
					pairs[[2]int64{x, y}] = true
				}
			}
		}
	}
	return func(ranks map[int64]bool) bool {
		for p := range pairs {
			if ranks[p[0]] && ranks[p[1]] {
				return true
			}
		}
		return false
	}
}

// passed returns which messages pass results between stages of a pipeline that compute about
// equally long. Ranks of one stage have common collectives, as in tensor or data parallelism; the
// stage computes as long as the shortest of them, because a late rank does not make its stage
// longer by design.
func (a *analysis) passed(all []straggler.Collective) func(straggler.Identity) bool {
	groups, paired := a.members(all)
	if len(paired) == 0 {
		return nil
	}
	stage := map[int64]int64{} // ns that it computes, by rank
	for _, x := range a.job {
		stage[x.rank] = a.lines[x].computing.Length()
	}
	spans := severalStages(groups, paired)
	least := maps.Clone(stage)
	for _, ranks := range groups {
		if spans(ranks) {
			continue
		}
		for x := range ranks {
			for y := range ranks {
				least[x] = min(least[x], stage[y])
			}
		}
	}
	balanced := map[string]bool{}
	for group := range paired {
		shortest, longest := int64(math.MaxInt64), int64(0)
		for x := range groups[group] {
			shortest, longest = min(shortest, least[x]), max(longest, least[x])
		}
		balanced[group] = float64(longest) <= even*float64(shortest)
	}
	return func(k straggler.Identity) bool { return balanced[k.Group] }
}
