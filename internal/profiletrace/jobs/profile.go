// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// Limits of what is kept of one profile; the rest is ignored. Of the host's ranges, the longest are
// kept.
const (
	maxActivities = 1 << 20
	maxRanges     = 1 << 17
	maxProfiles   = 1 << 12
)

// Profiles collects the ranks of profiles. The zero value is usable; it is not safe for concurrent
// use.
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
	devices     map[int64]bool // of a rank of a merged file

	collectives []straggler.Collective
	labels      map[string]string // of process groups, for people
	messages    map[sentAs]facts.Message
	model       string        // of its only device
	unrecorded  bool          // it lacks records of work, so that its own time is not known
	compute     intervals.Set // kernels that are not collectives
	moves       intervals.Set // copies and memsets
	trimmed     struct{ compute, moves intervals.Compact }
	kernels     map[string]ran // of compute, by name
	ranges      []hostRange
	rangesOf    map[int64]int    // all ranges, by thread
	shortest    int64            // shorter ranges are not kept, ns
	idle        finding.Location // where its host was longest while its device was idle, from its findings
	steps       int
	stepStarts  map[int64]int64 // by number
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

// message is a run of a collective, as a profile states it.
type message struct {
	kernel, operation string
	group, label      string // identity of the process group, and its name for people
	elementType       string
	bytes, ranks      int64
	peer, sequence    int64
	hasPeer           bool
	hasSequence       bool
	step              int64 // that launched it, from 1 on; 0: none
}

// hostRange is a range on a thread of the host.
type hostRange struct {
	intervals.Interval
	thread int64
	name   string
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
		d := deviceOf(x.devices, devices)
		if d == nil {
			continue
		}
		x.model = d.Model
		x.unrecorded = float64(d.Parts.NotRecorded) >= semconv.FindingNotRecordedThreshold*float64(max(1, d.Window))
		for _, v := range d.Findings {
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

// deviceOf returns the only device of a rank among the devices of its file, all of which are its
// own if own is nil; nil: it has none or several.
func deviceOf(own map[int64]bool, devices []facts.Report) (only *facts.Report) {
	for i := range devices {
		if d := &devices[i]; own == nil || own[d.Ordinal] {
			if only != nil {
				return nil
			}
			only = d
		}
	}
	return only
}

// trim keeps a complete profile in little memory until all files are read.
func (x *profile) trim() {
	if len(x.compute)+len(x.moves) > 0 {
		x.trimmed.compute, x.trimmed.moves = x.compute.Compact(), x.moves.Compact()
		x.compute, x.moves = nil, nil
	}
	x.collectives, x.ranges, x.pairs = slices.Clone(x.collectives), slices.Clone(x.ranges), nil
}

// profile returns the profile of a rank; nil beyond the limit.
func (p *Profiles) profile(file, job string, rank, world int64) *profile {
	for _, x := range slices.Backward(p.list) {
		if x.file == file && x.rank == rank && x.job == job {
			return x
		}
	}
	if len(p.list) == maxProfiles {
		return nil
	}
	x := &profile{
		file: file, job: job, rank: rank, world: world, kernels: map[string]ran{}, labels: map[string]string{},
		messages: map[sentAs]facts.Message{}, paired: map[string]bool{},
	}
	p.list = append(p.list, x)
	return x
}

// step adds a step of this number, start and length with exposed communication, in seconds.
func (x *profile) step(number, start int64, length, exposed float64) {
	if x.stepStarts == nil {
		x.stepStarts = map[int64]int64{}
	}
	if len(x.stepStarts) < maxSteps {
		x.stepStarts[number] = start
	}
	x.steps++
	x.stepTime += length
	x.exposed += exposed
}

// extend extends the window by an activity, and reports whether there is room for it.
func (x *profile) extend(at intervals.Interval) bool {
	if x.window == (intervals.Interval{}) {
		x.window = at
	}
	x.window.Start, x.window.End = min(x.window.Start, at.Start), max(x.window.End, at.End)
	return len(x.collectives)+len(x.compute)+len(x.moves) < maxActivities
}

// kernel adds a kernel that is not a collective.
func (x *profile) kernel(name string, at intervals.Interval) {
	if x.extend(at) {
		x.compute.Add(at, 0)
		k := x.kernels[name]
		x.kernels[name] = ran{k.count + 1, k.time + at.End - at.Start}
	}
}

// move adds a copy or memset.
func (x *profile) move(at intervals.Interval) {
	if x.extend(at) {
		x.moves.Add(at, 0)
	}
}

// communicate adds a collective.
func (x *profile) communicate(m *message, at intervals.Interval) {
	if !x.extend(at) {
		return
	}
	c := x.collective(m, at)
	k := sentAs{c.Group, c.Name, c.Bytes}
	if _, ok := x.messages[k]; !ok && c.Bytes > 0 {
		x.messages[k] = facts.Message{
			Collective: m.operation, Group: m.label, ID: m.group, ElementType: m.elementType, Bytes: c.Bytes, Ranks: m.ranks,
		}
	}
	x.collectives = append(x.collectives, c)
}

// hostRange adds a range of the host. If there are too many, the shorter half is dropped: what
// explains a device that is idle for long is a long range.
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

// collective identifies a run by its process group and its number there. Groups of one mesh
// dimension share a description, and groups that were split from another share a name, so a group
// is identified by its unique name and its ranks, or by its description if a source has no more.
// Transfers between two ranks are numbered by pair, since each rank counts its own.
func (x *profile) collective(m *message, at intervals.Interval) straggler.Collective {
	c := straggler.Collective{
		Rank: x.rank, Name: m.kernel, Start: at.Start, End: at.End, Bytes: m.bytes, Group: cmp.Or(m.group, m.label),
		Step: int32(min(m.step, maxSteps)),
	}
	if m.label != "" && x.labels[c.Group] == "" {
		x.labels[c.Group] = m.label
	}
	if m.hasPeer {
		c.Group = x.pair(pair{c.Group, m.peer})
		return c
	}
	paired := m.operation == semconv.GPUCollectiveNameSend || m.operation == semconv.GPUCollectiveNameRecv ||
		strings.Contains(m.operation, "coalesced")
	if paired && strings.Contains(m.kernel, "SendRecv") {
		x.paired[c.Group] = true
	}
	if m.hasSequence && !paired {
		c.Sequence, c.Stated = m.sequence, true
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
