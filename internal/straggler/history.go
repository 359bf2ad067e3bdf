// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"math"

	"github.com/otelgpu/otelgpu/semconv"
)

const (
	// A rank is slow repeatedly if the median of its last delays is above the limits; at least minPast of pastDelays.
	pastDelays, minPast = 16, semconv.FindingLateRankRepeatedSteps
	// repeatedSigmas is the limit: fewer standard errors than in a single step, because the median of noise is seldom
	// above outlierShare.
	repeatedSigmas = semconv.FindingLateRankRepeatedSigmas
	// The noise of own times is estimated from their last changes, from minChanges on. These are sizes of samples, not
	// limits of the finding: a median of fewer changes is no estimate of the noise.
	pastChanges, minChanges = 256, 8
	// medianToMean is the standard error of the median of normally distributed values, in standard errors of their mean.
	medianToMean = 1.2533141373155003 // √(π/2)
)

// History is the past of a loop's ranks: how much their own times change from step to step without a slow rank, and
// which ranks are late repeatedly. One step of few ranks cannot distinguish a slow rank from noise: of two ranks one is
// always above the other. The zero value is an empty history.
type History struct {
	ranks   map[int64]*pastRank
	sets    map[int64]int64      // by rank: the first one of its newest set of peers
	changes [pastChanges]float64 // of own times relative to the peers', absolute
	count   int                  // of changes, over the whole time
}

// pastRank is one rank's past.
type pastRank struct {
	relative float64 // own time above the center of its peers, in the newest step
	delays   [pastDelays]float64
	count    int // of delays, over the whole time
}

// add adds a delay and returns the median of the last ones, and of how many.
func (p *pastRank) add(delay float64) (float64, int) {
	p.delays[p.count%pastDelays] = delay
	p.count++
	known := min(p.count, pastDelays)
	sorted := p.delays
	return median(sorted[:known]), known
}

// Comparison is what [History.Compare] found about ranks that do the same work.
type Comparison struct {
	Results []Result // in the order of the ranks
	Typical int      // number of the rank nearest to the median
}

// forget removes a rank's past.
func (h *History) forget(rank int64) { delete(h.ranks, rank) }

// Compare compares the ranks of each set with one another and adds the step to the history. Sets are of one step, whose
// time they share: a delay that is small compared with another set's does not delay the step. A comparison is empty if
// the median is 0. A nil history is empty and stays so.
//
// If ranks are missing, a rank that waits longer for others than it is late itself is not slow: it waits for one of
// them, and delays nobody.
//
// A rank is slow by the rule of [Compare] if its delay also exceeds the noise of the loop; or if it is slow by its
// median over the last steps, in a step that it delays.
func (h *History) Compare(sets [][]Rank, missing bool) []Comparison {
	all := make([]peers, len(sets))
	worst, worstTypical := 0.0, 0.0
	for i, ranks := range sets {
		all[i] = newPeers(ranks)
		worst = max(worst, all[i].worst)
		h.add(&all[i])
		for _, d := range all[i].typicalDelays {
			worstTypical = max(worstTypical, d)
		}
	}
	noise, known := h.noise()
	out := make([]Comparison, len(sets))
	for i := range all {
		p := &all[i]
		if p.median <= 0 {
			continue
		}
		// The median of two ranks is one of them, so that the other's delay has the noise of both; the median of many ranks
		// has little noise.
		spread := noise * math.Sqrt(1+2/float64(len(p.ranks)))
		out[i] = p.compare(func(k int, delay float64) bool {
			if delay <= outlierShare*p.median || delay <= outlierStep*p.ranks[k].Step || missing && p.ranks[k].waits(delay) {
				return false
			}
			if delay > outlierSigmas*p.sigma && delay >= outlierWorst*worst && (!known || delay > outlierSigmas*spread) {
				return true
			}
			past := p.pastCount[k]
			if !known || past < minPast {
				return false
			}
			d := p.typicalDelays[k]
			return d > repeatedSigmas*spread*medianToMean/math.Sqrt(float64(past)) && d > outlierShare*p.median &&
				d >= outlierWorst*worstTypical
		})
		h.learn(p.changes)
	}
	return out
}

// add adds a step of peers, and sets their past. Noise is learned after the step, so that a step is not judged by its
// own changes.
func (h *History) add(p *peers) {
	n := len(p.ranks)
	p.typicalDelays, p.pastCount = make([]float64, n), make([]int, n)
	if h == nil || p.median <= 0 {
		return
	}
	if h.ranks == nil {
		h.ranks = make(map[int64]*pastRank)
	}
	own := make([]float64, n)
	for i := range p.ranks {
		own[i] = p.ranks[i].Own
	}
	center := median(own)
	// A center includes part of each rank's noise, half of it if there are two.
	scale := math.Sqrt(float64(n) / float64(max(1, n-1)))
	for i := range p.ranks {
		r := &p.ranks[i]
		past := h.ranks[r.Rank]
		relative := (r.Own - center) * scale
		if past == nil {
			if len(h.ranks) >= maxRanks {
				continue
			}
			past = &pastRank{}
			h.ranks[r.Rank] = past
		} else {
			p.changes = append(p.changes, math.Abs(relative-past.relative))
		}
		past.relative = relative
		p.typicalDelays[i], p.pastCount[i] = past.add(r.Own - p.median)
	}
}

// learn adds the changes of a step to the noise.
func (h *History) learn(changes []float64) {
	if h == nil {
		return
	}
	for _, c := range changes {
		h.changes[h.count%pastChanges] = c
		h.count++
	}
}

// noise returns the standard deviation of a rank's own time from step to step. A rank that is slow in every step does
// not change it, and one that is slow in a few moves the median little.
func (h *History) noise() (sigma float64, known bool) {
	if h == nil || h.count < minChanges {
		return 0, false
	}
	sorted := h.changes
	return madToSigma * median(sorted[:min(h.count, pastChanges)]) / math.Sqrt2, true
}
