// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package straggler finds the rank that delays a job.
//
// In synchronous training all ranks' steps are equally long: the fast ranks wait in communication
// for the slow one. Two measures see through that:
//
//   - [Compare]: a rank's own time is its step without exposed communication; a straggler's own time is far above the
//     median of the ranks. It needs steps. [Jobs] collects the steps of ranks until they can
//     be compared. [History] has the earlier steps, and proves that a rank is late by many of them.
//   - [Arrivals]: of each collective that all ranks take part in, which rank arrived last and how long the others
//     waited for it. It needs the collectives' times and no steps.
//
// [Sections] are where a rank's time went, so that a comparison can name the section that costs it.
package straggler

import (
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/semconv"
)

// A rank is slow if its own time is outlierSigmas robust standard deviations and outlierShare of
// the median above the median (3.5 after Iglewicz and Hoaglin, How to Detect and Handle Outliers,
// 1993; the share excludes the noise of very even ranks). It must also delay the step: its delay is
// at least outlierStep of the step, and outlierWorst of the largest delay, because all ranks wait
// for the slowest one.
const (
	outlierSigmas = semconv.FindingLateRankSigmas
	outlierShare  = semconv.FindingLateRankOwnTime
	outlierStep   = semconv.FindingLateRankThreshold
	outlierWorst  = semconv.FindingLateRankWorst
)

// Own returns the time that a rank spends on its own work in a step of so many seconds: without
// exposed communication, in which it may have waited for others. exposed must be measured on the
// device: ranges of the host overlap communication even while the host only waits for it.
func Own(step, exposed float64) float64 { return max(0, step-max(0, exposed)) }

// Rank is the data of one rank for one step.
type Rank struct {
	Rank int64
	Own  float64 // s, see [Own]
	Step float64 // s, the step with all communication; 0: not known
	// Meetings are the rank's last collectives of the step, by process group; nil: not known.
	Meetings []Meeting
	// Phases are the phases of the step, Loose the operations directly below the step that are in
	// no phase. Nil: not known.
	Phases, Loose *Sections
}

// waits reports whether the rank waits in communication for longer than the given time, by more
// than noise.
func (r *Rank) waits(longer float64) bool { return r.Step-r.Own > longer+least*r.Step }

// AllWait reports whether each rank waits in communication for a considerable part of its step,
// which transfers alone may explain.
func AllWait(ranks []Rank) bool {
	return !slices.ContainsFunc(ranks, func(r Rank) bool { return !r.waits(outlierStep * r.Step) })
}

// Result is the result of the comparison for one rank.
type Result struct {
	Rank   int64
	Score  float64 // own time divided by the median
	Median float64 // of the ranks' own time, s
	Slow   bool    // the rank is slow
	// Suspect means that the rank may be slow, which later steps decide. The following fields are
	// set only if one of both is true.
	Suspect bool
	// Earlier is what [History.Keep] kept for the steps in which the rank was suspect, rightly.
	Earlier []Kept

	// Delay is how many seconds the rank is above the median: in Section if one is named, otherwise
	// in the step.
	Delay float64
	// Section is the path, with slashes, of the deepest section that explains most of the delay;
	// empty if unknown.
	Section string
	// Phase is the phase that the section is or belongs to; empty: none.
	Phase string
	// At is the section's position in the rank's step; zero if unknown.
	At Extent
}

// Compare compares ranks whose earlier steps are unknown. The results are in the order of ranks;
// none if the median is
// 0. typical is the number of the rank nearest to the median.
func Compare(ranks []Rank) (results []Result, typical int) {
	p := newPeers(ranks)
	if p.median <= 0 {
		return nil, 0
	}
	slow := make([]judgement, len(ranks))
	for k := range ranks {
		delay := ranks[k].Own - p.median
		slow[k].named = delay > outlierShare*p.median && delay > outlierStep*ranks[k].Step &&
			delay > outlierSigmas*p.sigma && delay >= outlierWorst*p.worst
	}
	c := p.compare(slow)
	return c.Results, c.Typical
}

// peers are ranks that are compared with one another in one step.
type peers struct {
	ranks                []Rank
	median, sigma, worst float64 // of own times, in s; worst is the largest delay
}

func newPeers(ranks []Rank) peers {
	own := make([]float64, len(ranks))
	for i := range ranks {
		own[i] = ranks[i].Own
	}
	p := peers{ranks: ranks, median: lowMedian(slices.Clone(own))}
	if len(own) > 0 {
		p.worst = slices.Max(own) - p.median
	}
	p.sigma = deviation(own, p.median)
	return p
}

// compare returns the results, and names the sections of the ranks that are slow or may be.
func (p *peers) compare(slow []judgement) Comparison {
	c := Comparison{Results: make([]Result, len(p.ranks))}
	var inPhases, inLoose *level
	for i := range p.ranks {
		delay := p.ranks[i].Own - p.median
		if math.Abs(delay) < math.Abs(p.ranks[c.Typical].Own-p.median) {
			c.Typical = i
		}
		r := &c.Results[i]
		*r = Result{Rank: p.ranks[i].Rank, Score: p.ranks[i].Own / p.median, Median: p.median}
		r.Slow, r.Suspect, r.Earlier = slow[i].named, slow[i].hit && !slow[i].named, slow[i].earlier
		if !r.Slow && !r.Suspect {
			continue
		}
		if inPhases == nil {
			phases, loose := make([]*Sections, len(p.ranks)), make([]*Sections, len(p.ranks))
			for k := range p.ranks {
				phases[k], loose[k] = p.ranks[k].Phases, p.ranks[k].Loose
			}
			inPhases, inLoose = newLevel(phases), newLevel(loose)
		}
		r.blame(inPhases, inLoose, i)
		if r.Section == "" {
			r.Delay = delay
		}
	}
	return c
}

// median of values, which it sorts. 0 if there are none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return values[n/2-1]/2 + values[n/2]/2
}

// lowMedian returns the median of values, which it sorts; of an even number the lower of the two in
// the middle. Half of the ranks may be slow, and of two ranks one: the mean of the middle would be
// between the late ranks and the others, so that no rank could be an outlier.
func lowMedian(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(n-1)/2]
}

// madToSigma makes the median absolute deviation an estimate of the standard deviation of a normal
// distribution: 1 / Φ⁻¹(3/4) (Rousseeuw and Croux, JASA 88, 1993).
const madToSigma = 1.4826022185056018

// deviation returns the scaled median absolute deviation from m; it overwrites and sorts values.
func deviation(values []float64, m float64) float64 {
	for i, v := range values {
		values[i] = math.Abs(v - m)
	}
	return madToSigma * lowMedian(values)
}
