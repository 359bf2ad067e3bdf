// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"slices"
)

// Meeting is the last collective that a rank ran in a step with a process group, or its last
// transfer with one rank.
type Meeting struct {
	Group    string // identity of the process group within the job
	Sequence int64  // number of the collective in the group; 0 for a transfer
	Peer     int64  // rank on the other side of a transfer; -1 for a collective
}

// Alone is the reason why a rank is compared with no other.
type Alone uint8

// Reasons.
const (
	NoPeer      Alone = iota // no other rank of its process groups reported the step
	OutOfStep                // the ranks of its process groups ended the step at different collectives
	aloneCauses              // number of reasons
)

// Peers divides the ranks of one step into sets whose work is comparable, and counts the ranks that
// are in none.
//
// Ranks that do the same work run the same collectives: ranks of a process group are peers if they
// ended the step at the same collective of the group, and so are the peers of peers. Ranks that
// transfer tensors to each other are different stages of a pipeline, whose work differs by design:
// a group with two stages of one pipeline has no peers. Stages without replicas are compared with
// one another, and so are all ranks if no collectives are known.
//
// Ranks that run no collective in a step, as between two synchronizations of gradients, are divided
// as in the last step that had some. A nil history remembers nothing.
func (h *History) Peers(ranks []Rank) (sets [][]Rank, alone [aloneCauses]int) {
	byRank := make(map[int64]int, len(ranks))
	groups := map[string]map[int64][]int{} // ranks by index, by the sequence at which they ended
	for i, r := range ranks {
		byRank[r.Rank] = i
		for _, m := range r.Meetings {
			if m.Peer >= 0 {
				continue
			}
			if groups[m.Group] == nil {
				groups[m.Group] = map[int64][]int{}
			}
			groups[m.Group][m.Sequence] = append(groups[m.Group][m.Sequence], i)
		}
	}
	pipelines := newUnion(len(ranks))
	for i, r := range ranks {
		for _, m := range r.Meetings {
			if j, ok := byRank[m.Peer]; ok && m.Peer >= 0 {
				pipelines.join(i, j)
			}
		}
	}
	peers := newUnion(len(ranks))
	outOfStep := make([]bool, len(ranks))
	for _, bySequence := range groups {
		if spans(bySequence, pipelines) {
			continue
		}
		for _, at := range bySequence {
			for _, i := range at {
				peers.join(at[0], i)
				outOfStep[i] = outOfStep[i] || len(bySequence) > 1
			}
		}
	}
	remembered := h.joinRemembered(ranks, peers)
	members := map[int][]int{}
	var stages []int // and ranks without known collectives
	for i, r := range ranks {
		switch {
		case peers.size(i) > 1:
			members[peers.find(i)] = append(members[peers.find(i)], i)
		case outOfStep[i]:
			alone[OutOfStep]++
		case remembered[i]:
			alone[NoPeer]++
		case pipelines.size(i) > 1 || len(r.Meetings) == 0:
			stages = append(stages, i)
		default:
			alone[NoPeer]++
		}
	}
	if len(stages) == 1 {
		alone[NoPeer]++
	} else if len(stages) > 1 {
		members[-1] = stages
	}
	for key, list := range members {
		set := make([]Rank, len(list))
		for k, i := range list {
			set[k] = ranks[i]
		}
		sets = append(sets, set)
		if key >= 0 {
			h.remember(set)
		}
	}
	slices.SortFunc(sets, func(x, y []Rank) int { return cmp.Compare(x[0].Rank, y[0].Rank) })
	return sets, alone
}

// joinRemembered joins the ranks without a collective that were peers before, and returns which
// ranks have been.
func (h *History) joinRemembered(ranks []Rank, peers *union) []bool {
	remembered := make([]bool, len(ranks))
	if h == nil {
		return remembered
	}
	first := map[int64]int{} // by set
	for i := range ranks {
		set, known := h.sets[ranks[i].Rank]
		if !known || slices.ContainsFunc(ranks[i].Meetings, func(m Meeting) bool { return m.Peer < 0 }) {
			continue
		}
		remembered[i] = true
		if j, ok := first[set]; ok {
			peers.join(j, i)
		} else {
			first[set] = i
		}
	}
	return remembered
}

// remember records that ranks are peers. The number of a set is its first rank.
func (h *History) remember(set []Rank) {
	if h == nil {
		return
	}
	if h.sets == nil {
		h.sets = map[int64]int64{}
	}
	for _, r := range set {
		if _, known := h.sets[r.Rank]; known || len(h.sets) < maxRanks {
			h.sets[r.Rank] = set[0].Rank
		}
	}
}

// spans reports whether two ranks of a group are in one pipeline.
func spans(bySequence map[int64][]int, pipelines *union) bool {
	seen := map[int]bool{}
	for _, at := range bySequence {
		for _, i := range at {
			p := pipelines.find(i)
			if seen[p] {
				return true
			}
			seen[p] = true
		}
	}
	return false
}

// union is a partition of the numbers from 0, whose parts are joined.
type union struct{ parent, count []int }

func newUnion(n int) *union {
	u := &union{parent: make([]int, n), count: make([]int, n)}
	for i := range n {
		u.parent[i], u.count[i] = i, 1
	}
	return u
}

// find returns the number that names the part of i.
func (u *union) find(i int) int {
	for u.parent[i] != i {
		u.parent[i] = u.parent[u.parent[i]]
		i = u.parent[i]
	}
	return i
}

func (u *union) size(i int) int { return u.count[u.find(i)] }

func (u *union) join(i, j int) {
	i, j = u.find(i), u.find(j)
	if i == j {
		return
	}
	if u.count[i] < u.count[j] {
		i, j = j, i
	}
	u.parent[j] = i
	u.count[i] += u.count[j]
}
