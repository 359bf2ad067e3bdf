// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"maps"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/semconv"
)

const (
	// outlierSigmas and outlierShare: a rank stands out when it is that many robust standard deviations and that share of the
	// median above the median (3.5 after Iglewicz and Hoaglin, 1993; the share keeps noise of very even ranks out).
	outlierSigmas = 3.5
	outlierShare  = 0.05
	// restart: an index this far below the newest compared one is a job that began anew, not a late rank.
	restart = 100
	// maxJobs bounds the loops of jobs that are known.
	maxJobs = 1 << 12
	// maxSums bounds the steps of which sums of sections are held, whether or not their step comes.
	maxSums = 1 << 16
)

// jobKey is what ranks that are compared have in common.
type jobKey struct{ service, job, loop string }

// stragglers collects the steps of the ranks of jobs until they can be compared.
type stragglers struct {
	cfg      StragglerConfig
	jobs     map[jobKey]*job
	waiting  int // steps of ranks, over all jobs
	sections map[spanKey]*sections
	order    []spanKey // of sections, oldest first; those that were taken stay until they reach the front
}

// sections are the sums of the operations directly below a step.
type sections struct {
	list  [maxPhases]phase
	count int
}

func (s *sections) add(name string, d float64) {
	for i := range s.list[:s.count] {
		if s.list[i].name == name {
			s.list[i].duration += d
			return
		}
	}
	if s.count < len(s.list) {
		s.list[s.count] = phase{strings.Clone(name), d}
		s.count++
	}
}

type job struct {
	world    int64 // −1 where unknown
	steps    map[int64]*jobStep
	compared int64 // highest index compared
	newest   uint64
	seen     int64
}

// jobStep is one index of a loop over the ranks that have reported it.
type jobStep struct {
	first int64 // wall clock of the first rank, unix ns
	ranks map[int64]*rankStep
}

type rankStep struct {
	own   float64 // s
	parts sections
}

func newStragglers(cfg StragglerConfig) *stragglers {
	return &stragglers{cfg: cfg, jobs: make(map[jobKey]*job), sections: make(map[spanKey]*sections)}
}

// section adds an operation to the sums below its parent, which may be a step. Communication is left out: in it the
// fast ranks wait for the slow one.
func (g *stragglers) section(r *resource, f *facts) {
	if r.job == "" || r.rank < 0 || f.time == 0 || f.collective || f.traceID.IsEmpty() || f.parentSpanID.IsEmpty() {
		return
	}
	key := spanKey{f.traceID, f.parentSpanID}
	s := g.sections[key]
	if s == nil {
		for len(g.sections) >= maxSums || len(g.order) >= 4*maxSums {
			delete(g.sections, g.order[0])
			g.order = g.order[1:]
		}
		s = &sections{}
		g.sections[key] = s
		g.order = append(g.order, key)
	}
	s.add(f.name, f.time)
}

// step takes a step of one rank; it returns 1 if the step was compared already. Without job, rank and index there is
// nothing to compare.
func (g *stragglers) step(r *resource, f *facts, now int64, limit *int64) (late int64) {
	if r.job == "" || r.rank < 0 || !f.hasStepIndex || f.stepDuration == 0 {
		return 0
	}
	key := jobKey{r.service, r.job, f.name}
	j := g.jobs[key]
	if j == nil {
		if len(g.jobs) >= maxJobs {
			*limit++
			return 0
		}
		key = jobKey{strings.Clone(key.service), strings.Clone(key.job), strings.Clone(key.loop)}
		j = &job{world: -1, steps: make(map[int64]*jobStep), compared: -1 << 62}
		g.jobs[key] = j
	}
	j.world, j.seen, j.newest = r.world, now, max(j.newest, f.end)
	if f.stepIndex < j.compared-restart {
		j.compared = -1 << 62
	}
	s := j.steps[f.stepIndex]
	if s == nil {
		if f.stepIndex <= j.compared {
			return 1
		}
		s = &jobStep{first: now, ranks: make(map[int64]*rankStep)}
	}
	if _, again := s.ranks[r.rank]; !again {
		if g.waiting >= g.cfg.MaxWaiting {
			*limit++
			return 0
		}
		g.waiting++
	}
	s.ranks[r.rank] = g.rankStep(f)
	j.steps[f.stepIndex] = s
	return 0
}

// rankStep is what a rank did by itself: the step without the communication that nothing hides. Of the communication
// at most the overlap is hidden, so at least their difference is exposed.
func (g *stragglers) rankStep(f *facts) *rankStep {
	var comm float64
	rs := &rankStep{}
	for _, p := range f.phases[:f.phaseCount] {
		if p.name == semconv.GPUStepPhaseComm {
			comm = p.duration
		} else {
			rs.parts.add(p.name, p.duration)
		}
	}
	if f.other > 0 {
		rs.parts.add(semconv.GPUStragglerSectionOther, f.other)
	}
	key := spanKey{f.traceID, f.spanID}
	if below := g.sections[key]; below != nil {
		for _, p := range below.list[:below.count] {
			rs.parts.add(p.name, p.duration)
		}
		delete(g.sections, key)
	}
	rs.own = max(0, f.stepDuration-max(0, comm-f.overlap))
	return rs
}

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
				a.score(key, j, s, now)
			}
		}
		if a.cfg.Expiry > 0 && len(j.steps) == 0 && j.seen < now-int64(a.cfg.Expiry) {
			delete(g.jobs, key)
		}
	}
}

// score compares the ranks of one step.
func (a *aggregator) score(key jobKey, j *job, s *jobStep, now int64) {
	own := make([]float64, 0, len(s.ranks))
	for _, r := range s.ranks {
		own = append(own, r.own)
	}
	m := median(own)
	if m <= 0 {
		return
	}
	sigma := deviation(own, m)
	res := a.jobResource(key, j, now)
	for rank, r := range s.ranks {
		res.stragglerStream(&a.settings, metricStragglerScore, key, rank, "", j).ratio(r.own/m, 1, now)
		if r.own-m > outlierSigmas*sigma && r.own-m > outlierShare*m {
			if name, delay := s.worst(r); delay > 0 {
				res.stragglerStream(&a.settings, metricStragglerDelay, key, rank, name, j).ratio(delay, 1, now)
			}
		}
	}
}

// worst is the part in which a rank is furthest above the median of the ranks that have that part.
func (s *jobStep) worst(r *rankStep) (name string, delay float64) {
	values := make([]float64, 0, len(s.ranks))
	for _, p := range r.parts.list[:r.parts.count] {
		values = values[:0]
		for _, other := range s.ranks {
			for _, q := range other.parts.list[:other.parts.count] {
				if q.name == p.name {
					values = append(values, q.duration)
				}
			}
		}
		if d := p.duration - median(values); d > delay {
			name, delay = p.name, d
		}
	}
	return name, delay
}
