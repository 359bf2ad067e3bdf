// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"slices"

	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

// maxState bounds the JSON of a report on profiles, so that the page, with its scripts, is at most
// 2 MB: lists become shorter and timelines coarser until it fits.
const maxState = 1_800_000

// budget is how long the lists of each profile and device are.
type budget struct {
	rows, cells                               int // of a profile
	kernels, operators, collectives, findings int // of a device
	transfers                                 int
	steps, levels, modules                    int
	parts, segments                           int // of the critical path of a process
	nodes                                     int // of the flame graph of all profiles
}

// budgetOf divides what a page shows among the devices of all profiles.
func budgetOf(devices int) budget {
	of := func(all, least, most int) int { return min(most, max(least, all/max(1, devices))) }
	return budget{
		rows: of(512, 4, shownRows), cells: of(48_000, 300, shownInCells), kernels: of(2400, 12, shownKernels),
		operators: of(2400, 12, shownOperators), collectives: of(1280, 8, shownCollectives), findings: of(512, 4, 1000),
		transfers: of(1280, 8, shownTransfers),
		steps:     of(2560, 8, shownProfileStep), levels: of(8000, 32, 1000),
		modules: of(1280, 10, 300), parts: of(640, 8, 60), segments: of(4800, 60, 240), nodes: of(100_000, 6000, shownNodes),
	}
}

// less returns a smaller budget, and false if nothing more can be saved: first timelines become
// coarser and the flame graph smaller, then lists become shorter.
func (b budget) less() (budget, bool) {
	before := b
	halve := func(least int, n *int) { *n = max(min(*n, least), *n/2) }
	halve(400, &b.cells)
	halve(3000, &b.nodes)
	if b != before {
		return b, true
	}
	halve(100, &b.cells)
	halve(1000, &b.nodes)
	halve(16, &b.levels)
	halve(20, &b.segments)
	for _, n := range []*int{&b.kernels, &b.operators, &b.steps, &b.modules, &b.parts} {
		halve(4, n)
	}
	for _, n := range []*int{&b.rows, &b.collectives, &b.transfers, &b.findings} {
		halve(2, n)
	}
	return b, b != before
}

// fit puts the profiles into the state, within the limit on its size.
func (b *Book) fit(s *State) {
	devices := 0
	for _, p := range b.profiles {
		devices += len(p.Devices)
	}
	left := budgetOf(devices)
	for again := true; again; {
		s.Names, s.Profiles = nil, make([]*Profile, 0, len(b.profiles))
		names := map[string]int64{}
		for _, p := range b.profiles {
			s.Profiles = append(s.Profiles, p.within(left))
			s.shareNames(s.Profiles[len(s.Profiles)-1].Timeline, names)
		}
		s.Flames = b.flames(left.nodes)
		if data, err := encode(s); err != nil || len(data) <= maxState {
			return
		}
		left, again = left.less()
	}
}

// within returns the profile with lists of at most these lengths.
func (p *Profile) within(l budget) *Profile {
	out := *p
	out.Devices = slices.Clone(p.Devices)
	for i := range out.Devices {
		d := &out.Devices[i]
		d.ByKernel, d.MoreKernels = less(d.ByKernel, l.kernels, d.MoreKernels)
		d.Operators, d.MoreOperators = less(d.Operators, l.operators, d.MoreOperators)
		d.Collectives, d.MoreCollectives = less(d.Collectives, l.collectives, d.MoreCollectives)
		d.Transfers, d.MoreTransfers = less(d.Transfers, l.transfers, d.MoreTransfers)
		d.ByStep, d.MoreSteps = less(d.ByStep, l.steps, d.MoreSteps)
		d.Findings, d.MoreFindings = less(d.Findings, l.findings, d.MoreFindings)
		d.Modules, d.MoreModules = modulesWithin(d.Modules, l.modules, d.MoreModules)
		d.Memory = coarser(d.Memory, l.levels)
	}
	out.Paths = make([]*criticalpath.Path, 0, len(p.Paths))
	for _, x := range p.Paths {
		out.Paths = append(out.Paths, x.Within(l.parts, l.segments, max(2, l.parts/6)))
	}
	if p.timeline != nil {
		out.Timeline = p.timeline.shown(l.rows, l.cells)
	}
	return &out
}

// modulesWithin returns the n modules with the most time, in their order, with their outer ones:
// none has less than what is in it. Instances of merged ones are omitted before any module is.
func modulesWithin(list []facts.Module, n, more int) ([]facts.Module, int) {
	instances := 0
	for i := range list {
		instances += len(list[i].Each)
	}
	if len(list)+instances/4 <= n {
		return list, more
	}
	list = slices.Clone(list)
	for i := range list {
		if len(list)+instances/4 > n {
			instances -= len(list[i].Each)
			list[i].Each = nil
		}
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(list[b].Time+list[b].Idle, list[a].Time+list[a].Idle)
	})
	order = order[:min(n, len(order))]
	slices.Sort(order)
	out := make([]facts.Module, len(order))
	for i, at := range order {
		out[i] = list[at]
	}
	return out, more + len(list) - len(out)
}

// less returns the first n, and how many more there are in all.
func less[T any](list []T, n, more int) (first []T, all int) {
	first, all = most(list, n)
	return first, all + more
}

// coarser returns the largest level of each of at most n stretches, in the order of time.
func coarser(list []facts.Level, n int) []facts.Level {
	if len(list) <= n {
		return list
	}
	out := make([]facts.Level, 0, n)
	for i := range n {
		part := list[i*len(list)/n : (i+1)*len(list)/n]
		level := part[0]
		for _, x := range part {
			level.Bytes = max(level.Bytes, x.Bytes)
		}
		out = append(out, level)
	}
	return out
}

// shareNames moves the names of a timeline to the state's: ranks of a job run the same kernels.
func (s *State) shareNames(t *Timeline, names map[string]int64) {
	if t == nil {
		return
	}
	index := make([]int64, len(t.Names))
	for i, n := range t.Names {
		at, ok := names[n]
		if !ok {
			at = int64(len(s.Names))
			names[n] = at
			s.Names = append(s.Names, n)
		}
		index[i] = at
	}
	for _, r := range t.Rows {
		for i := 3; i < len(r.Cells); i += 4 {
			if r.Cells[i] >= 0 {
				r.Cells[i] = index[r.Cells[i]]
			}
		}
	}
	t.Names = nil
}
