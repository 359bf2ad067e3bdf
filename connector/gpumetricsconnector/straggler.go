// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"math"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// stragglers compares the ranks of jobs, step by step.
type stragglers struct {
	jobs  *straggler.Jobs[rankStep]
	tree  *sectionTree
	spans bool        // there is a consumer for the spans of stragglers
	found []*reported // since the last call; stays empty without spans
	// suspected is the number of steps that are kept because their rank may prove to be late.
	suspected, maxSuspected int
	// source is the resource of the spans being read, which shares the batch's memory; bounded is
	// what is kept of it, or empty until it is needed.
	source, bounded pcommon.Map
	copies          int    // of resources since the last comparison
	process         uint64 // of the spans being read, 0 if they have no rank of a job
}

// read begins a resource.
func (g *stragglers) read(attrs pcommon.Map, res *spanfacts.Resource) {
	g.source, g.bounded, g.process = attrs, pcommon.Map{}, 0
	if res.JobID != "" && res.Rank >= 0 {
		g.process = res.Process()
	}
}

// stepSpan is the span of a rank's step, with the fields that a span below it needs.
type stepSpan struct {
	spanfacts.Key
	process    uint64
	start, end uint64 // unix ns
	flags      uint32
	state      string
	resource   pcommon.Map // set only if spans have a consumer
	host       bool        // timed on the host
}

// rankStep is a step of one rank; its loose sections are taken from the tree when ranks are
// compared.
type rankStep struct {
	stepSpan
	straggler.Rank
	update float64 // s, the update of the weights by the host's clock; 0: not known
}

func newStragglers(cfg StragglerConfig) *stragglers {
	limits := straggler.Limits{
		MaxWait: cfg.MaxWait, MinRanks: cfg.MinRanks, MaxWaiting: cfg.MaxWaiting, EverySteps: cfg.everySteps,
	}
	return &stragglers{
		jobs: straggler.NewJobs[rankStep](limits), tree: newSectionTree(), maxSuspected: cfg.MaxWaiting,
	}
}

// maxMeetings bounds the collectives of one step by which its peers are found.
const maxMeetings = 32

// meeting returns by which peers a collective is found, nil if it does not state them.
func meeting(f *facts) *straggler.Meeting {
	if f.Kind != spanfacts.Collective || f.GroupID == "" || f.Peer < 0 && !f.HasSequence {
		return nil
	}
	m := &straggler.Meeting{Group: strings.Clone(f.GroupID), Peer: f.Peer}
	if f.Peer < 0 {
		m.Sequence = f.Sequence
	}
	return m
}

// section adds a span of the device to what is below its parent. Communication is omitted: in it
// the fast ranks wait for the slow one.
func (g *stragglers) section(r *resource, f *facts) {
	switch {
	case r.job == "" || r.rank < 0 || f.Parent.IsEmpty():
	case f.collective() || f.Time == 0:
		g.tree.pass(g.process, f, meeting(f), true)
	default:
		g.tree.read(g.process, f)
	}
}

// host adds a span that is not of the device.
func (g *stragglers) host(f *facts) {
	if g.process != 0 {
		g.tree.pass(g.process, f, nil, false)
	}
}

// step adds a step of one rank. Without job, rank and index there is nothing to compare.
func (g *stragglers) step(r *resource, f *facts, now int64, stats *counts) {
	switch {
	case r.world == 1, r.world < 1 && (r.job == "" || r.rank < 0): // one process, whose steps have no peers
		return
	case r.job == "":
		stats.alone(aloneNoJob, 1)
		return
	case r.rank < 0:
		stats.alone(aloneNoRank, 1)
		return
	case !f.HasStepIndex || f.StepTime() == 0:
		stats.alone(aloneNoTime, 1)
		return
	}
	key := straggler.Loop{Service: r.service, Job: r.job, Name: f.Name}
	report := straggler.Report{
		World: max(r.world, 0), Rank: r.rank, Index: f.StepIndex, Start: f.Start, End: f.End, Process: r.process,
	}
	switch g.jobs.Add(key, report, now, g.rankStep(r, f)) {
	case straggler.Late:
		stats.stepLate++
	case straggler.Full:
		stats.stepLimit++
	case straggler.Shared:
		stats.alone(aloneShared, 1)
	}
}

func (g *stragglers) rankStep(r *resource, f *facts) rankStep {
	rs := rankStep{
		stepSpan: stepSpan{
			Key: f.Key, process: g.process, start: f.Start, end: f.End,
			flags: f.flags, state: strings.Clone(f.state),
		},
		Rank: straggler.Rank{Rank: r.rank, Step: f.StepTime()},
	}
	if g.spans {
		rs.resource = g.resource(r)
	}
	if len(f.Phases()) > 0 {
		rs.Phases = &straggler.Sections{}
	}
	for _, p := range f.Phases() {
		if p.Name != semconv.GPUStepPhaseNameComm {
			rs.Phases.Add(strings.Clone(p.Name), "", p.Duration, straggler.Extent{}, nil)
		}
	}
	if f.StepOther > 0 && rs.Phases != nil {
		rs.Phases.Add(semconv.GPUStragglerSectionOther, "", f.StepOther, straggler.Extent{}, nil)
	}
	for _, p := range f.Phases() {
		if f.HostTimed() && !f.HasExposed && p.Name == semconv.GPUStepPhaseNameOptimizer {
			rs.update += p.Duration
		}
	}
	rs.Own, rs.host = straggler.Own(f.StepTime(), f.Exposed()), f.HostTimed()
	return rs
}

// maxCopies bounds the resources that are copied for findings between two comparisons. Senders of
// one resource that changes with each step would otherwise fill the memory.
const maxCopies = 1000

// resource returns the resource of a step's span, with all its attributes. Steps of a resource
// share a copy.
func (g *stragglers) resource(r *resource) pcommon.Map {
	if g.bounded == (pcommon.Map{}) {
		var all series.Targets
		g.bounded, _ = all.Attributes(g.source)
	}
	switch {
	case r.whole != (pcommon.Map{}) && r.whole.Equal(g.bounded):
		return r.whole
	case r.attrs.Equal(g.bounded):
		return r.attrs
	case g.copies >= maxCopies:
		return r.attrs
	}
	g.copies++
	r.whole = g.bounded
	return r.whole
}

// compare writes the scores of all steps that are complete or have waited long enough.
func (a *aggregator) compare(now int64, final bool) {
	forget := int64(math.MinInt64)
	if a.cfg.Expiry > 0 {
		forget = now - int64(a.cfg.Expiry)
	}
	a.jobs.copies = 0
	a.jobs.jobs.Due(now, forget, final, func(c straggler.Compared[rankStep]) { a.score(&c, now) })
}

// score compares the ranks of one step.
func (a *aggregator) score(c *straggler.Compared[rankStep], now int64) {
	g := a.jobs
	ranks := make([]straggler.Rank, len(c.Steps))
	steps := make(map[int64]*stepSpan, len(c.Steps))
	for i := range c.Steps {
		s := &c.Steps[i]
		below := g.tree.take(s.process, s.Key)
		if below != nil {
			s.Meetings = below.meetings
			s.Loose = s.Phases.Divide(&below.Sections)
		}
		if len(s.Meetings) == 0 {
			// Before it updates the weights, the host waits for the device, and so for the other ranks.
			// Where collectives are recorded, the waits in them are measured.
			s.Own = max(0, s.Own-s.update)
		}
		if c.Enough {
			ranks[i], steps[s.Rank.Rank] = s.Rank, &s.stepSpan
		}
	}
	switch {
	case c.Shared:
		a.stats.alone(aloneShared, len(ranks))
		return
	case !c.Enough:
		a.stats.alone(aloneFewRanks, len(ranks))
		a.stats.few = [2]int64{int64(len(ranks)), c.World}
		return
	}
	sets, alone := c.History.Peers(ranks)
	a.stats.alone(aloneNoPeer, alone[straggler.NoPeer])
	a.stats.alone(aloneOutOfStep, alone[straggler.OutOfStep])
	if c.World > 2*int64(len(ranks)) {
		a.stats.alone(aloneFewRanks, len(ranks))
		a.stats.few = [2]int64{int64(len(ranks)), c.World}
		return
	}
	missing := c.Missing()
	if missing && straggler.AllWait(ranks) {
		a.stats.alone(aloneAbsent, len(ranks))
	}
	for i, x := range c.History.Compare(sets, missing) {
		a.scorePeers(c, sets[i], x, steps, now)
	}
}

// scorePeers writes the scores of ranks that do the same work in one step.
func (a *aggregator) scorePeers(
	c *straggler.Compared[rankStep], ranks []straggler.Rank, x straggler.Comparison, steps map[int64]*stepSpan, now int64,
) {
	g := a.jobs
	results := x.Results
	if len(results) == 0 {
		a.stats.alone(aloneNoTime, len(ranks))
		return
	}
	typicalRank := ranks[x.Typical].Rank
	res := a.jobResource(c.Loop, c.Newest)
	for i := range results {
		v := &results[i]
		step := steps[v.Rank]
		s := res.stragglerSeries(&a.settings, metricStragglerScore, c.Loop, v.Rank, "", c.Newest)
		s.Ratio(v.Score, 1, now)
		s.Example(v.Score, step.Key, step.end)
		for _, earlier := range v.Earlier {
			earlier(true)
		}
		if !v.Slow && !v.Suspect {
			continue
		}
		r := &reported{
			Finding: lateRank(v, len(ranks), ranks[i].Step, step.host), Result: *v, step: *step, loop: c.Loop.Name,
			index: c.Index, ranks: len(ranks),
			typicalStep: steps[typicalRank].Key, typicalRank: typicalRank,
		}
		r.Earlier = nil // this one may be kept
		switch {
		case v.Slow:
			a.late(c.Loop, c.Newest, r)
		case g.suspected >= g.maxSuspected:
			a.stats.stepLimit++
		default:
			g.suspected++
			loop, newest := c.Loop, c.Newest
			c.History.Keep(v.Rank, func(late bool) {
				g.suspected--
				if late {
					a.late(loop, newest, r)
				}
			})
		}
	}
}

// late reports a step in which a rank was late.
func (a *aggregator) late(loop straggler.Loop, newest uint64, r *reported) {
	s := a.jobResource(loop, newest).stragglerSeries(&a.settings, metricStragglerDelay, loop, r.Rank, r.Section, newest)
	s.Ratio(r.Delay, 1, a.now)
	s.Example(r.Delay, r.step.Key, r.step.end)
	if a.jobs.spans {
		a.jobs.found = append(a.jobs.found, r)
	}
}

// jobResource returns the resource of a job's scores, which belong to no rank: its service and job.
func (a *aggregator) jobResource(key straggler.Loop, newest uint64) *resource {
	attrs := pcommon.NewMap()
	sharedcomponent.PutText(attrs, semconv.ServiceNameKey, key.Service)
	attrs.PutStr(string(semconv.GPUJobIDKey), key.Job)
	r := a.resource(attrs, &spanfacts.Resource{Service: key.Service, JobID: key.Job, Rank: -1, WorldSize: -1})
	a.saw(r, newest)
	return r
}

func (r *resource) stragglerSeries(
	st *settings, id metricID, key straggler.Loop, rank int64, section string, start uint64,
) *series.Series {
	attrs := pcommon.NewMap()
	attrs.PutStr(string(semconv.GPUJobIDKey), key.Job)
	attrs.PutInt(string(semconv.GPUJobRankKey), rank)
	attrs.PutStr(string(semconv.GPUOperationNameKey), key.Name)
	sharedcomponent.PutText(attrs, semconv.GPUStragglerSectionKey, section)
	return r.families[id].Get(&st.Settings, attrs, start)
}
