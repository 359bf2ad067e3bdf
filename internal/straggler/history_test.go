// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// follow adds a step of one set of ranks, and calls name for each rank that is late in it, perhaps
// in a later step.
func follow(h *History, ranks []Rank, missing bool, name func(r Result)) []Result {
	results := h.Compare([][]Rank{ranks}, missing)[0].Results
	for _, r := range results {
		for _, earlier := range r.Earlier {
			earlier(true)
		}
		switch {
		case r.Slow:
			name(r)
		case r.Suspect:
			h.Keep(r.Rank, func(late bool) {
				if late {
					name(r)
				}
			})
		}
	}
	return results
}

// noisyJob is a job whose ranks work for 2, 5, 10 and 3 ms in four phases, each with normally
// distributed noise.
type noisyJob struct {
	ranks        int
	slow         []int
	delay, noise float64 // s; relative
	heavy        bool    // one step in ten is four times as noisy
}

// run returns how many of the late ranks were found, with the right section, and how many of the
// others.
func (j noisyJob) run(seed uint64) (found, late, wrong, punctual int) {
	r := rand.New(rand.NewPCG(seed, 5))
	var h History
	for range 100 {
		ranks := make([]Rank, j.ranks)
		for k := range ranks {
			phases, own := &Sections{}, 0.0
			for p, name := range []string{"data", "forward", "backward", "optimizer"} { // ordered, so that a seed determines the job
				usual := []float64{0.002, 0.005, 0.010, 0.003}[p]
				x := r.NormFloat64() * j.noise
				if j.heavy && r.IntN(10) == 0 {
					x *= 4
				}
				d := max(0, usual*(1+x))
				if name == "backward" && slices.Contains(j.slow, k) {
					d += j.delay
				}
				phases.Add(name, "", d, Extent{}, nil)
				own += d
			}
			ranks[k] = Rank{Rank: int64(k), Own: own, Step: own, Phases: phases}
		}
		late, punctual = late+len(j.slow), punctual+j.ranks-len(j.slow)
		follow(&h, ranks, false, func(v Result) {
			switch isSlow := slices.Contains(j.slow, int(v.Rank)); {
			case isSlow && v.Section == "backward":
				found++
			case !isSlow:
				wrong++
			}
		})
	}
	return found, late, wrong, punctual
}

// Of two ranks, one is always above the other, and of four, one exceeds the three others by chance
// in one of five steps. With outliers, a rank is late now and then without a fault.
func TestNoiseIsNoStraggler(t *testing.T) {
	for _, ranks := range []int{2, 3, 4, 8, 64} {
		for _, noise := range []float64{0.01, 0.05, 0.1, 0.2} {
			for _, heavy := range []bool{false, true} {
				wrong, punctual := 0, 0
				for seed := range uint64(10) {
					_, _, w, p := noisyJob{ranks: ranks, noise: noise, heavy: heavy}.run(seed)
					wrong, punctual = wrong+w, punctual+p
				}
				assert.Zero(t, wrong, "%d ranks, %g, %v", ranks, noise, heavy)
			}
		}
	}
}

// A rank that is late in each step is found, although a single step could not distinguish it from
// noise. Steps in which noise hides it are not counted: it costs nothing in them.
func TestRepeatedDelaysAreFoundInNoise(t *testing.T) {
	for _, tt := range []struct {
		noisyJob
		least float64 // part of the steps
	}{
		{noisyJob{2, []int{1}, 0.005, 0.05, false}, 0.99},
		{noisyJob{4, []int{1}, 0.005, 0.1, false}, 0.95},
		{noisyJob{8, []int{1, 6}, 0.005, 0.1, false}, 0.95},
		{noisyJob{64, []int{1, 6, 30}, 0.005, 0.1, false}, 0.98},
		{noisyJob{2, []int{1}, 0.010, 0.1, true}, 0.95},
		{noisyJob{4, []int{1}, 0.010, 0.1, true}, 0.95},
		{noisyJob{8, []int{1, 6}, 0.020, 0.2, true}, 0.98},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			var found, late, wrong int
			for seed := range uint64(20) {
				f, l, w, _ := tt.run(seed)
				found, late, wrong = found+f, late+l, wrong+w
			}
			assert.GreaterOrEqual(t, float64(found), tt.least*float64(late))
			assert.Zero(t, wrong)
		})
	}
}

func ranksOf(own ...float64) (out []Rank) {
	for i, v := range own {
		out = append(out, Rank{Rank: int64(i), Own: v, Step: v})
	}
	return out
}

// Of two ranks, the second is late by delay of a step of 100. Each of its hits multiplies the sums
// by 1.25, 1.5 and 1.9 after 1 is added, so that their average reaches 10,000 × 2 in the 16th step:
// 1.9^16 × 2.11 / 3 = 20,300. What it costs is smoothed over 8 steps and must exceed 1 % of a step.
func TestARankIsNamedAfterEnoughHits(t *testing.T) {
	for delay, want := range map[float64]struct{ named, first int }{0.99: {}, 1.2: {40, 29}, 5: {40, 17}, 10: {40, 16}} {
		var h History
		now, named, first := 0, 0, 0
		for now < 40 {
			now++
			follow(&h, ranksOf(100, 100+delay), false, func(r Result) {
				assert.EqualValues(t, 1, r.Rank)
				assert.InDelta(t, delay, r.Delay, 1e-9)
				named++
				first = cmp.Or(first, now)
			})
		}
		assert.Equal(t, want.named, named, delay)
		assert.Equal(t, want.first, first, delay)
	}
}

// Half of the ranks are equally late, and none of them is the slowest alone.
func TestEquallyLateRanksAreAllNamed(t *testing.T) {
	var h History
	named := map[int64]int{}
	for range 60 {
		follow(&h, ranksOf(100, 110, 100, 110, 100, 110, 100, 110), false, func(r Result) { named[r.Rank]++ })
	}
	assert.Equal(t, map[int64]int{1: 60, 3: 60, 5: 60, 7: 60}, named)
}

// A pause of a host is an observation: it does not make the rank late.
func TestSinglePausesNameNobody(t *testing.T) {
	var h History
	for i := range 400 {
		own := []float64{100, 100, 100}
		if i%10 == 0 {
			own[i/10%3] += 50
		}
		follow(&h, ranksOf(own...), false, func(r Result) { t.Error(i, r) })
	}
}

// The state ends 13 steps after the last hit: each step without a hit adds ln(1/0.7), and ends it
// at ln 100. A pause after that does not name the rank.
func TestARankThatRecoversIsNoLongerLate(t *testing.T) {
	var h History
	var named []int
	for i := range 100 {
		own := 100.
		if i < 40 || i == 45 || i == 70 {
			own = 110
		}
		follow(&h, ranksOf(100, own, 100), false, func(Result) { named = append(named, i) })
	}
	require.Len(t, named, 41)
	assert.Equal(t, 45, named[40], "it is late still")
}

// The steps of one loop prove nothing about a rank that was started again, perhaps on another host.
func TestARestartedRankBeginsAgain(t *testing.T) {
	var h History
	named := 0
	for range 15 {
		follow(&h, ranksOf(100, 110), false, func(Result) { named++ })
	}
	h.forget(1)
	for range 15 {
		follow(&h, ranksOf(100, 110), false, func(Result) { named++ })
	}
	assert.Zero(t, named)
	follow(&h, ranksOf(100, 110), false, func(Result) { named++ })
	assert.Equal(t, 16, named)
}

// At most 64 steps are named afterwards.
func TestEarlierHitsAreBounded(t *testing.T) {
	var h History
	named := 0
	for i := range 300 { // in 200 of the steps another rank is late, so that the sums grow slowly
		own := []float64{100, 105, 100, 100}
		if i%3 != 0 {
			own[2] = 110
		}
		follow(&h, ranksOf(own...), false, func(Result) { named++ })
		for _, p := range h.ranks {
			require.LessOrEqual(t, len(p.kept), maxKept)
		}
	}
	assert.Positive(t, named)
}

func TestTheHistoryIsBounded(t *testing.T) {
	var h History
	for i := range 3000 {
		ranks := make([]Rank, 50)
		for k := range ranks {
			ranks[k] = Rank{Rank: int64(i*50 + k), Own: 1, Step: 1}
		}
		h.Compare([][]Rank{ranks}, false)
	}
	assert.Len(t, h.ranks, maxRanks)
	got := h.Compare([][]Rank{ranksOf(100, 160)}, false)
	require.Len(t, got[0].Results, 2)
	assert.Empty(t, h.Compare([][]Rank{ranksOf(0, 0, 1)}, false)[0].Results)
	h.Keep(-1, func(late bool) { assert.False(t, late, "not known") })
}

// While ranks are missing, a rank that waits longer than it is late waits for one of them.
func TestARankThatWaitsForAMissingOneIsNotLate(t *testing.T) {
	rank := func(of int64, own, step float64) Rank { return Rank{Rank: of, Own: own, Step: step} }
	slow := func(missing bool, late, step float64) bool {
		var h History
		var got []Comparison
		for range 40 {
			got = h.Compare([][]Rank{{rank(0, 0.1, step), rank(1, 0.1, step), rank(2, 0.1+late, step)}}, missing)
		}
		return got[0].Results[2].Slow
	}
	assert.True(t, slow(false, 0.02, 0.2), "all report: the transfer takes 80 ms")
	assert.False(t, slow(true, 0.02, 0.2), "it waits for 80 ms, and is 20 ms late")
	assert.True(t, slow(true, 0.06, 0.2), "it waits for 40 ms, and is 60 ms late")
	assert.True(t, AllWait([]Rank{rank(0, 0.1, 0.2), rank(1, 0.15, 0.2)}))
	assert.False(t, AllWait([]Rank{rank(0, 0.1, 0.2), rank(1, 0.195, 0.2)}))
}
