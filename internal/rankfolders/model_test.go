// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rankfolders

import (
	"math"
	"math/rand/v2"
)

// job is a simulated job. Times are in ms.
type job struct {
	r        *rand.Rand
	topology string // dp, dp_overlap, tp_dp, pp_dp or ep
	ranks    int
	steps    int
	stepTime float64
	noise    string  // normal, lognormal, exponential or pauses
	jitter   float64 // about the standard deviation of a rank's step
	fault    string  // none, late, slow_gpu or slow_link
	percent  float64 // of a step: the planted lateness
	phase    string  // data, forward or backward
	pattern  string  // constant, intermittent or drifting
	factor   float64 // of transfers over a slow link
	lead     float64 // by which the host is ahead of the device

	culprit int
	tensor  int // ranks of a tensor-parallel group, or stages of a pipeline
	rounds  []round
	work    [][][]float64 // kernels by step, round and rank
	host    [][][]float64 // time before them for which the device is idle, likewise
	late    [][][]float64 // planted idle time, likewise
	slower  [][][]float64 // planted longer kernels, likewise
	moving  [][][]float64 // transfers, by step, round and first member of the group
}

// round is what each rank does before one collective of a group, and how long that moves bytes;
// shares of a step.
type round struct {
	group     string
	own, move float64
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// newJob draws a job.
func newJob(seed uint64) *job {
	r := rand.New(rand.NewPCG(seed, 17))
	j := &job{
		r: r, topology: oneOf(r, "dp", "dp_overlap", "tp_dp", "pp_dp", "ep"), ranks: oneOf(r, 2, 4, 8, 16, 32, 64, 128),
		steps: oneOf(r, 3, 5, 10, 20, 50), stepTime: math.Exp(math.Log(20) + r.Float64()*math.Log(10)),
		noise: oneOf(r, "normal", "lognormal", "exponential", "pauses"), jitter: oneOf(r, 0, 0.3, 1, 2, 3),
		fault:   oneOf(r, "none", "none", "late", "late", "late", "slow_gpu", "slow_link"),
		percent: oneOf(r, 2.0, 5, 10, 20), phase: oneOf(r, "data", "forward", "backward"),
		pattern: oneOf(r, "constant", "constant", "intermittent", "drifting"), factor: oneOf(r, 1.5, 2, 4),
		lead: oneOf(r, 0, 0, 0.3),
	}
	if j.topology == "tp_dp" || j.topology == "pp_dp" {
		j.ranks = max(4, j.ranks)
	}
	if j.ranks*j.steps > 2600 {
		j.steps = max(3, 2600/j.ranks)
	}
	return j
}

func cube(steps, rounds, ranks int, f func(s, k, r int) float64) [][][]float64 {
	out := make([][][]float64, steps)
	for s := range out {
		out[s] = make([][]float64, rounds)
		for k := range out[s] {
			out[s][k] = make([]float64, ranks)
			for r := range ranks {
				out[s][k][r] = f(s, k, r)
			}
		}
	}
	return out
}

// draw draws the random numbers of a job.
func (j *job) draw() {
	j.tensor = 1
	switch j.topology {
	case "dp", "dp_overlap":
		j.rounds = []round{{"all", 0.30, 0.04}}
		for range 5 {
			j.rounds = append(j.rounds, round{"all", 0.10, 0.03})
		}
	case "tp_dp":
		j.tensor = min(4, j.ranks/2)
		for range 8 {
			j.rounds = append(j.rounds, round{"tp", 0.09, 0.015})
		}
		j.rounds = append(j.rounds, round{"dp", 0.10, 0.05})
	case "ep":
		for range 6 {
			j.rounds = append(j.rounds, round{"ep", 0.11, 0.03})
		}
		j.rounds = append(j.rounds, round{"all", 0.10, 0.05})
	default:
		j.tensor = min(4, j.ranks/2)
		j.rounds = []round{{"dp", 0.90, 0.06}}
	}
	r, rounds := j.r, len(j.rounds)
	speed := make([]float64, j.ranks)
	for i := range speed {
		speed[i] = 1 + 0.003*r.NormFloat64()
	}
	j.work = cube(j.steps, rounds, j.ranks, func(_, k, i int) float64 {
		w := j.rounds[k].own * j.stepTime * speed[i] * (1 + 0.005*r.NormFloat64())
		if j.rounds[k].group == "ep" {
			w *= 1 + 0.04*r.NormFloat64()
		}
		return w
	})
	u := j.jitter / math.Sqrt(float64(rounds))
	j.host = cube(j.steps, rounds, j.ranks, func(_, _, _ int) float64 {
		switch j.noise {
		case "normal":
			return max(0, 2*u+u*r.NormFloat64())
		case "lognormal":
			return u / 2.16 * math.Exp(r.NormFloat64())
		case "exponential":
			return u * r.ExpFloat64()
		}
		return max(0, 0.4*u+0.2*u*r.NormFloat64())
	})
	if j.noise == "pauses" && j.jitter > 0 {
		for s := range j.steps {
			for i := range j.ranks {
				if r.Float64() < 0.01 {
					j.host[s][r.IntN(rounds)][i] += 50
				}
			}
		}
	}
	j.culprit = r.IntN(j.ranks)
	amount := make([]float64, j.steps)
	for s := range amount {
		amount[s] = j.percent / 100 * j.stepTime
		switch j.pattern {
		case "intermittent":
			if r.Float64() < 0.3 {
				amount[s] /= 0.3
			} else {
				amount[s] = 0
			}
		case "drifting":
			amount[s] *= 2 * float64(s) / float64(max(1, j.steps-1))
		}
	}
	first, after := 0, 1
	switch j.phase {
	case "forward":
		after = (rounds + 1) / 2
	case "backward":
		first, after = rounds/2, rounds
	}
	zero := func(int, int, int) float64 { return 0 }
	j.late, j.slower = cube(j.steps, rounds, j.ranks, zero), cube(j.steps, rounds, j.ranks, zero)
	own := 0.0
	for _, k := range j.rounds {
		own += k.own
	}
	for s := range j.steps {
		for k := range rounds {
			switch {
			case j.fault == "slow_gpu":
				j.slower[s][k][j.culprit] = amount[s] * j.rounds[k].own / own
			case j.fault == "late" && k >= first && k < after:
				j.late[s][k][j.culprit] = amount[s] / float64(after-first)
			}
		}
	}
	j.moving = cube(j.steps, rounds, j.ranks, func(_, k, _ int) float64 {
		return j.rounds[k].move*j.stepTime*math.Exp(0.03*math.Abs(r.NormFloat64())) + 0.002*r.ExpFloat64()
	})
}

// slowKind is the kind of group whose link is slow.
func (j *job) slowKind() string {
	switch j.topology {
	case "tp_dp", "pp_dp":
		return "dp"
	case "ep":
		return "ep"
	}
	return "all"
}

// group returns the first rank of the group of a rank at a round, which names the group.
func (j *job) group(k, rank int) int {
	switch j.rounds[k].group {
	case "tp":
		return rank / j.tensor * j.tensor
	case "ep":
		n := min(8, j.ranks)
		return rank / n * n
	case "dp":
		return rank % j.tensor
	}
	return 0
}

// event is something that a rank does.
type event struct {
	kind       string // kernel, collective, loader, send or recv
	start, end float64
	step       int
	round      int
	peer       int
}

// run is a course of a job.
type run struct {
	events [][]event   // by rank
	began  [][]float64 // of steps, by rank
	length float64
}

// run runs the job, with or without what was planted.
func (j *job) run(planted bool) *run {
	out := &run{events: make([][]event, j.ranks), began: make([][]float64, j.ranks)}
	now, stream := make([]float64, j.ranks), make([]float64, j.ranks)
	add := func(r int, e event) { out.events[r] = append(out.events[r], e) }
	for s := range j.steps {
		for r := range j.ranks {
			out.began[r] = append(out.began[r], now[r])
		}
		for k := range j.rounds {
			idle, work := make([]float64, j.ranks), make([]float64, j.ranks)
			for r := range j.ranks {
				idle[r], work[r] = j.host[s][k][r], j.work[s][k][r]
				if planted {
					idle[r] += j.late[s][k][r]
					work[r] += j.slower[s][k][r]
				}
			}
			if j.topology == "pp_dp" {
				j.pipeline(s, now, idle, work, add)
			} else {
				for r := range j.ranks {
					if planted && j.late[s][k][r] > 0 && j.phase == "data" {
						add(r, event{"loader", now[r] + j.host[s][k][r], now[r] + idle[r], s, k, -1})
					}
					add(r, event{"kernel", now[r] + idle[r], now[r] + idle[r] + work[r], s, k, -1})
					now[r] += idle[r] + work[r]
				}
			}
			last, start := map[int]float64{}, make([]float64, j.ranks)
			for r := range j.ranks {
				start[r] = now[r]
				if j.topology == "dp_overlap" {
					start[r] = max(start[r], stream[r])
				}
				g := j.group(k, r)
				last[g] = max(last[g], start[r])
			}
			for r := range j.ranks {
				g := j.group(k, r)
				move := j.moving[s][k][g]
				if planted && j.fault == "slow_link" && j.rounds[k].group == j.slowKind() && g == j.group(k, j.culprit) {
					move *= j.factor
				}
				end := last[g] + move
				add(r, event{"collective", start[r], end, s, k, g})
				if stream[r] = end; j.topology != "dp_overlap" || k == len(j.rounds)-1 {
					now[r] = end
				}
			}
		}
	}
	for _, t := range now {
		out.length = max(out.length, t)
	}
	return out
}

// pipeline runs the forward and backward passes of 4 micro-batches through the stages of each
// replica.
func (j *job) pipeline(s int, now, idle, work []float64, add func(int, event)) {
	const batches, message = 4, 0.02
	for replica := 0; replica < j.ranks; replica += j.tensor {
		stages := min(j.tensor, j.ranks-replica)
		for p := range stages {
			now[replica+p] += idle[replica+p]
		}
		for pass, share := range [...]float64{1.0 / 3, 2.0 / 3} {
			done := make([]float64, batches)
			for i := range stages {
				p := replica + i
				before := p - 1
				if pass == 1 {
					p = replica + stages - 1 - i
					before = p + 1
				}
				for m := range batches {
					if i > 0 {
						ready := max(now[p], done[m]) + message
						add(p, event{"recv", now[p], ready, s, 0, before})
						add(before, event{"send", done[m], ready, s, 0, p})
						now[p] = ready
					}
					length := work[p] / batches * share
					add(p, event{"kernel", now[p], now[p] + length, s, 0, -1})
					now[p] += length
					done[m] = now[p]
				}
			}
		}
	}
}

// sisters reports whether several groups run the collectives of a slow link.
func (j *job) sisters() bool {
	for k := range j.rounds {
		if j.rounds[k].group == j.slowKind() && j.group(k, 0) != j.group(k, j.ranks-1) {
			return true
		}
	}
	return false
}
