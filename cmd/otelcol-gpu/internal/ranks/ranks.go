// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package ranks compares the ranks of one job by their profiles: which rank is the straggler at the collectives, by how
// much, and its activity during that time.
//
// Lateness is computed from the arrivals of ranks at the collectives that they run together (package straggler), so
// that a waiting rank is never mistaken for a working one. If clocks cannot be aligned, it is computed from how long
// ranks run the collectives, since the last rank runs them shortest; if no collectives match, from how long each rank
// communicates in all. Without collectives, steps without exposed communication are compared.
package ranks

import (
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// Limits of what is kept of one profile; the rest is ignored. Of the host's ranges, the longest are kept.
const (
	maxActivities = 1 << 20
	maxRanges     = 1 << 17
	maxProfiles   = 1 << 12
)

// Profiles collects the ranks of profiles. The zero value is usable; it is not safe for concurrent use.
type Profiles struct {
	list     []*profile
	unranked string // the last file that does not state its rank
	rankless int    // such files with collectives
}

// profile is one rank's window.
type profile struct {
	file        string
	job         string
	rank, world int64
	window      intervals.Interval

	collectives []straggler.Collective
	labels      map[string]string // of process groups, for people
	messages    map[sentAs]facts.Message
	model       string        // of its only device
	compute     intervals.Set // kernels that are not collectives
	moves       intervals.Set // copies and memsets
	trimmed     struct{ compute, moves intervals.Compact }
	kernels     map[string]ran // of compute, by name
	ranges      []hostRange
	rangesOf    map[int64]int    // all ranges, by thread
	shortest    int64            // shorter ranges are not kept, ns
	idle        finding.Location // where its host was longest while its device was idle, from its findings
	steps       int
	stepTime    float64         // s, of all steps
	exposed     float64         // s, of exposed communication, of all steps
	paired      map[string]bool // groups in which pairs of ranks send and receive
	pairs       map[pair]string // their names

	// of the first of a job
	shared map[string][]straggler.Collective // of one profile for each group of the job
	doubt  bool                              // a profile of the job matches another job as well
}

// ran is how often and how long, in ns, kernels of a name ran.
type ran struct{ count, time int64 }

// pair is a group of two ranks that send and receive: this one and a peer in a group.
type pair struct {
	group string
	peer  int64
}

// hostRange is a range on a thread of the host.
type hostRange struct {
	intervals.Interval
	thread int64
	name   string
}

// Add adds spans of a file at the detail kernels. Files without a rank are ignored.
func (p *Profiles) Add(file string, td ptrace.Traces) {
	for _, rs := range td.ResourceSpans().All() {
		var r spanfacts.Resource
		r.Load(rs.Resource().Attributes())
		if r.Rank < 0 {
			p.unranked = file
		}
		if r.Rank < 0 || r.WorldSize == 1 {
			continue
		}
		x := p.profile(file, &r)
		if x == nil {
			continue
		}
		for _, ss := range rs.ScopeSpans().All() {
			var scope spanfacts.Scope
			scope.Load(&r, ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				x.add(s, &scope)
			}
		}
	}
}

// NotCompared returns the note that several files have collectives and no rank; empty otherwise.
func (p *Profiles) NotCompared() string {
	if p.rankless < 2 {
		return ""
	}
	return fmt.Sprintf("%d profiles have collectives but no rank, so they are not compared "+
		"(PyTorch's do if the profiler starts after init_process_group, exports of Nsight Systems by their "+
		"environment or a name as rank3.sqlite)", p.rankless)
}

// Judged adds the findings on the devices of a file that was added, once.
func (p *Profiles) Judged(file string, devices []facts.Report) {
	if file == p.unranked && slices.ContainsFunc(devices, func(d facts.Report) bool { return len(d.Collectives) > 0 }) {
		p.rankless++
	}
	for _, x := range p.list {
		if x.file != file {
			continue
		}
		x.trim()
		if len(devices) != 1 {
			continue
		}
		x.model = devices[0].Model
		for _, v := range devices[0].Findings {
			if v.Kind == semconv.GPUFindingKindHostWork && v.Certainty == finding.High && !v.Outside && len(v.Where) > 0 &&
				v.Gain > x.idle.Time {
				x.idle.Name, x.idle.Time = v.Where[0].Name, v.Gain
				if v.Where[0].In != "" { // the locations of a finding are inside its range, or are the range
					x.idle.Name = v.Where[0].In
				}
			}
		}
	}
}

// trim keeps a complete profile in little memory until all files are read.
func (x *profile) trim() {
	if len(x.compute)+len(x.moves) > 0 {
		x.trimmed.compute, x.trimmed.moves = x.compute.Compact(), x.moves.Compact()
		x.compute, x.moves = nil, nil
	}
	x.collectives, x.ranges, x.pairs = slices.Clone(x.collectives), slices.Clone(x.ranges), nil
}

func (p *Profiles) profile(file string, r *spanfacts.Resource) *profile {
	for _, x := range slices.Backward(p.list) {
		if x.file == file && x.rank == r.Rank && x.job == r.JobID {
			return x
		}
	}
	if len(p.list) == maxProfiles {
		return nil
	}
	x := &profile{
		file: file, job: r.JobID, rank: r.Rank, world: r.WorldSize, kernels: map[string]ran{}, labels: map[string]string{},
		messages: map[sentAs]facts.Message{}, paired: map[string]bool{},
	}
	p.list = append(p.list, x)
	return x
}

func (x *profile) add(s ptrace.Span, scope *spanfacts.Scope) {
	at := intervals.Unix(uint64(s.StartTimestamp()), uint64(s.EndTimestamp()))
	var f spanfacts.Facts
	if !f.Load(s, scope) {
		thread, ok := s.Attributes().Get(string(semconv.ThreadIDKey))
		if ok {
			x.hostRange(hostRange{at, thread.Int(), s.Name()})
		}
		return
	}
	if f.Kind == spanfacts.Step {
		x.steps++
		x.stepTime += f.StepTime()
		x.exposed += f.StepExposed
		return
	}
	if x.window == (intervals.Interval{}) {
		x.window = at
	}
	x.window.Start, x.window.End = min(x.window.Start, at.Start), max(x.window.End, at.End)
	if len(x.collectives)+len(x.compute)+len(x.moves) >= maxActivities {
		return
	}
	switch f.Kind {
	case spanfacts.Collective:
		c := x.collective(s, f.Name, at)
		x.message(&c, s.Attributes())
		x.collectives = append(x.collectives, c)
	case spanfacts.Kernel, spanfacts.Graph:
		x.compute.Add(at, 0)
		k := x.kernels[f.Name]
		x.kernels[f.Name] = ran{k.count + 1, k.time + at.End - at.Start}
	case spanfacts.Copy, spanfacts.Memset:
		x.moves.Add(at, 0)
	}
}

// hostRange adds a range of the host. If there are too many, the shorter half is dropped: what explains a device that
// is idle for long is a long range.
func (x *profile) hostRange(r hostRange) {
	if x.rangesOf == nil {
		x.rangesOf = map[int64]int{}
	}
	x.rangesOf[r.thread]++
	if r.End-r.Start < x.shortest {
		return
	}
	if x.ranges = append(x.ranges, r); len(x.ranges) < maxRanges {
		return
	}
	lengths := make([]int64, len(x.ranges))
	for i, r := range x.ranges {
		lengths[i] = r.End - r.Start
	}
	slices.Sort(lengths)
	x.shortest = lengths[len(lengths)/2] + 1
	x.ranges = slices.DeleteFunc(x.ranges, func(r hostRange) bool { return r.End-r.Start < x.shortest })
}

// collective identifies a run by its process group and its number there. Groups of one mesh dimension share a
// description, and groups that were split from another share a name, so a group is identified by its unique name and
// its ranks, or by its description if a source has no more. Transfers between two ranks are numbered by pair, since
// each rank counts its own.
func (x *profile) collective(s ptrace.Span, kernel string, at intervals.Interval) straggler.Collective {
	m := s.Attributes()
	c := straggler.Collective{Rank: x.rank, Name: kernel, Start: at.Start, End: at.End}
	if size, ok := m.Get(string(semconv.GPUIOSizeKey)); ok {
		c.Bytes = size.Int()
	}
	group, ok := m.Get(string(semconv.GPUCollectiveGroupIDKey))
	if !ok {
		group, _ = m.Get(string(semconv.GPUCollectiveGroupNameKey))
	}
	c.Group = group.Str()
	if label, ok := m.Get(string(semconv.GPUCollectiveGroupNameKey)); ok && x.labels[c.Group] == "" {
		x.labels[c.Group] = label.Str()
	}
	if peer, ok := m.Get(string(semconv.GPUCollectivePeerRankKey)); ok {
		c.Group = x.pair(pair{c.Group, peer.Int()})
		return c
	}
	name, _ := m.Get(string(semconv.GPUCollectiveNameKey))
	operation := name.Str()
	paired := operation == semconv.GPUCollectiveNameSend || operation == semconv.GPUCollectiveNameRecv ||
		strings.Contains(operation, "coalesced")
	if paired && strings.Contains(kernel, "SendRecv") {
		x.paired[c.Group] = true
	}
	if number, ok := m.Get(string(semconv.GPUCollectiveSequenceKey)); ok && !paired {
		c.Sequence, c.Stated = number.Int(), true
	}
	return c
}

// pair returns the name of a pair, one string for all of its messages.
func (x *profile) pair(k pair) string {
	name, ok := x.pairs[k]
	if !ok {
		if x.pairs == nil {
			x.pairs = map[pair]string{}
		}
		name = fmt.Sprintf("%s %d-%d", k.group, min(x.rank, k.peer), max(x.rank, k.peer))
		x.pairs[k] = name
		x.paired[name] = true
	}
	return name
}
