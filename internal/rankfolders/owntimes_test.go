// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rankfolders

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/straggler"
)

// peers returns the ranks with a profile that do the same work.
func (j *job) peers(absence string) (sets [][]int) {
	if j.topology != "pp_dp" {
		return [][]int{j.present(absence)}
	}
	sets = make([][]int, j.tensor)
	for _, r := range j.present(absence) {
		sets[r%j.tensor] = append(sets[r%j.tensor], r)
	}
	return slices.DeleteFunc(sets, func(set []int) bool { return len(set) < 2 })
}

// roundsOf returns the own times of peers before each collective that shows them, in ns.
func (j *job) roundsOf(set []int) (list []straggler.Round) {
	if j.topology == "pp_dp" || j.topology == "dp_overlap" {
		return nil
	}
	for s := range j.steps {
		for k := range j.rounds {
			groups := map[int]*straggler.Round{}
			for i, r := range set {
				g := groups[j.group(k, r)]
				if g == nil {
					g = &straggler.Round{Step: s}
					groups[j.group(k, r)] = g
				}
				g.Ranks, g.Own = append(g.Ranks, i), append(g.Own, 1e6*j.own(s, k, r))
			}
			for _, at := range slices.Sorted(maps.Keys(groups)) {
				if s+k > 0 && len(groups[at].Ranks) > 1 {
					list = append(list, *groups[at])
				}
			}
		}
	}
	return list
}

// named returns the rank that the analysis names by own times; -1: none.
func (j *job) named(out *run, absence string) (rank int) {
	const least = 20_000 // ns
	length := 1e6 * (out.began[0][j.steps-1] - out.began[0][0]) / float64(j.steps-1)
	rank, worst := -1, 0.0
	for _, set := range j.peers(absence) {
		own := make(straggler.OwnTimes, j.steps)
		for s := range own {
			for _, r := range set {
				sum := 0.0
				for k := range j.rounds {
					sum += j.own(s, k, r)
				}
				own[s] = append(own[s], 1e6*sum)
			}
		}
		of := len(j.present(absence))
		late := straggler.LateRanks(own, length, of)
		if len(late) == 0 || late[0].P == 0 {
			if list := straggler.LateRanksByRound(own, j.roundsOf(set), length, least, of); len(list) > 0 {
				late = list
			}
		}
		if len(late) > 0 && late[0].Excess > worst {
			rank, worst = set[late[0].Rank], late[0].Excess
		}
	}
	return rank
}

// Without files, thousands of jobs can be decided. OTELGPU_RANK_JOBS is their number.
func TestDecisionsByOwnTimes(t *testing.T) {
	n := 300
	if jobs, err := strconv.Atoi(os.Getenv("OTELGPU_RANK_JOBS")); err == nil {
		n = jobs
	}
	scores := map[string]*score{}
	for seed := range n {
		j, out := planted(uint64(seed) + firstSeed())
		if out == nil || j.fault == "slow_link" {
			continue
		}
		for _, absence := range []string{"complete", "without an innocent rank", "without the late rank"} {
			if absence != "complete" && (j.ranks < 4 || j.ranks > 16 || j.fault == "none" && absence == "without the late rank") {
				continue
			}
			rank, healthy := j.named(out, absence), j.fault == "none" || absence == "without the late rank"
			for _, key := range []string{absence, fmt.Sprintf("%s, %.1f ms", absence, j.jitter), fmt.Sprintf("%s, %d steps", absence, j.steps)} {
				if scores[key] == nil {
					scores[key] = &score{}
				}
				scores[key].add(healthy, healthy && rank < 0 || !healthy && rank == j.culprit, rank < 0)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(scores)) {
		s := scores[key]
		t.Logf("%-36s %s", key, s)
		if wrong := s.wrong + s.alarms; n >= 300 && key == "complete" {
			assert.Greater(t, float64(s.right), 0.8*float64(s.right+s.wrong+s.missed), key)
			assert.LessOrEqual(t, float64(wrong), 0.02*float64(s.right+wrong), key)
		}
	}
}
