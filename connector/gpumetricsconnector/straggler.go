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
)

// jobKey is what ranks that are compared have in common.
type jobKey struct{ service, job, loop string }

// stragglers collects the steps of the ranks of jobs until they can be compared.
type stragglers struct {
	cfg     StragglerConfig
	jobs    map[jobKey]*job
	waiting int // steps of ranks, over all jobs
	tree    sectionTree
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

// rankStep is what a rank says of a step; its sections are taken from the tree when ranks are compared.
type rankStep struct {
	key    spanKey
	end    uint64  // unix ns
	own    float64 // s
	phases *parts
}

func newStragglers(cfg StragglerConfig) *stragglers {
	return &stragglers{cfg: cfg, jobs: make(map[jobKey]*job), tree: newSectionTree()}
}

// section adds an operation to the sums below its parent. Communication is left out: in it the fast ranks wait for the slow one.
func (g *stragglers) section(r *resource, f *facts) {
	if r.job == "" || r.rank < 0 || f.time == 0 || f.collective || f.traceID.IsEmpty() || f.parentSpanID.IsEmpty() {
		return
	}
	g.tree.add(uint64(r.rank), f)
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

// rankStep makes the rank's own time: the step without the communication that nothing hides. Of the communication at most
// the overlap is hidden, so at least their difference is exposed.
func (g *stragglers) rankStep(f *facts) *rankStep {
	var comm float64
	rs := &rankStep{key: spanKey{f.traceID, f.spanID}, end: f.end}
	if f.phaseCount > 0 {
		rs.phases = &parts{}
	}
	for _, p := range f.phases[:f.phaseCount] {
		if p.name == semconv.GPUStepPhaseComm {
			comm = p.duration
		} else {
			rs.phases.add(strings.Clone(p.name), "", p.duration, nil)
		}
	}
	if f.other > 0 && rs.phases != nil {
		rs.phases.add(semconv.GPUStragglerSectionOther, "", f.other, nil)
	}
	rs.own = max(0, f.stepDuration-max(0, comm-f.overlap))
	return rs
}

// divide puts what lies below the step into its phases, and returns what lies in none. The sections that are a phase have its name;
// others of its category lie in it.
func (rs *rankStep) divide(below *parts) (loose *parts) {
	if below == nil {
		return nil
	}
	loose = &parts{}
	for _, x := range below.list {
		switch phase := rs.phases.find(x.category); {
		case phase == nil:
			loose.add(x.name, x.category, x.duration, x.below)
		case x.name == phase.name:
			rs.phases.add(phase.name, "", 0, x.below)
		default:
			in := &parts{}
			in.add(x.name, x.category, x.duration, x.below)
			rs.phases.add(phase.name, "", 0, in)
		}
	}
	return loose
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
				continue
			}
			for _, r := range s.ranks {
				g.tree.take(r.key)
			}
		}
		if a.cfg.Expiry > 0 && len(j.steps) == 0 && j.seen < now-int64(a.cfg.Expiry) {
			delete(g.jobs, key)
		}
	}
}

// score compares the ranks of one step.
func (a *aggregator) score(key jobKey, j *job, s *jobStep, now int64) {
	ranks := slices.Sorted(maps.Keys(s.ranks))
	own := make([]float64, len(ranks))
	phases, loose := make([]*parts, len(ranks)), make([]*parts, len(ranks))
	for i, rank := range ranks {
		r := s.ranks[rank]
		own[i] = r.own
		loose[i] = r.divide(a.jobs.tree.take(r.key))
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
		stream.example(v, s.ranks[rank].key, s.ranks[rank].end)
	}
	for i, rank := range ranks {
		write(metricStragglerScore, rank, "", own[i]/m)
		if own[i]-m > outlierSigmas*sigma && own[i]-m > outlierShare*m {
			if section, delay := blame(phases, loose, i); delay > 0 {
				write(metricStragglerDelay, rank, section, delay)
			}
		}
	}
}
