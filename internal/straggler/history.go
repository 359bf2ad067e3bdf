// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/semconv"
)

// A rank has a hit in a step if it would still be among the m slowest of its n peers if it were
// faster by least of the step. If no rank is late, the probability of a hit is at most m/n,
// whatever the distribution of noise. Each rank has Shiryaev-Roberts sums of the likelihood ratios
// of its hits: one for each place m, because equally late ranks hide each other, and for each of
// several parts of the steps in which a rank may be late (docs/adr/0137, with sources). Noise that
// lasts for steps weakens them (docs/adr/0216).
const (
	least = semconv.FindingLateRankLiveThreshold
	// A sum that would never be reached again is capped, in multiples of the limit.
	maxSum = 1e9
	// atRest is above 1, in multiples of the sum of a rank that had no hits for a while.
	atRest = 1.1
	// The state ends after about 13 steps without a hit more than with one.
	withHit, withoutHit, endsAt = -1.0986122886681098, 0.35667494393873245, 4.605170185988092 // -ln 3, -ln 0.7, ln 100
	// gainSteps smooths what the late ranks cost.
	gainSteps = 8
	// maxKept bounds the hits of a rank that may still be named.
	maxKept = 64
	// In the first soon steps of a loop, in which it is not known for how long noise lasts, evidence
	// must be earlyProof times as strong.
	soon, earlyProof = 16, 1e6
	// Noise of steps that are apart from each other, by half of it at the start of a loop, is taken as
	// independent. near is between them and neighbors.
	apart, near = 16, 4
	// Noise lasts for longest steps at most, and is smoothed over noiseSteps. It is taken as lasting
	// if the part of its variance that neighboring steps share is unusual divided by the root of the
	// number of own times, which is one and a half standard errors.
	longest, noiseSteps, unusual = 32, 128, 5
)

// rates are the parts of the steps in which a rank may be late.
var rates = [...]float64{0.25, 0.5, 0.9}

// History is the past of a loop's ranks. The zero value is an empty history.
type History struct {
	ranks map[int64]*pastRank
	sets  map[int64]int64 // by rank: the first one of its newest set of peers
	every float64         // see [Limits.EverySteps]
	steps int             // compared
	// differ are by how much own times differ between neighboring steps, steps that are near, and
	// steps that are apart.
	differ [3]float64
}

// pastRank is one rank's past.
type pastRank struct {
	sums [][len(rates)]float64 // by place 1, 2, 4, ...
	late bool
	ends float64 // sum towards the end of the state
	gain float64 // s, smoothed, what the late ranks cost together
	kept []Kept
	past []float64 // s, the excess of the last steps, the newest last
}

// Kept is called with true if the hit of a rank proves to be lateness, and with false if it does
// not.
type Kept func(late bool)

// Keep keeps what to do with the hit of a rank in the newest step, see [Result.Earlier].
func (h *History) Keep(rank int64, then Kept) {
	p := h.ranks[rank]
	if p == nil {
		then(false)
		return
	}
	if len(p.kept) == maxKept {
		p.kept[0](false)
		p.kept = slices.Delete(p.kept, 0, 1)
	}
	p.kept = append(p.kept, then)
}

// acquit drops what was kept.
func (p *pastRank) acquit() {
	for _, then := range p.kept {
		then(false)
	}
	p.kept = nil
}

// Comparison is what [History.Compare] found about ranks that do the same work.
type Comparison struct {
	Results []Result // in the order of the ranks
	Typical int      // number of the rank nearest to the median
}

// forget removes a rank's past.
func (h *History) forget(rank int64) {
	if p := h.ranks[rank]; p != nil {
		p.acquit()
		delete(h.ranks, rank)
	}
}

// clear removes the past of all ranks.
func (h *History) clear() {
	for rank := range h.ranks {
		h.forget(rank)
	}
}

// Compare compares the ranks of each set with one another and adds the step to the history. Sets
// are of one step, whose time they share. A comparison is empty if the median is 0.
//
// A rank is slow in a step with a hit if its hits in the steps so far prove that it is late, and
// while the late ranks cost more than least of the step together. Hits before that proof are
// suspicions.
//
// If ranks are missing, a rank that waits longer for others than it is late itself has no hit: it
// waits for one of them, and delays nobody.
func (h *History) Compare(sets [][]Rank, missing bool) []Comparison {
	n, steps := 0, []float64(nil)
	for _, ranks := range sets {
		n += len(ranks)
		for i := range ranks {
			steps = append(steps, max(ranks[i].Step, ranks[i].Own))
		}
	}
	margin, limit := least*lowMedian(steps), cmp.Or(h.every, semconv.FindingLateRankSteps)*float64(n)
	if h.steps+1 < soon {
		limit *= earlyProof
	}
	h.steps++
	for i := range h.differ {
		h.differ[i] -= h.differ[i] / noiseSteps
	}
	out := make([]Comparison, len(sets))
	for i, ranks := range sets {
		if p := newPeers(ranks); p.median > 0 {
			out[i] = p.compare(h.judge(ranks, p.median, margin, limit, missing))
		}
	}
	return out
}

// judge adds a step of peers and returns which of them are slow, and which may be.
func (h *History) judge(ranks []Rank, median, margin, limit float64, missing bool) (slow []judgement) {
	slow = make([]judgement, len(ranks))
	if len(ranks) < 2 {
		return slow
	}
	if h.ranks == nil {
		h.ranks = make(map[int64]*pastRank)
	}
	own := make([]float64, len(ranks))
	for k := range ranks {
		own[k] = ranks[k].Own
	}
	slices.SortFunc(own, func(a, b float64) int { return cmp.Compare(b, a) })
	odds := newOdds(len(ranks), h.lasts(len(ranks)))
	past := make([]*pastRank, len(ranks))
	var differ [len(h.differ)][]float64
	punctual, some := 0.0, false // the slowest rank that is not late
	for k := range ranks {
		r := &ranks[k]
		p := h.ranks[r.Rank]
		if p == nil {
			if len(h.ranks) >= maxRanks {
				continue
			}
			p = &pastRank{}
			h.ranks[r.Rank] = p
		}
		past[k] = p
		at := r.Own
		if len(ranks) > 2 {
			at -= median
		}
		if n := len(p.past); n >= apart/2 {
			for i, back := range [len(differ)]int{1, near, n} {
				differ[i] = append(differ[i], at-p.past[n-back])
			}
		}
		if p.past = append(p.past, at); len(p.past) > apart {
			p.past = slices.Delete(p.past, 0, 1)
		}
		counts := !missing || !r.waits(r.Own-median)
		slow[k].hit = p.add(r.Own, margin, limit, own, counts, odds)
		if !p.late {
			punctual = max(punctual, r.Own)
			some = true
		}
	}
	for i, of := range differ {
		h.differ[i] += float64(len(of)) * change(of)
	}
	rest := 0.0
	for _, ratio := range odds[0].neither {
		rest += ratio / (1 - ratio) / float64(len(rates))
	}
	cost := 0.0
	if some {
		cost = max(0, own[0]-punctual)
	}
	for k, p := range past {
		if p == nil {
			continue
		}
		if p.late {
			p.gain += (cost - p.gain) / gainSteps
		} else {
			p.gain = 0
		}
		v := &slow[k]
		switch {
		case p.late && p.gain > margin:
			v.earlier, p.kept = p.kept, nil
			v.named = v.hit
		case !p.late && p.mean(len(ranks)) < atRest*rest:
			p.acquit()
		}
	}
	return slow
}

// A judgement is what is known about a rank after a step. hit without named is a suspicion.
type judgement struct {
	hit, named bool
	earlier    []Kept
}

// add adds a rank's step among peers, whose own times are sorted, the longest first. It returns
// whether the step is a hit; if not counts, it is none.
func (p *pastRank) add(mine, margin, limit float64, own []float64, counts bool, odds []odds) (hit bool) {
	n := len(own)
	for i, m := 0, 1; i < len(odds); i, m = i+1, 2*m {
		longer, shorter := own[m-1], own[n-m] // the m-th longest and shortest of the others
		if mine >= longer {
			longer = own[m]
		}
		if mine <= shorter {
			shorter = own[n-m-1]
		}
		if i == len(p.sums) {
			p.sums = append(p.sums, [len(rates)]float64{})
		}
		ratios := &odds[i].neither
		switch {
		case counts && mine-margin > longer:
			ratios, hit = &odds[i].slow, true
		case mine+margin < shorter:
			ratios = &odds[i].fast
		}
		for k, ratio := range ratios {
			p.sums[i][k] = min((1+p.sums[i][k])*ratio, maxSum*limit)
		}
	}
	p.late = p.late || hit && p.mean(n) >= limit
	if !p.late {
		p.ends = 0
		return hit
	}
	if hit {
		p.ends = max(0, p.ends+withHit)
	} else {
		p.ends = max(0, p.ends+withoutHit)
	}
	if p.ends > endsAt {
		p.late, p.ends, p.sums = false, 0, nil
	}
	return hit
}

// change returns the typical one of ranks' changes, which a rank that becomes late does not affect:
// the median, but of two ranks the least of either and of their distance, since both are also
// changed by what happens to all.
func change(of []float64) float64 {
	if len(of) == 2 {
		return min(math.Abs(of[0]), math.Abs(of[1]), math.Abs(of[0]-of[1]))
	}
	for i, v := range of {
		of[i] = math.Abs(v)
	}
	return lowMedian(of)
}

// lasts returns for how many steps noise lasts: one if steps are independent, and the sum of the
// autocorrelation otherwise, which is taken as falling by the same factor with each step. The
// logarithm of a likelihood ratio is divided by it, so that as many steps count as one.
func (h *History) lasts(n int) float64 {
	shared := func(differ float64) float64 { // part of the variance; NaN without noise
		r := differ / h.differ[2]
		return 1 - r*r
	}
	next, later := shared(h.differ[0]), shared(h.differ[1])
	least := unusual / math.Sqrt(float64(n*min(max(1, h.steps-apart/2), 2*noiseSteps)))
	if !(next > least) {
		return 1
	}
	factor := next
	if later > least {
		factor = math.Pow(min(1, later/next), 1.0/(near-1))
	}
	return min(longest, 1+2*next/(1-factor))
}

// odds are likelihood ratios of a step for a rank that is among the slowest, among the fastest, or
// neither. A hit is canceled by a step in which the rank is among the fastest: a rank whose times
// vary more than its peers' is both, and not late.
type odds struct{ slow, fast, neither [len(rates)]float64 }

// newOdds returns the odds of n ranks by place, if noise lasts for a number of steps.
func newOdds(n int, lasts float64) (list []odds) {
	for _, l := range places(n) {
		var o odds
		chance := float64(l.at) / float64(n)
		for k, rate := range rates {
			late := chance + (1-chance)*rate
			o.slow[k] = math.Pow(late/chance, 1/lasts)
			o.neither[k] = math.Pow((1-late)/(1-chance), 1/lasts)
			o.fast[k] = min(1/o.slow[k], o.neither[k])
		}
		list = append(list, o)
	}
	return list
}

// mean returns the average of the sums: place 1 has half of the weight, the others divide the rest.
func (p *pastRank) mean(n int) (mean float64) {
	places := 1
	for m := 2; m <= n/2; m *= 2 {
		places++
	}
	for i := range min(places, len(p.sums)) {
		share := 0.5
		switch {
		case places == 1:
			share = 1
		case i > 0:
			share /= float64(places - 1)
		}
		for _, s := range p.sums[i] {
			mean += share / float64(len(rates)) * s
		}
	}
	return mean
}
