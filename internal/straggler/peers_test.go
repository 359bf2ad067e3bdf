// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// in returns a rank's last collective with a group, or its last transfer with a peer.
func in(group string, sequence int64) Meeting {
	return Meeting{Group: group, Sequence: sequence, Peer: -1}
}
func with(peer int64) Meeting { return Meeting{Group: "0 [all]", Peer: peer} }

func TestPeersRunTheSameCollectives(t *testing.T) {
	for name, c := range map[string]struct {
		ranks [][]Meeting
		want  [][]int64
		alone [aloneCauses]int
	}{
		"no collectives known": {ranks: [][]Meeting{nil, nil, nil}, want: [][]int64{{0, 1, 2}}},
		"data parallel": {
			ranks: [][]Meeting{{in("0", 7)}, {in("0", 7)}, {in("0", 7)}}, want: [][]int64{{0, 1, 2}},
		},
		"two groups that nothing joins": {
			ranks: [][]Meeting{{in("1", 7)}, {in("1", 7)}, {in("2", 9)}, {in("2", 9)}}, want: [][]int64{{0, 1}, {2, 3}},
		},
		"tensor parallel in data parallel": {
			ranks: [][]Meeting{
				{in("1 [0, 1]", 40), in("3 [0, 2]", 4)},
				{in("1 [0, 1]", 40), in("4 [1, 3]", 4)},
				{in("2 [2, 3]", 40), in("3 [0, 2]", 4)},
				{in("2 [2, 3]", 40), in("4 [1, 3]", 4)},
			},
			want: [][]int64{{0, 1, 2, 3}},
		},
		"pipeline of replicated stages, with a group of all": {
			ranks: [][]Meeting{
				{in("all", 3), in("1 [0, 1]", 5), with(2)},
				{in("all", 3), in("1 [0, 1]", 5), with(3)},
				{in("all", 3), in("2 [2, 3]", 5), with(0)},
				{in("all", 3), in("2 [2, 3]", 5), with(1)},
			},
			want: [][]int64{{0, 1}, {2, 3}},
		},
		"pipeline of single stages": {
			ranks: [][]Meeting{{in("all", 3), with(1)}, {in("all", 3), with(2)}, {in("all", 3)}},
			want:  [][]int64{{0, 1, 2}},
		},
		"one rank is a collective behind": {
			ranks: [][]Meeting{{in("0", 7)}, {in("0", 6)}, {in("0", 7)}}, want: [][]int64{{0, 2}},
			alone: [aloneCauses]int{OutOfStep: 1},
		},
		"a rank of another group did not report": {
			ranks: [][]Meeting{{in("1", 7)}, {in("1", 7)}, {in("2", 9)}}, want: [][]int64{{0, 1}},
			alone: [aloneCauses]int{NoPeer: 1},
		},
		"a transfer with a rank that did not report": {
			ranks: [][]Meeting{{with(5)}, {with(6)}}, alone: [aloneCauses]int{NoPeer: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ranks []Rank
			for i, m := range c.ranks {
				ranks = append(ranks, Rank{Rank: int64(i), Meetings: m})
			}
			sets, alone := (*History)(nil).Peers(ranks)
			var got [][]int64
			for _, set := range sets {
				var list []int64
				for _, r := range set {
					list = append(list, r.Rank)
				}
				got = append(got, list)
			}
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.alone, alone)
		})
	}
}

// A pipeline of two replicated stages that synchronizes gradients in every second step: stages are
// not compared with each other in the other steps, either.
func TestPeersAreRememberedInStepsWithoutCollectives(t *testing.T) {
	ranksOf := func(meetings ...[]Meeting) (out []Rank) {
		for i, m := range meetings {
			out = append(out, Rank{Rank: int64(i), Meetings: m})
		}
		return out
	}
	numbers := func(sets [][]Rank) (out [][]int64) {
		for _, set := range sets {
			var list []int64
			for _, r := range set {
				list = append(list, r.Rank)
			}
			out = append(out, list)
		}
		return out
	}
	var h History
	transfers := ranksOf([]Meeting{with(2)}, []Meeting{with(3)}, []Meeting{with(0)}, []Meeting{with(1)})
	sets, _ := h.Peers(transfers)
	assert.Equal(t, [][]int64{{0, 1, 2, 3}}, numbers(sets), "nothing is known yet")
	for i := range int64(3) {
		sets, _ = h.Peers(ranksOf(
			[]Meeting{in("a", i), with(2)}, []Meeting{in("a", i), with(3)}, []Meeting{in("b", i)}, []Meeting{in("b", i)}))
		assert.Equal(t, [][]int64{{0, 1}, {2, 3}}, numbers(sets))
		sets, alone := h.Peers(transfers)
		assert.Equal(t, [][]int64{{0, 1}, {2, 3}}, numbers(sets))
		assert.Zero(t, alone)
	}
	sets, alone := h.Peers(transfers[:3])
	assert.Equal(t, [][]int64{{0, 1}}, numbers(sets))
	assert.Equal(t, [aloneCauses]int{NoPeer: 1}, alone, "its replica did not report")

	h = History{} // all ranks equal: micro-batches of DDP
	h.Peers(ranksOf([]Meeting{in("a", 1)}, []Meeting{in("a", 1)}))
	sets, _ = h.Peers(ranksOf(nil, nil))
	assert.Equal(t, [][]int64{{0, 1}}, numbers(sets))
}
