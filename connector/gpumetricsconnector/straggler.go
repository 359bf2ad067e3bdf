// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/semconv"
)

const (
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

	spans bool       // somebody takes spans of the ranks that stand out
	found []*finding // since they were last taken; stays empty without spans
	// source is the resource of the spans that are being read; of that batch's memory.
	source pcommon.Map
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

// stepSpan is the span of a rank's step, as far as a span below it goes by it.
type stepSpan struct {
	spanKey
	start, end uint64 // unix ns
	flags      uint32
	state      string
	resource   pcommon.Map // set only where spans are wanted
}

// rankStep is what a rank says of a step; its sections are taken from the tree when ranks are compared.
type rankStep struct {
	stepSpan
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
	s.ranks[r.rank] = g.rankStep(r, f)
	j.steps[f.stepIndex] = s
	return 0
}

// rankStep makes the rank's own time: the step without the communication that nothing hides. Of the communication at most
// the overlap is hidden, so at least their difference is exposed.
func (g *stragglers) rankStep(r *resource, f *facts) *rankStep {
	var comm float64
	rs := &rankStep{stepSpan: stepSpan{
		spanKey: spanKey{f.traceID, f.spanID}, start: f.start, end: f.end, flags: f.flags, state: strings.Clone(f.state),
	}}
	switch {
	case !g.spans:
	case r.whole:
		rs.resource = r.attrs
	default:
		rs.resource = pcommon.NewMap()
		g.source.CopyTo(rs.resource)
	}
	if f.phaseCount > 0 {
		rs.phases = &parts{}
	}
	for _, p := range f.phases[:f.phaseCount] {
		if p.name == semconv.GPUStepPhaseComm {
			comm = p.duration
		} else {
			rs.phases.add(strings.Clone(p.name), "", took{duration: p.duration}, nil)
		}
	}
	if f.other > 0 && rs.phases != nil {
		rs.phases.add(semconv.GPUStragglerSectionOther, "", took{duration: f.other}, nil)
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
			loose.add(x.name, x.category, x.took, x.below)
		case x.name == phase.name:
			rs.phases.add(phase.name, "", x.place(), x.below)
		default:
			in := &parts{}
			in.add(x.name, x.category, x.took, x.below)
			rs.phases.add(phase.name, "", x.place(), in)
		}
	}
	return loose
}
