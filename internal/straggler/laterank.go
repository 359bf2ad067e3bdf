// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/otelgpu/otelgpu/semconv"
)

// Limits of the decision that a rank is late.
const (
	// Material is the part of a step by which ranks may differ without consequence: devices of one
	// kind do by less.
	Material = semconv.FindingLateRankMaterial
	// alpha is the largest probability of a false accusation, surely the one from which on it is
	// certain.
	alpha  = semconv.FindingLateRankAlpha
	surely = semconv.FindingLateRankSurely
	// leastMagnitude is the number of standard errors that decide if there are too few steps for a
	// test of chance.
	leastMagnitude = semconv.FindingLateRankMagnitude
	permutations   = 199
	fewestSteps    = 3
	// medianToMean is the standard error of the median of normally distributed values, in standard
	// errors of their mean.
	medianToMean = 1.2533141373155003 // √(π/2)
)

// OwnTimes is the own time of peers, in any unit: a row for each step, with a value for each rank.
type OwnTimes [][]float64

// A LateRank states that a rank is late.
type LateRank struct {
	Rank  int     // its column
	P     float64 // probability that chance alone makes it as late; 0: judged by its magnitude, which is less certain
	Hits  int     // steps in which it would be the slowest even if it were faster by Material
	Steps int
	// Excess is by how much its own time exceeds the lower median of its peers, in the mean.
	Excess float64
}

// LateRanks returns the ranks that are late, the latest first. step is the usual length of a step,
// of is the number of ranks that are compared in all, in these and other sets.
//
// In each step it asks one question: would this rank still be the slowest of its peers if it were
// faster by Material of the step? If no rank is late, the probability of that is 1 ÷ ranks at most,
// whatever the distribution of noise. Hits are tested by the binomial distribution, sizes by
// permutation within steps; with too few steps for either, by magnitude.
func LateRanks(own OwnTimes, step float64, of int) []LateRank {
	if len(own) == 0 || len(own[0]) < 2 {
		return nil
	}
	j := &trial{own: own, n: len(own[0]), margin: Material * step, of: of}
	j.compare()
	if list := j.byHits(); len(list) > 0 {
		return list
	}
	if list := j.byPermutation(); len(list) > 0 {
		return list
	}
	return j.byMagnitude()
}

// StepsToJudge returns how many steps suffice to name a rank that is last in every one, of a number
// of peers and of all ranks.
func StepsToJudge(peers, of int) int {
	if peers < 2 {
		return 0
	}
	share := places(peers)[0].share
	return int(math.Ceil(math.Log(float64(of)/(alpha*share)) / math.Log(float64(peers))))
}

type trial struct {
	own    OwnTimes
	n, of  int
	margin float64

	excess [][]float64 // above the lower median of each step
	mean   []float64   // of the excess, by rank
	hits   map[int][]int
}

// place is a place among the slowest ranks, and its share of alpha. Places above the first find
// ranks that are equally late, and hide each other.
type place struct {
	at    int
	share float64
}

func places(n int) []place {
	list := []place{{1, 1}}
	for m := 2; m <= n/2; m *= 2 {
		list = append(list, place{at: m})
	}
	if len(list) > 1 {
		for i := range list {
			list[i].share = 0.5 / float64(len(list)-1)
		}
		list[0].share = 0.5
	}
	return list
}

func (j *trial) compare() {
	j.mean, j.hits = make([]float64, j.n), map[int][]int{}
	for _, l := range places(j.n) {
		j.hits[l.at] = make([]int, j.n)
	}
	for _, w := range j.own {
		order := slices.Sorted(slices.Values(w))
		middle := order[(j.n-1)/2]
		row := make([]float64, j.n)
		for i, v := range w {
			row[i] = v - middle
			j.mean[i] += row[i] / float64(len(j.own))
			for at, hits := range j.hits {
				other := order[j.n-at] // the largest, second largest … of the others
				if v >= other {
					other = order[j.n-at-1]
				}
				if v-j.margin > other {
					hits[i]++
				}
			}
		}
		j.excess = append(j.excess, row)
	}
}

func (j *trial) late(rank int, p float64) LateRank {
	return LateRank{Rank: rank, P: p, Hits: j.hits[1][rank], Steps: len(j.own), Excess: j.mean[rank]}
}

func (j *trial) byHits() (list []LateRank) {
	for i := range j.n {
		p := 1.0
		for _, l := range places(j.n) {
			tail := BinomialTail(len(j.own), float64(l.at)/float64(j.n), j.hits[l.at][i])
			p = min(p, tail*float64(j.of)/l.share)
		}
		if p <= alpha && j.mean[i] > j.margin {
			list = append(list, j.late(i, p))
		}
	}
	slices.SortStableFunc(list, func(x, y LateRank) int { return cmp.Compare(y.Excess, x.Excess) })
	return list
}

// byPermutation compares the largest mean excess with the excesses of shuffled steps. A single
// pause is in every permutation, and so is never significant.
func (j *trial) byPermutation() []LateRank {
	best := largest(j.mean)
	rows := make([][]float64, len(j.own))
	for s, w := range j.own {
		rows[s] = slices.Clone(w)
		rows[s][best] -= j.margin
		m := median(slices.Clone(rows[s]))
		for i := range rows[s] {
			rows[s][i] -= m
		}
	}
	mean := func(i int) (sum float64) {
		for _, row := range rows {
			sum += row[i]
		}
		return sum
	}
	t := mean(best)
	if t <= 0 {
		return nil
	}
	r, more := rand.New(rand.NewPCG(1, 2)), 0
	for range permutations {
		most := math.Inf(-1)
		for _, row := range rows {
			r.Shuffle(j.n, func(a, b int) { row[a], row[b] = row[b], row[a] })
		}
		for i := range j.n {
			most = max(most, mean(i))
		}
		if most >= t-1e-12*math.Abs(t) {
			more++
		}
	}
	sets := float64(j.of) / float64(j.n)
	if p := max(1, sets) * float64(1+more) / (permutations + 1); p <= alpha {
		return []LateRank{j.late(best, p)}
	}
	return nil
}

// byMagnitude compares the median excess with the noise from step to step.
func (j *trial) byMagnitude() []LateRank {
	steps := len(j.own)
	if steps < fewestSteps {
		return nil
	}
	var changes []float64
	for s := 1; s < steps; s++ {
		for i := range j.n {
			changes = append(changes, math.Abs(j.excess[s][i]-j.excess[s-1][i]))
		}
	}
	sigma := madToSigma * median(changes) / math.Sqrt2 * math.Sqrt(1+1/float64(max(2, j.n-1)))
	best, most := -1, 0.0
	for i := range j.n {
		if j.hits[1][i] < steps-steps/4 {
			continue
		}
		column := make([]float64, 0, steps)
		for s := range steps {
			column = append(column, j.excess[s][i])
		}
		z := (median(column) - j.margin) / (medianToMean * max(sigma, j.margin/100) / math.Sqrt(float64(steps)))
		if z > most {
			best, most = i, z
		}
	}
	if best < 0 || most < leastMagnitude {
		return nil
	}
	return []LateRank{j.late(best, 0)}
}

// Sure reports whether chance is practically excluded, Likely whether it is improbable.
func (v *LateRank) Sure() bool { return v.P > 0 && v.P <= surely }

// Likely reports whether chance is improbable.
func (v *LateRank) Likely() bool { return v.P > 0 }

func largest(values []float64) (at int) {
	for i, v := range values {
		if v > values[at] {
			at = i
		}
	}
	return at
}

// BinomialTail returns the probability of at least k successes in n trials of probability p.
func BinomialTail(n int, p float64, k int) float64 {
	if k <= 0 || p >= 1 {
		return 1
	}
	sum, lp, lq := 0.0, math.Log(p), math.Log1p(-p)
	gamma := func(x int) float64 { g, _ := math.Lgamma(float64(x) + 1); return g }
	for i := k; i <= n; i++ {
		sum += math.Exp(gamma(n) - gamma(i) - gamma(n-i) + float64(i)*lp + float64(n-i)*lq)
	}
	return min(1, sum)
}
