// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noisyJob is a job whose ranks work for 2, 5, 10 and 3 ms in four phases, each with normally distributed noise.
type noisyJob struct {
	ranks        int
	slow         []int
	delay, noise float64 // s; relative
	heavy        bool    // one step in ten is four times as noisy
}

// run returns how many of the late ranks were found, with the right section, and how many of the others.
func (j noisyJob) run(seed uint64) (found, late, wrong, punctual int) {
	r := rand.New(rand.NewPCG(seed, 5))
	var h History
	const steps, warmUp = 100, 20
	for i := range steps {
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
		for k, v := range h.Compare([][]Rank{ranks}, false)[0].Results {
			isSlow := slices.Contains(j.slow, k)
			switch {
			case i < warmUp:
			case isSlow:
				late++
				if v.Slow && v.Section == "backward" {
					found++
				}
			default:
				punctual++
				if v.Slow {
					wrong++
				}
			}
		}
	}
	return found, late, wrong, punctual
}

// Of two ranks, one is always above the other, and of four, one exceeds the three others by chance in one of five
// steps. With outliers, a rank is late now and then without a fault.
func TestNoiseIsNoStraggler(t *testing.T) {
	for _, ranks := range []int{2, 3, 4, 8, 64} {
		for _, noise := range []float64{0.01, 0.05, 0.1, 0.2} {
			for _, heavy := range []bool{false, true} {
				wrong, punctual := 0, 0
				for seed := range uint64(10) {
					_, _, w, p := noisyJob{ranks: ranks, noise: noise, heavy: heavy}.run(seed)
					wrong, punctual = wrong+w, punctual+p
				}
				limit := punctual / 100
				if heavy {
					limit *= 2
				}
				assert.LessOrEqual(t, wrong, limit, "%d ranks, %g, %v", ranks, noise, heavy)
			}
		}
	}
}

// A rank that is late in each step is found, although a single step could not distinguish it from noise.
func TestRepeatedDelaysAreFoundInNoise(t *testing.T) {
	for _, j := range []noisyJob{
		{2, []int{1}, 0.005, 0.05, false},
		{4, []int{1}, 0.005, 0.1, false},
		{8, []int{1, 6}, 0.005, 0.1, false},
		{64, []int{1, 6, 30}, 0.005, 0.1, false},
		{2, []int{1}, 0.010, 0.1, true},
		{4, []int{1}, 0.010, 0.1, true},
		{8, []int{1, 6}, 0.020, 0.2, true},
	} {
		t.Run(fmt.Sprint(j), func(t *testing.T) {
			var found, late, wrong, punctual int
			for seed := range uint64(20) {
				f, l, w, p := j.run(seed)
				found, late, wrong, punctual = found+f, late+l, wrong+w, punctual+p
			}
			assert.GreaterOrEqual(t, found, late*95/100)
			assert.LessOrEqual(t, wrong, punctual/100)
		})
	}
}

func ranksOf(own ...float64) (out []Rank) {
	for i, v := range own {
		out = append(out, Rank{Rank: int64(i), Own: v, Step: v})
	}
	return out
}

// alternate compares an even number of steps of two ranks, one at 100, the other alternating between 100-x and 100+x.
func alternate(h *History, steps int, x float64) {
	for i := range steps {
		own := 100 + x
		if i%2 == 0 {
			own = 100 - x
		}
		h.Compare([][]Rank{ranksOf(100, own)}, false)
	}
}

// The changes are 2x for each of two ranks (half of it each, times √2), so that the noise is 1.4826 × x × √2 / √2, and a
// difference of two ranks has √2 of that: 3.5 × 1.4826 × √2 × 2 = 14.68 for x = 2.
func TestASingleDelayIsComparedWithTheNoise(t *testing.T) {
	for own, slow := range map[float64]bool{114.5: false, 114.9: true} {
		var h History
		alternate(&h, 40, 2)
		got := h.Compare([][]Rank{ranksOf(100, own)}, false)[0].Results
		assert.Equal(t, slow, got[1].Slow, own)
		assert.False(t, got[0].Slow)
	}
}

// The noise of two ranks is 1.4826 × √2 × x as above, and the standard error of the median of the last 16 delays is
// √(π/2) / 4 of it: 2.5 × 1.4826 × √2 × 1.2533 / 4 × x = 32.8 for x = 20. A single step would need 147.
func TestRepeatedDelaysAreComparedWithTheNoise(t *testing.T) {
	for delay, slow := range map[float64]bool{32.4: false, 33.2: true} {
		var h History
		for i := range 40 {
			own := 100 + delay + 20
			if i%2 == 0 {
				own = 100 + delay - 20
			}
			got := h.Compare([][]Rank{ranksOf(100, own)}, false)[0].Results
			if i >= 20 {
				assert.Equal(t, slow, got[1].Slow, "%g, step %d", delay, i)
			}
		}
	}
}

// With x = 2, a single step needs 14.7, and the median of 7 or 8 delays 5.
func TestARankIsLateRepeatedlyFromEightStepsOn(t *testing.T) {
	var h History
	for i := range 20 {
		own := 109.0 + 2
		if i%2 == 0 {
			own = 109 - 2
		}
		got := h.Compare([][]Rank{ranksOf(100, own)}, false)[0].Results
		if _, known := h.noise(); known && i >= 6 {
			assert.Equal(t, i >= 7, got[1].Slow, "step %d", i+1)
		}
	}
}

func TestWithoutHistoryOnlyTheStepIsCompared(t *testing.T) {
	var h History
	assert.True(t, h.Compare([][]Rank{ranksOf(100, 106)}, false)[0].Results[1].Slow)
	_, known := h.noise()
	assert.False(t, known)
	alternate(&h, 4, 30) // eight changes with the first ones; the ranks' 30 are then noise
	_, known = h.noise()
	assert.True(t, known)
	assert.False(t, h.Compare([][]Rank{ranksOf(100, 106)}, false)[0].Results[1].Slow)
}

// A small delay in one set is irrelevant compared to a large one in another.
func TestDelaysOfAllSetsAreCompared(t *testing.T) {
	var h History
	got := h.Compare([][]Rank{ranksOf(100, 160), ranksOf(100, 129), ranksOf(100, 131)}, false)
	assert.True(t, got[0].Results[1].Slow)
	assert.False(t, got[1].Results[1].Slow, "less than half of 60")
	assert.True(t, got[2].Results[1].Slow)
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
}

// While ranks are missing, a rank that waits longer than it is late waits for one of them.
func TestARankThatWaitsForAMissingOneIsNotLate(t *testing.T) {
	rank := func(of int64, own, step float64) Rank { return Rank{Rank: of, Own: own, Step: step} }
	slow := func(missing bool, late, step float64) bool {
		var h History
		var got []Comparison
		for range 20 {
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
