// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"maps"
	"math"
	"slices"
)

// outlierSigmas and outlierShare: a rank stands out when it is that many robust standard deviations and that share of the
// median above the median (3.5 after Iglewicz and Hoaglin, 1993; the share keeps noise of very even ranks out).
const (
	outlierSigmas = 3.5
	outlierShare  = 0.05
)

// compare writes the scores of all steps that are complete or have waited long enough.
func (a *aggregator) compare(now int64, final bool) {
	g := a.jobs
	for key, j := range g.jobs {
		for _, index := range slices.Sorted(maps.Keys(j.steps)) {
			s := j.steps[index]
			complete := j.world > 0 && int64(len(s.ranks)) >= j.world
			if !complete && !final && now-s.first < int64(g.cfg.MaxWait) {
				continue
			}
			delete(j.steps, index)
			g.waiting -= len(s.ranks)
			j.compared = max(j.compared, index)
			if len(s.ranks) >= g.cfg.MinRanks {
				a.score(key, j, index, s, now)
				continue
			}
			for _, r := range s.ranks {
				g.tree.take(r.spanKey)
			}
		}
		if a.cfg.Expiry > 0 && len(j.steps) == 0 && j.seen < now-int64(a.cfg.Expiry) {
			delete(g.jobs, key)
		}
	}
}

// score compares the ranks of one step.
func (a *aggregator) score(key jobKey, j *job, index int64, s *jobStep, now int64) {
	g := a.jobs
	ranks := slices.Sorted(maps.Keys(s.ranks))
	own := make([]float64, len(ranks))
	phases, loose := make([]*parts, len(ranks)), make([]*parts, len(ranks))
	for i, rank := range ranks {
		r := s.ranks[rank]
		own[i] = r.own
		loose[i] = r.divide(g.tree.take(r.spanKey))
		phases[i] = r.phases
	}
	m := median(slices.Clone(own))
	if m <= 0 {
		return
	}
	sigma := deviation(slices.Clone(own), m)
	res := a.jobResource(key, j, now)
	write := func(id metricID, rank int64, section string, v float64) {
		stream := res.stragglerStream(&a.settings, id, key, rank, section, j)
		stream.ratio(v, 1, now)
		stream.example(v, s.ranks[rank].spanKey, s.ranks[rank].end)
	}
	for i, rank := range ranks {
		write(metricStragglerScore, rank, "", own[i]/m)
		if own[i]-m <= outlierSigmas*sigma || own[i]-m <= outlierShare*m {
			continue
		}
		l := blame(phases, loose, i)
		if l.section == "" {
			l.delay = own[i] - m
		}
		write(metricStragglerDelay, rank, l.section, l.delay)
		if !g.spans {
			continue
		}
		typical := nearest(own, m)
		g.found = append(g.found, &finding{
			loss: l, step: s.ranks[rank].stepSpan, score: own[i] / m,
			loop: key.loop, index: index, ranks: len(ranks), median: m,
			typicalStep: s.ranks[ranks[typical]].spanKey, typicalRank: ranks[typical],
		})
	}
}

// nearest is the number of the value nearest to m, the first of several.
func nearest(values []float64, m float64) (at int) {
	for i, v := range values {
		if math.Abs(v-m) < math.Abs(values[at]-m) {
			at = i
		}
	}
	return at
}
