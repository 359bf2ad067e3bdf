// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/semconv"
)

// noise draws extra times of ranks, as a share of the step. No rank has more of it than another in
// the mean.
type noise func(r *rand.Rand, ranks int) func(step, rank int) float64

func independent(draw func(r *rand.Rand, size float64) float64, sizes ...float64) noise {
	return func(r *rand.Rand, _ int) func(int, int) float64 {
		size := choose(r, sizes...)
		return func(int, int) float64 { return draw(r, size) }
	}
}

func autocorrelated(rho float64) noise {
	return func(r *rand.Rand, ranks int) func(int, int) float64 {
		sigma, last := choose(r, 0.005, 0.02, 0.05), make([]float64, ranks)
		for i := range last {
			last[i] = r.NormFloat64()
		}
		return func(_, k int) float64 {
			last[k] = rho*last[k] + math.Sqrt(1-rho*rho)*r.NormFloat64()
			return max(0, sigma*(4+last[k]))
		}
	}
}

func uneven(r *rand.Rand, ranks int) func(int, int) float64 {
	sigma, scale := choose(r, 0.005, 0.02), make([]float64, ranks)
	for i := range scale {
		scale[i] = math.Exp2(2*r.Float64() - 1)
	}
	return func(_, k int) float64 { return max(0, sigma*(8+scale[k]*r.NormFloat64())) }
}

func collectsGarbage(r *rand.Rand, ranks int) func(int, int) float64 {
	every, due := 3+r.IntN(48), make([]float64, ranks)
	for i := range due {
		due[i] = r.Float64() * float64(every)
	}
	return func(_, k int) float64 {
		if due[k]--; due[k] >= 0 {
			return 0
		}
		due[k] += float64(every) * (0.8 + 0.4*r.Float64())
		return 0.1 * r.ExpFloat64()
	}
}

var liveNoise = []struct {
	name string
	draw noise
	most float64 // false alarms in 10,000 steps; 0: 1
}{
	{name: "normal", draw: independent(func(r *rand.Rand, s float64) float64 { return s * r.NormFloat64() }, 0.005, 0.02, 0.05)},
	{name: "exponential", draw: independent(func(r *rand.Rand, s float64) float64 { return s * r.ExpFloat64() }, 0.01, 0.05, 0.2)},
	{name: "Pareto", draw: independent(func(r *rand.Rand, s float64) float64 { return s * math.Pow(1-r.Float64(), -1/1.2) }, 0.005, 0.02)},
	{name: "pauses in 5 % of steps", draw: independent(func(r *rand.Rand, s float64) float64 {
		if r.Float64() >= 0.05 {
			return 0
		}
		return s * math.Exp(1.5*r.NormFloat64())
	}, 0.01, 0.05, 0.2)},
	{name: "uneven", draw: uneven},
	{name: "garbage collection", draw: collectsGarbage},
	{name: "checkpoints of rank 0", draw: func(r *rand.Rand, _ int) func(int, int) float64 {
		every := choose(r, 20, 50, 100)
		return func(step, k int) float64 {
			if k == 0 && step%every == 0 {
				return 2
			}
			return 0.01 * r.ExpFloat64()
		}
	}},
	{name: "autocorrelated, 0.3", draw: autocorrelated(0.3)},
	{name: "autocorrelated, 0.7", draw: autocorrelated(0.7)},
	{name: "autocorrelated, 0.9", draw: autocorrelated(0.9)},
	{name: "autocorrelated, 0.97", draw: autocorrelated(0.97), most: 4}, // ranks are slower for 30 steps
	{name: "autocorrelated, 0.8, and even", most: 1.3, draw: func(r *rand.Rand, ranks int) func(int, int) float64 {
		lasts := autocorrelated(0.8)(r, ranks)
		return func(step, k int) float64 { return 0.3*r.Float64() + lasts(step, k) }
	}},
}

// watch runs a job and calls named in the step in which a rank begins to be late.
func watch(r *rand.Rand, ranks, steps int, noise func(step, rank int) float64, late func(step int) float64, named func(step, rank int)) {
	var h History
	device, states := make([]float64, ranks), make([]bool, ranks)
	for k := range device {
		device[k] = 1 + 0.003*r.NormFloat64()
	}
	list := make([]Rank, ranks)
	for s := range steps {
		longest := 0.0
		for k := range list {
			list[k] = Rank{Rank: int64(k), Own: 0.9 * (device[k]*(1+0.003*r.NormFloat64()) + noise(s, k))}
			if k == ranks-1 {
				list[k].Own += late(s)
			}
			longest = max(longest, list[k].Own)
		}
		for k := range list {
			list[k].Step = longest + 0.05
		}
		for k, v := range h.Compare([][]Rank{list}, false)[0].Results {
			if state := h.ranks[v.Rank].late; state != states[k] {
				if states[k] = state; state {
					named(s, k)
				}
			}
		}
	}
}

// The mean time to a false alarm is a promise: [semconv.FindingLateRankSteps]. With OTELGPU_RANK_JOBS,
// that many jobs of each kind are simulated, and how many late ranks are found is logged.
func TestLiveAlarmsAreAsRareAsPromised(t *testing.T) {
	jobs, steps, sizes := 6, 600, []int{2, 4, 8}
	more, err := strconv.Atoi(os.Getenv("OTELGPU_RANK_JOBS"))
	if err == nil {
		jobs, steps, sizes = more, 3000, append(sizes, 16, 64)
	}
	for _, kind := range liveNoise {
		alarms := 0
		for seed := range jobs {
			r := rand.New(rand.NewPCG(uint64(seed), 1234))
			ranks := choose(r, sizes...)
			watch(r, ranks, steps, kind.draw(r, ranks), func(int) float64 { return 0 }, func(int, int) { alarms++ })
		}
		promised := cmp.Or(kind.most, 1) * float64(jobs*steps) / semconv.FindingLateRankSteps
		t.Logf("%-30s %d alarms in %d steps, at most %.0f promised", kind.name, alarms, jobs*steps, promised)
		assert.LessOrEqual(t, float64(alarms), promised+3*math.Sqrt(promised), kind.name)
		if err != nil && kind.name != "autocorrelated, 0.9" {
			continue
		}
		for _, share := range []float64{0.05, 0.1, 0.2, 0.5} {
			if err != nil && share != 0.2 {
				continue
			}
			var waits []int
			for seed := range jobs {
				r, wait := rand.New(rand.NewPCG(uint64(seed), 99)), 0
				ranks := choose(r, sizes...)
				watch(r, ranks, 600, kind.draw(r, ranks), func(step int) float64 {
					if step < 200 {
						return 0
					}
					return share
				}, func(step, rank int) {
					if rank == ranks-1 && step >= 200 {
						wait = cmp.Or(wait, step-199)
					}
				})
				if wait > 0 {
					waits = append(waits, wait)
				}
			}
			slices.Sort(waits)
			t.Logf("    late by %.0f %%: %d of %d, after %d steps, 90 %% after %d", 100*share, len(waits), jobs, waits[len(waits)/2], waits[len(waits)*9/10])
			if share >= 0.2 { // a rank may be late before, by chance
				assert.GreaterOrEqual(t, len(waits), jobs*49/50, "%s: %g", kind.name, share)
			}
		}
	}
}

// Before it is known for how long noise lasts, more hits are needed.
func TestStepsUntilAConstantlyLateRankIsNamed(t *testing.T) {
	for _, want := range []struct{ ranks, first, later int }{{2, 16, 16}, {4, 16, 10}, {8, 14, 7}, {64, 8, 4}} {
		for _, from := range []int{0, 40} {
			var h History
			named := from
			for own := ranksOf(slices.Repeat([]float64{1}, want.ranks)...); len(h.ranks) == 0 || !h.ranks[0].late; named++ {
				if named == 2*from {
					own[0].Own = 1.2
				}
				h.Compare([][]Rank{own}, false)
			}
			named -= 2 * from
			expected := want.first
			if from > 0 {
				expected = want.later
			}
			assert.Equal(t, expected, named, "%d ranks, late from step %d", want.ranks, from)
		}
	}
}
