// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/internal/rankname"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// recorder adds what a sweep observes to the profile of a rank.
type recorder struct {
	x      *profile
	in     *link.Input
	tracks []event.Track
	texts  []texts         // by name
	steps  map[int64]int64 // of a rank of a merged file: numbers by start; nil: by all steps of the file
}

// step returns the number of a step, from 1 on.
func (r *recorder) step(st *link.Step) int64 {
	if r.steps == nil {
		return st.Ordinal + 1
	}
	n, ok := r.steps[st.Start]
	if !ok && len(r.steps) < maxSteps {
		n = int64(len(r.steps)) + 1
		r.steps[st.Start] = n
	}
	return n
}

// merged passes what a sweep observes of a file merged from several ranks to the recorders of the
// ranks. Entries are nil beyond the limit.
type merged struct {
	tracks          []event.Track
	process, device map[int64]*recorder
}

// Range adds a host range to its rank.
func (m *merged) Range(rec *event.Record) {
	if r := m.process[m.tracks[rec.Track].Outer]; r != nil {
		r.Range(rec)
	}
}

// Activity adds an activity to the rank of its device.
func (m *merged) Activity(a *link.Activity) {
	if r := m.device[a.Device]; r != nil {
		r.Activity(a)
	}
}

// Step adds a step to its rank.
func (m *merged) Step(st *link.Step) {
	if r := m.process[m.tracks[st.Track()].Outer]; r != nil {
		r.Step(st)
	}
}

// observeMerged returns the observer of a file that was merged from several ranks.
func (p *Profiles) observeMerged(file, job string, world int64, in *link.Input) link.Observer {
	m := &merged{tracks: in.Tracks(), process: map[int64]*recorder{}, device: map[int64]*recorder{}}
	if world < int64(len(in.Meta.Ranks)) {
		world = -1
	}
	for _, rank := range in.Meta.Ranks {
		x := p.profile(file, job, rank.Rank, world)
		if x == nil {
			break
		}
		x.devices = rank.Devices
		r := &recorder{x: x, in: in, tracks: m.tracks, texts: make([]texts, in.Names.Len()), steps: map[int64]int64{}}
		for id := range rank.Processes {
			m.process[id] = r
		}
		for id := range rank.Devices {
			m.device[id] = r
		}
	}
	return m
}

// texts are what a job's report needs of a name, found when it is needed.
type texts struct {
	kernel string // short name
	shown  string
	device bool // of a call: it launches work or waits for it
}

// Observe returns the observer that adds a file; nil if the file states no rank, or is the only one
// of its job.
func (p *Profiles) Observe(file string, in *link.Input) link.Observer {
	rank, world := in.Rank()
	job := cmp.Or(in.Meta.JobID, in.JobID, in.Resource(semconv.GPUJobIDKey))
	if len(in.Meta.Ranks) > 1 {
		return p.observeMerged(file, job, world, in)
	}
	if n, ok := rankname.Of(file); rank < 0 && ok {
		rank = n
	}
	if rank < 0 {
		p.unranked = file
	}
	if rank < 0 || world == 1 {
		return nil
	}
	if world <= 0 {
		world = -1
	}
	x := p.profile(file, job, rank, world)
	if x == nil {
		return nil
	}
	return &recorder{x: x, in: in, tracks: in.Tracks(), texts: make([]texts, in.Names.Len())}
}

func (r *recorder) text(name uint32) *texts {
	t := &r.texts[name]
	if t.shown == "" {
		full := r.in.Names.Name(name)
		t.shown = spanfacts.DistinctText(full, spanfacts.MaxText)
		t.device = vocabulary.UsesDevice(full)
	}
	return t
}

func (r *recorder) kernel(name uint32) string {
	t := &r.texts[name]
	if t.kernel == "" {
		t.kernel = spanfacts.DistinctText(vocabulary.ShortName(r.in.Names.Name(name)), spanfacts.MaxText)
	}
	return t.kernel
}

func (r *recorder) at(start, length int64) intervals.Interval {
	start += r.in.Meta.Base
	return intervals.Interval{Start: start, End: start + length}
}

// Range adds a host range that explains what the host did: frames of call stacks and calls that
// neither launch nor wait do not.
func (r *recorder) Range(rec *event.Record) {
	t := r.tracks[rec.Track]
	if rec.Kind == event.KindStep || rec.Kind == event.KindFrame || t.Inner < 0 {
		return
	}
	text := r.text(rec.Name)
	if rec.Kind == event.KindRuntime && !text.device {
		return
	}
	name := text.shown
	if rec.Kind == event.KindModule {
		class, _, _ := vocabulary.SplitInstance(r.in.Names.Name(rec.Name))
		name = spanfacts.DistinctText(class, spanfacts.MaxText)
	}
	r.x.hostRange(hostRange{r.at(rec.Key, rec.Duration), t.Inner, name})
}

// Activity adds an activity of the device.
func (r *recorder) Activity(a *link.Activity) {
	at := r.at(a.Start, a.Duration)
	switch {
	case a.Communicates:
		m := r.message(a)
		if st := a.Launch.Step; st != nil {
			m.step = r.step(st)
		}
		r.x.communicate(m, at)
	case a.Kind == event.KindKernel && a.Detail.WholeGraph:
		r.x.kernel(r.text(a.Name).shown, at)
	case a.Kind == event.KindKernel:
		r.x.kernel(r.kernel(a.Name), at)
	default:
		r.x.move(at)
	}
}

func (r *recorder) message(a *link.Activity) *message {
	d := &a.Detail
	m := &message{
		kernel: r.kernel(a.Name), label: d.Group, elementType: d.ElementType, ranks: d.GroupSize, peer: d.Peer,
		hasPeer: d.HasPeer, sequence: d.Sequence, hasSequence: d.HasSequence,
	}
	if d.GroupID != 0 {
		m.group = r.in.Names.Name(d.GroupID)
	}
	m.operation, m.bytes = r.in.Collective(a)
	return m
}

// Step adds a step.
func (r *recorder) Step(st *link.Step) {
	exposed := 0.0
	if st.Comm.Any {
		exposed = float64(st.Exposed()) / 1e9
	}
	r.x.step(r.step(st), r.in.Meta.Base+st.Start, float64(st.End-st.Start)/1e9, exposed)
}
