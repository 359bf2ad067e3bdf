// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rankfolders

import (
	"cmp"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

// heavyNoise are disturbances of healthy jobs: extra host time of each rank and step, as a share of
// the step. No rank has more of it than another in the mean.
var heavyNoise = []struct {
	name string
	most float64      // share of the jobs in which a rank may be named; 0: 1 %
	size func(j *job) // changes the size of the job
	draw func(j *job) func(step, rank int) float64
}{
	{name: "pauses in 5 % of steps", draw: pauses},
	{name: "pauses, 3 to 8 steps", size: fewSteps, draw: pauses},
	{name: "pauses, 2 ranks", size: twoRanks, draw: pauses},
	{name: "garbage collection", draw: func(j *job) func(int, int) float64 {
		every, length := 3+j.r.IntN(18), 0.02*math.Exp(2.5*j.r.Float64())
		due := make([]float64, j.ranks)
		for i := range due {
			due[i] = j.r.Float64() * float64(every)
		}
		return func(_, rank int) float64 {
			if due[rank]--; due[rank] >= 0 {
				return 0
			}
			due[rank] += float64(every) * (0.8 + 0.4*j.r.Float64())
			return length * (0.8 + 0.4*j.r.Float64())
		}
	}},
	{name: "one slow step of all ranks", draw: func(j *job) func(int, int) float64 {
		slow, length := j.r.IntN(j.steps), 0.5*math.Exp(j.r.NormFloat64())
		return func(step, _ int) float64 {
			if step != slow {
				return 0
			}
			return length * math.Exp(0.5*j.r.NormFloat64())
		}
	}},
	{name: "one slow step of one rank", draw: slowStep},
	{name: "one slow step of one rank, 3 to 8 steps", size: fewSteps, draw: slowStep},
	{name: "one slow step of one rank, 2 ranks", size: twoRanks, draw: slowStep},
	{name: "autocorrelated, 0.7", most: 0.05, draw: autocorrelated},
	{name: "autocorrelated, 3 to 8 steps", most: 0.05, size: fewSteps, draw: autocorrelated},
	{name: "autocorrelated, 2 ranks", most: 0.1, size: twoRanks, draw: autocorrelated},
	{name: "exponential, 3 to 8 steps", size: fewSteps, draw: exponential},
	{name: "exponential, 2 ranks", most: 0.03, size: twoRanks, draw: exponential},
	{name: "uneven", draw: uneven},
	{name: "uneven, 3 to 8 steps", size: fewSteps, draw: uneven},
	{name: "uneven, 2 ranks", size: twoRanks, draw: uneven},
}

func fewSteps(j *job) { j.steps = 3 + j.r.IntN(6) }

// twoRanks leaves two ranks, which do the same work.
func twoRanks(j *job) { j.ranks, j.topology = 2, oneOf(j.r, "dp", "dp_overlap", "ep") }

func pauses(j *job) func(int, int) float64 {
	median := oneOf(j.r, 0.01, 0.05, 0.2)
	return func(int, int) float64 {
		if j.r.Float64() >= 0.05 {
			return 0
		}
		return median * math.Exp(1.5*j.r.NormFloat64())
	}
}

func slowStep(j *job) func(int, int) float64 {
	slow, who, length := j.r.IntN(j.steps), j.r.IntN(j.ranks), 0.5*math.Exp(j.r.NormFloat64())
	return func(step, rank int) float64 {
		if step != slow || rank != who {
			return 0
		}
		return length
	}
}

func autocorrelated(j *job) func(int, int) float64 {
	sigma, last := oneOf(j.r, 0.005, 0.02, 0.05), make([]float64, j.ranks)
	for i := range last {
		last[i] = j.r.NormFloat64()
	}
	return func(_, rank int) float64 {
		last[rank] = 0.7*last[rank] + math.Sqrt(1-0.7*0.7)*j.r.NormFloat64()
		return sigma * (4 + last[rank])
	}
}

func exponential(j *job) func(int, int) float64 {
	mean := oneOf(j.r, 0.01, 0.05, 0.2)
	return func(int, int) float64 { return mean * j.r.ExpFloat64() }
}

// uneven is noise of which a rank has up to four times as much as another, but the same mean.
func uneven(j *job) func(int, int) float64 {
	sigma, scale := oneOf(j.r, 0.005, 0.02), make([]float64, j.ranks)
	for i := range scale {
		scale[i] = math.Exp2(2*j.r.Float64() - 1)
	}
	return func(_, rank int) float64 { return max(0, sigma*(8+scale[rank]*j.r.NormFloat64())) }
}

// With OTELGPU_RANK_JOBS, that many jobs of each kind are simulated.
func TestHeavyNoiseNamesNoRank(t *testing.T) {
	n := 30
	if jobs, err := strconv.Atoi(os.Getenv("OTELGPU_RANK_JOBS")); err == nil {
		n = jobs
	}
	for i, k := range heavyNoise {
		alarms := 0
		for seed := range n {
			j := newJob(uint64(seed) + uint64(i)*10_000 + 2*firstSeed())
			j.fault = "none"
			if k.size != nil {
				k.size(j)
			}
			j.draw()
			noise := k.draw(j)
			for s := range j.steps {
				for r := range j.ranks {
					j.host[s][j.r.IntN(len(j.rounds))][r] += noise(s, r) * j.stepTime
				}
			}
			if j.named(j.run(false), "complete") >= 0 {
				alarms++
			}
		}
		t.Logf("%-40s %4d of %d: %.2f %%", k.name, alarms, n, 100*float64(alarms)/float64(n))
		usual := float64(n) * cmp.Or(k.most, 0.01)
		assert.LessOrEqual(t, float64(alarms), usual+3*math.Sqrt(usual), k.name)
	}
}
