// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// steps returns own times in ms of ranks with 1 % of normal noise, changed by late.
func ownTimes(seed uint64, steps, ranks int, late func(r *rand.Rand, step, rank int) float64) (own OwnTimes) {
	r := rand.New(rand.NewPCG(seed, 8))
	for s := range steps {
		var row []float64
		for i := range ranks {
			row = append(row, 40+0.4*r.NormFloat64()+late(r, s, i))
		}
		own = append(own, row)
	}
	return own
}

// Each rank is late at random, none more than another.
func TestRandomLatenessNamesNoRank(t *testing.T) {
	for _, mean := range []float64{0.3, 0.7, 1.5, 3} {
		named := 0
		for seed := range uint64(100) {
			own := ownTimes(seed, 20, 8, func(r *rand.Rand, _, _ int) float64 { return mean * r.ExpFloat64() })
			if len(LateRanks(own, 40, 8)) > 0 {
				named++
			}
		}
		assert.LessOrEqual(t, named, 5, "mean lateness of %v ms", mean)
	}
}

func TestEquallyLateRanksAreBothNamed(t *testing.T) {
	own := ownTimes(1, 20, 8, func(_ *rand.Rand, _, rank int) float64 {
		if rank == 2 || rank == 5 {
			return 4
		}
		return 0
	})
	list := LateRanks(own, 40, 8)
	require.Len(t, list, 2)
	assert.ElementsMatch(t, []int{2, 5}, []int{list[0].Rank, list[1].Rank})
	assert.True(t, list[0].Sure())
	assert.InDelta(t, 4, list[0].Excess, 0.5)
}

// Three steps of two ranks cannot exclude chance: a large lateness in each is named with little
// certainty, one pause is not.
func TestFewStepsAreJudgedByMagnitude(t *testing.T) {
	list := LateRanks(ownTimes(2, 3, 2, func(_ *rand.Rand, _, rank int) float64 { return 8 * float64(rank) }), 40, 2)
	require.Len(t, list, 1)
	assert.Equal(t, 1, list[0].Rank)
	assert.False(t, list[0].Likely())
	pause := ownTimes(2, 3, 2, func(_ *rand.Rand, step, rank int) float64 {
		if step == 1 && rank == 1 {
			return 50
		}
		return 0
	})
	assert.Empty(t, LateRanks(pause, 40, 2))
}

// Among four ranks, a lateness far beyond the noise in two of three steps is named with little
// certainty. One in a single step is not, and noise with a heavy tail names nobody.
func TestLatenessBeyondTheNoiseOfSeveralRanks(t *testing.T) {
	drift := func(_ *rand.Rand, step, rank int) float64 { return float64(5 * step * (rank / 3)) }
	list := LateRanks(ownTimes(2, 3, 4, drift), 40, 4)
	require.Len(t, list, 1)
	assert.Equal(t, 3, list[0].Rank)
	assert.False(t, list[0].Likely())
	assert.Empty(t, LateRanks(ownTimes(2, 3, 4, func(_ *rand.Rand, step, rank int) float64 {
		return float64(25 * (step / 2) * (rank / 3))
	}), 40, 4))
	named := 0
	for seed := range uint64(300) {
		own := ownTimes(seed, 3+int(seed%3), 3+int(seed%7), func(r *rand.Rand, _, _ int) float64 {
			if r.Float64() < 0.02 {
				return 50
			}
			return math.Exp(r.NormFloat64())
		})
		if len(LateRanks(own, 40, len(own[0]))) > 0 {
			named++
		}
	}
	assert.LessOrEqual(t, named, 15, "of 300 healthy jobs")
}

// Of the steps in which one rank is clearly the slowest, most are rank 2's: it is late in a fifth
// of the steps, which is as often as any rank of five is by chance if others are.
func TestLatenessInFewStepsIsFoundIfTheOthersAreEven(t *testing.T) {
	own := ownTimes(4, 40, 5, func(_ *rand.Rand, step, rank int) float64 {
		if rank == 2 && step%5 == 0 {
			return 6
		}
		return 0
	})
	list := LateRanks(own, 40, 5)
	require.Len(t, list, 1)
	assert.Equal(t, 2, list[0].Rank)
	// A rank that is slower by less than Material is not, however often it is the slowest.
	own = ownTimes(4, 200, 5, func(r *rand.Rand, _, rank int) float64 {
		return 0.2*float64(rank/4) + 2*r.NormFloat64()
	})
	assert.Empty(t, LateRanks(own, 40, 5))
}

// Three steps of 4 ranks do not exclude chance, the collectives in them do: rank 1 works longer
// before each from the second step on.
func TestCollectivesDecideIfStepsDoNot(t *testing.T) {
	own := ownTimes(5, 3, 4, func(_ *rand.Rand, step, rank int) float64 { return float64(3 * step * (rank % 2) * (3 - rank) / 2) })
	rounds := func(late func(step, k, rank int) float64) (list []Round) {
		r := rand.New(rand.NewPCG(6, 6))
		for step := range 3 {
			for k := range 8 {
				x := Round{Step: step, Ranks: []int{0, 1, 2, 3}}
				for rank := range 4 {
					x.Own = append(x.Own, 5+0.01*r.NormFloat64()+late(step, k, rank))
				}
				list = append(list, x)
			}
		}
		return list
	}
	late := rounds(func(step, _, rank int) float64 { return 0.4 * float64(step*(rank%2)*(3-rank)/2) })
	list := LateRanksByRound(own, late, 40, 0.02, 4)
	require.Len(t, list, 1)
	assert.Equal(t, 1, list[0].Rank)
	assert.Equal(t, []int{16, 16}, []int{list[0].RoundHits, list[0].Rounds})
	assert.Less(t, list[0].P, 1e-6)
	// One disturbance, however many collectives it lasts, is no proof.
	once := rounds(func(step, _, rank int) float64 {
		if step == 2 && rank == 1 {
			return 0.8
		}
		return 0
	})
	assert.Empty(t, LateRanksByRound(own, once, 40, 0.02, 4))
}

// The binomial probability decides: at n ranks, this many steps suffice.
func TestStepsThatSuffice(t *testing.T) {
	for ranks, steps := range map[int]int{2: 6, 4: 4, 8: 3, 32: 3, 64: 2} {
		assert.Equal(t, steps, StepsToJudge(ranks, ranks), ranks)
	}
	assert.InDelta(t, 0.0107421875, BinomialTail(10, 0.5, 9), 1e-12)
	assert.InDelta(t, 1, BinomialTail(10, 0.5, 0), 0)
}

// A rank that is slower by less than a hundredth of a step delays nobody.
func TestEvenRanksDifferALittle(t *testing.T) {
	own := ownTimes(3, 50, 4, func(_ *rand.Rand, _, rank int) float64 { return 0.1 * float64(rank) })
	assert.Empty(t, LateRanks(own, 40, 4))
}

// The last rank of every step is named if its peers are even, and not if they differ as much
// themselves, for as long.
func TestALateRankIsBeyondTheSpreadOfItsPeers(t *testing.T) {
	for name, tt := range map[string]struct {
		own   []float64
		named bool
	}{
		"even peers":                 {[]float64{100, 100.5, 101, 100.2, 100.7, 100.9, 100.4, 105}, true},
		"peers that differ for long": {[]float64{97, 98, 101, 99.5, 102, 100.5, 103, 105}, false},
		"too few peers for a spread": {[]float64{97, 98, 100, 105}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var own OwnTimes
			for range 6 {
				own = append(own, tt.own)
			}
			late := LateRanks(own, 110, len(tt.own))
			require.Equal(t, tt.named, len(late) > 0)
			if tt.named {
				assert.Equal(t, len(tt.own)-1, late[0].Rank)
			}
		})
	}
}
