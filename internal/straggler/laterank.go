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
	// leastMagnitude is the number of standard errors that decide between two ranks with too few
	// steps for a test of chance.
	leastMagnitude = semconv.FindingLateRankMagnitude
	permutations   = 199
	// The largest noise of peers is taken as tailSigmas at least; a rank pauses in pauseRate of its
	// steps.
	tailSigmas, pauseRate = 2.5, 0.01
	// tailShare is the part of alpha of ranks that exceed this noise.
	tailShare = 0.2
	// clearShare is the part of alpha of the steps or collectives at which one rank is clearly the
	// slowest.
	clearShare  = 0.2
	fewestSteps = 3
	// lastingShare is the part of alpha that the test of the sum of all steps may use. It is below 1
	// because a few pauses can decide a sum.
	lastingShare = 0.5
	// Among at least fewestRanks ranks, a late rank must exceed its peers by more than spreads robust
	// deviations of their means. Fewer ranks do not show how much peers differ.
	fewestRanks, spreads = 6, 4
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
	// Excess is by how much its own time exceeds the lower median of its peers, in the mean; InHits
	// is the mean of the steps with hits, 0 without any.
	Excess, InHits float64
	// Rounds is the number of collectives at which a rank of its group worked clearly longest before
	// them, RoundHits at how many it was this one. 0: judged by steps.
	Rounds, RoundHits int
}

// LateRanks returns the ranks that are late, the latest first. step is the usual length of a step,
// of is the number of ranks that are compared in all, in these and other sets.
//
// In each step it asks one question: would this rank still be the slowest of its peers if it were
// faster by Material of the step? If no rank is late, the probability of that is 1 ÷ ranks at most,
// whatever the distribution of noise. Hits are tested by the binomial distribution, over all steps
// and over the steps in which one rank is clearly the slowest, sizes by permutation within steps;
// if neither decides, by magnitude, which assumes something about noise. A rank of several must also
// exceed the spread of its peers.
func LateRanks(own OwnTimes, step float64, of int) []LateRank {
	if len(own) == 0 || len(own[0]) < 2 {
		return nil
	}
	j := &trial{own: own, n: len(own[0]), margin: Material * step, of: of}
	j.compare()
	for _, find := range []func() []LateRank{j.byHits, j.byPermutation, j.byMagnitude} {
		list := slices.DeleteFunc(find(), func(v LateRank) bool { return !j.unusual(v.Rank) })
		if len(list) > 0 {
			return list
		}
	}
	return nil
}

// unusual reports whether the excess of a rank is beyond the spread of the other ranks' means, if
// they are enough to show one. Tests of steps take steps as independent. Disturbances that last for
// several steps make ranks differ by more than such steps explain, and the spread shows that.
func (j *trial) unusual(rank int) bool {
	if j.n < fewestRanks {
		return true
	}
	others := slices.Delete(slices.Clone(j.mean), rank, rank+1)
	middle := median(others)
	excess := max(j.mean[rank]-middle, median(j.beyond(rank)))
	return excess > spreads*deviation(others, middle)
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
	inHits []float64 // sum of the excess in hits of place 1, by rank
	clear  []share   // of the steps in which one rank is clearly the slowest, by rank
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

// share is how many of the trials that are decided a rank has.
type share struct{ hits, of int }

// add counts a trial and reports whether it is a hit.
func (s *share) add(hit, decided bool) bool {
	if decided {
		s.of++
	}
	if hit {
		s.hits++
	}
	return hit
}

func (s *share) tail(n int) float64 { return BinomialTail(s.of, 1/float64(n), s.hits) }

// clearly reports whether a rank would be the slowest by more than gap even if it were faster by
// margin, and whether then any rank would be. Given the latter, the former has the probability
// 1 ÷ ranks at most if the rank is not late.
func clearly(order []float64, v, margin, gap float64) (hit, decided bool) {
	first, second := other(order, v, 1), other(order, v, 2)
	v -= margin
	if v > first {
		return v-first > gap, v-first > gap
	}
	return false, first-max(second, v) > gap
}

// other returns the largest, second largest … of the others than v. It is the least if there are
// fewer.
func other(order []float64, v float64, place int) float64 {
	n := len(order)
	at := n - place
	if at < 0 || v >= order[at] {
		at--
	}
	return order[max(0, at)]
}

func (j *trial) compare() {
	j.mean, j.hits, j.clear = make([]float64, j.n), map[int][]int{}, make([]share, j.n)
	j.inHits = make([]float64, j.n)
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
		}
		for i, v := range w {
			j.clear[i].add(clearly(order, v, j.margin, j.margin))
			for at, hits := range j.hits {
				if v-j.margin > other(order, v, at) {
					if hits[i]++; at == 1 {
						j.inHits[i] += row[i]
					}
				}
			}
		}
		j.excess = append(j.excess, row)
	}
}

func (j *trial) late(rank int, p float64) LateRank {
	hits := j.hits[1][rank]
	return LateRank{
		Rank: rank, P: p, Hits: hits, Steps: len(j.own), Excess: j.mean[rank], InHits: j.inHits[rank] / float64(max(1, hits)),
	}
}

func (j *trial) byHits() (list []LateRank) {
	for i := range j.n {
		p := 1.0
		for _, l := range places(j.n) {
			tail := BinomialTail(len(j.own), float64(l.at)/float64(j.n), j.hits[l.at][i])
			p = min(p, tail*float64(j.of)/l.share)
		}
		p = min(p, j.clear[i].tail(j.n)*float64(j.of)/clearShare)
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
	if p := max(1, sets) * float64(1+more) / (permutations + 1); p <= alpha*lastingShare {
		return []LateRank{j.late(best, p)}
	}
	return nil
}

// byMagnitude compares excesses with the noise. One step decides nothing: any rank may pause.
func (j *trial) byMagnitude() []LateRank {
	if len(j.own) < fewestSteps {
		return nil
	}
	var changes []float64
	for s := 1; s < len(j.own); s++ {
		now, before := j.excess[s], j.excess[s-1]
		if j.n == 2 { // of two ranks, the excess of one is 0
			changes = append(changes, math.Abs(now[1]-now[0]-before[1]+before[0]))
			continue
		}
		for i := range j.n {
			changes = append(changes, math.Abs(now[i]-before[i]))
		}
	}
	sigma := madToSigma * median(changes) / math.Sqrt2 * math.Sqrt(1+1/float64(max(2, j.n-1)))
	judge := j.tail
	if j.n == 2 {
		judge = j.standardErrors
	}
	best, most := -1, 0.0
	for i := range j.n {
		if v := judge(i, sigma); v > most && j.mean[i] > j.margin {
			best, most = i, v
		}
	}
	if best < 0 {
		return nil
	}
	return []LateRank{j.late(best, 0)}
}

// standardErrors returns by how many standard errors the median excess of one of two ranks exceeds
// the margin; 0: not by enough, or in too few steps.
func (j *trial) standardErrors(rank int, sigma float64) float64 {
	steps := len(j.own)
	if j.hits[1][rank] < steps-steps/4 {
		return 0
	}
	z := (median(j.beyond(rank)) - j.margin) / (medianToMean * max(sigma, j.margin/100) / math.Sqrt(float64(steps)))
	if z < leastMagnitude {
		return 0
	}
	return z
}

// tail returns how improbable it is (-ln p) that at least half of a rank's steps exceed, by chance,
// what the other ranks show in all steps; 0: not improbable enough. The largest of n values is
// exceeded with the probability 1 ÷ (n+1), and multiples of it with one that falls with their cube,
// but not below the rate of pauses, which may be of any length.
func (j *trial) tail(rank int, sigma float64) float64 {
	steps := len(j.own)
	largest := max(tailSigmas*sigma, j.margin/10)
	for _, row := range j.excess {
		for i, v := range row {
			if i != rank {
				largest = max(largest, v)
			}
		}
	}
	mine, p := j.beyond(rank), 1.0
	slices.Sort(mine)
	for k := max(2, (steps+1)/2); k <= steps; k++ {
		ratio := (mine[steps-k] - j.margin) / largest
		if ratio <= 1 {
			break
		}
		chance := max(pauseRate, math.Pow(ratio, -3)/float64(1+steps*(j.n-1)))
		p = min(p, BinomialTail(steps, chance, k))
	}
	if p *= float64((steps - 1) * j.of); p > alpha*tailShare {
		return 0
	}
	return -math.Log(p)
}

// beyond returns the excess of a rank in each step.
func (j *trial) beyond(rank int) (column []float64) {
	for _, row := range j.excess {
		column = append(column, row[rank])
	}
	return column
}

// Sure reports whether chance is practically excluded, Likely whether it is improbable.
func (v *LateRank) Sure() bool { return v.P > 0 && v.P <= surely }

// Likely reports whether chance is improbable.
func (v *LateRank) Likely() bool { return v.P > 0 }

// Round is a collective of peers: for how long each of them worked before it.
type Round struct {
	Step  int   // its row of OwnTimes
	Ranks []int // columns of OwnTimes
	Own   []float64
}

// LateRanksByRound returns the ranks that are late according to rounds, of which a step has many.
// It finds what chance hides in a step: lateness that is confined to few rounds, or is in many of
// few steps. A disturbance can last for several rounds, so that a rank must have hits in several
// steps, and be late by Material even without its worst step. least is the smallest difference that
// counts.
func LateRanksByRound(own OwnTimes, rounds []Round, step, least float64, of int) (list []LateRank) {
	if len(own) < 2 || len(own[0]) < 2 {
		return nil
	}
	j := &trial{own: own, n: len(own[0]), margin: Material * step, of: of}
	j.compare()
	bySize := make([]map[int]share, j.n) // of the group
	steps := make([]map[int]bool, j.n)
	for i := range j.n {
		bySize[i], steps[i] = map[int]share{}, map[int]bool{}
	}
	for i := range rounds {
		r := &rounds[i]
		order := slices.Sorted(slices.Values(r.Own))
		n, middle := len(order), order[(len(order)-1)/2]
		if n < 2 {
			continue
		}
		for k, rank := range r.Ranks {
			t := bySize[rank][n]
			if t.add(clearly(order, r.Own[k], Material*middle, max(least, Material*middle))) {
				steps[rank][r.Step] = true
			}
			bySize[rank][n] = t
		}
	}
	for i := range j.n {
		worst, v := 0.0, j.late(i, 1)
		for s := range own {
			worst = max(worst, j.excess[s][i])
		}
		rest := (j.mean[i]*float64(len(own)) - worst) / float64(len(own)-1)
		if rest <= j.margin || len(steps[i]) < max(2, len(own)/5) {
			continue
		}
		for n, t := range bySize[i] {
			if p := t.tail(n) * float64(of*len(bySize[i])) / clearShare; p < v.P {
				v.P, v.Rounds, v.RoundHits = p, t.of, t.hits
			}
		}
		if v.P <= alpha && j.unusual(i) {
			list = append(list, v)
		}
	}
	slices.SortStableFunc(list, func(x, y LateRank) int { return cmp.Compare(y.Excess, x.Excess) })
	return list
}

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
