// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// simulated is a job of a simulation: own times of ranks, with the faults of some ranks from
// lateFrom on.
type simulated struct {
	kind  string
	ranks int
	step  float64 // s
	late  []int
	own   [][]float64 // by step and rank, s
}

const lateFrom = 100

// noiseOf returns the noise of a rank's step of about ms: normal, lognormal, exponential, or pauses
// of 50 ms in 1 % of the steps. None of them is known to the rule.
func noiseOf(r *rand.Rand, kind int, ms float64) float64 {
	const parts = 6
	u, sum := ms/math.Sqrt(parts), 0.0
	for range parts {
		switch kind {
		case 0:
			sum += u * r.NormFloat64()
		case 1:
			sum += u / 2.16 * math.Exp(r.NormFloat64())
		case 2:
			sum += u * r.ExpFloat64()
		default:
			sum += u * .2 * r.NormFloat64()
		}
	}
	if kind > 2 && r.Float64() < .01 {
		sum += 50
	}
	return sum / 1e3
}

func choose[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// simulate returns a job of the given kind: healthy for healthySteps, or with ranks that are late
// for 300 steps: constantly, in 30 % of the steps (with the same mean), drifting from zero, or two
// ranks at once. ok is false if the lateness costs less than 1.5 % of the step, because other ranks
// are equally slow.
func simulate(seed uint64, kind string, healthySteps int) (j simulated, ok bool) {
	r := rand.New(rand.NewPCG(seed, 77))
	jitter, noise := choose(r, 0, .3, 1, 2, 5), r.IntN(4)
	j = simulated{kind: kind, ranks: choose(r, 2, 4, 8, 16, 32), step: .02 * math.Exp(r.Float64()*math.Log(25))}
	if kind == "two" {
		j.ranks = max(j.ranks, 4)
	}
	steps, share := lateFrom+300, choose(r, .02, .05, .1, .2)
	if kind == "healthy" {
		steps = healthySteps
	}
	device := make([]float64, j.ranks)
	for k := range device {
		device[k] = .95 * j.step * (1 + .003*r.NormFloat64())
	}
	first := r.IntN(j.ranks)
	switch kind {
	case "healthy":
	case "two":
		j.late = []int{first, (first + 1) % j.ranks}
	default:
		j.late = []int{first}
	}
	cost := 0.0
	for s := range steps {
		own := make([]float64, j.ranks)
		for k := range own {
			own[k] = device[k]*(1+.003*r.NormFloat64()) + noiseOf(r, noise, jitter)
		}
		if s >= lateFrom {
			before, x := slices.Max(own), share*j.step
			switch kind {
			case "intermittent":
				if x /= .3; r.Float64() >= .3 {
					x = 0
				}
			case "drifting":
				x *= 2 * float64(s-lateFrom) / float64(steps-lateFrom)
			}
			for _, k := range j.late {
				own[k] += x
			}
			cost += slices.Max(own) - before
		}
		j.own = append(j.own, own)
	}
	return j, kind == "healthy" || cost/float64(steps-lateFrom) >= 1.5*.01*j.step
}

// figures are the results of a rule over many jobs.
type figures struct {
	healthyJobs, alarmedJobs, healthySteps, alarmedSteps int
	lateJobs, found, lateSteps, innocent                 int
	waits                                                []int
	named                                                map[string][2]int // steps with lateness: named, all; by kind
}

func (f *figures) add(j *simulated, named [][]bool) {
	anyOf := func(s int, of func(k int) bool) bool {
		for k, n := range named[s] {
			if n && of(k) {
				return true
			}
		}
		return false
	}
	isLate := func(k int) bool { return slices.Contains(j.late, k) }
	if j.late == nil {
		alarms := 0
		for s := range named {
			if anyOf(s, func(int) bool { return true }) {
				alarms++
			}
		}
		f.healthyJobs++
		f.healthySteps += len(named)
		f.alarmedSteps += alarms
		if alarms > 0 {
			f.alarmedJobs++
		}
		return
	}
	f.lateJobs++
	wait := -1
	count := f.named[j.kind]
	for s := range named {
		if anyOf(s, func(k int) bool { return !isLate(k) }) {
			f.innocent++
		}
		if s >= lateFrom {
			count[1]++
			if anyOf(s, isLate) {
				count[0]++
				if wait < 0 {
					wait = s - lateFrom + 1
				}
			}
		}
	}
	f.named[j.kind] = count
	f.lateSteps += len(named)
	if wait >= 0 {
		f.found++
		f.waits = append(f.waits, wait)
	}
}

func (f *figures) String() string {
	slices.Sort(f.waits)
	return fmt.Sprintf("healthy: %d of %d jobs alarmed, %.1f of 1,000 steps; late: %d of %d found; innocent %.1f of 1,000 steps; named %v",
		f.alarmedJobs, f.healthyJobs, 1e3*float64(f.alarmedSteps)/float64(max(1, f.healthySteps)), f.found, f.lateJobs,
		1e3*float64(f.innocent)/float64(max(1, f.lateSteps)), f.named)
}

func TestSimulatedJobs(t *testing.T) {
	f := figures{named: map[string][2]int{}}
	kinds := []string{"healthy", "constant", "healthy", "intermittent", "healthy", "drifting", "healthy", "two"}
	jobs := 240
	if testing.Short() {
		jobs = 48
	}
	for i := range jobs {
		j, ok := simulate(uint64(i), kinds[i%len(kinds)], 2000)
		if !ok {
			continue
		}
		var h History
		named := make([][]bool, len(j.own))
		for s, own := range j.own {
			ranks := make([]Rank, len(own))
			worst := slices.Max(own)
			for k, o := range own {
				ranks[k] = Rank{Rank: int64(k), Own: o, Step: worst + .05*j.step}
			}
			named[s] = make([]bool, len(own))
			follow(&h, ranks, false, func(r Result) { named[s][r.Rank] = true })
		}
		f.add(&j, named)
	}
	t.Log(f.String())
	assert.LessOrEqual(t, f.alarmedJobs, 1, "of 120")
	assert.LessOrEqual(t, 1e3*float64(f.alarmedSteps), 3.5*float64(f.healthySteps))
	assert.LessOrEqual(t, 1e3*float64(f.innocent), float64(f.lateSteps))
	if testing.Short() {
		return
	}
	assert.GreaterOrEqual(t, float64(f.found), 0.93*float64(f.lateJobs))
	for kind, least := range map[string]float64{"constant": 0.98, "two": 0.98, "drifting": 0.8, "intermittent": 0.28} {
		assert.GreaterOrEqual(t, float64(f.named[kind][0]), least*float64(f.named[kind][1]), kind)
	}
}

// One rank does not report: the late one, beside a present one that is a third as late, or an
// innocent one.
func TestSimulatedJobsWithASilentRank(t *testing.T) {
	for _, transfer := range []float64{.02, .05, .15} {
		jobs, found, wrong := 0, 0, 0
		for seed := range uint64(45) {
			r := rand.New(rand.NewPCG(seed, 78))
			n, step, noise := choose(r, 4, 8, 16), .05*math.Exp(r.Float64()*math.Log(10)), r.IntN(4)
			jitter, late := choose(r, 0, .3, 1, 2), choose(r, .05, .1, .2)*step
			silent := seed%3 == 0 // the late rank, n-1, which is so for the first third
			var h History
			named := map[int64]bool{}
			for range 300 {
				own := make([]float64, n)
				for k := range own {
					own[k] = .95*step*(1+.003*r.NormFloat64()) + noiseOf(r, noise, jitter)
				}
				own[n-1] += late
				own[0] += late / 3
				all := slices.Max(own) + transfer*step
				if silent {
					own = own[:n-1]
				} else {
					own = append(own[:1], own[2:]...)
				}
				ranks := make([]Rank, len(own))
				for k, o := range own {
					ranks[k] = Rank{Rank: int64(k), Own: o, Step: all}
				}
				follow(&h, ranks, true, func(r Result) { named[r.Rank] = true })
			}
			if silent {
				assert.Empty(t, named, "seed %d: all wait for the silent rank", seed)
				continue
			}
			jobs++
			if named[int64(n-2)] {
				found++
			}
			delete(named, int64(n-2))
			wrong += len(named)
		}
		t.Logf("transfers of %g of the step: the late rank was named in %d of %d jobs, another in %d", transfer, found, jobs, wrong)
		assert.Zero(t, wrong)
		if transfer < .1 { // a longer transfer hides smaller delays
			assert.GreaterOrEqual(t, 10*found, 8*jobs)
		}
	}
}
