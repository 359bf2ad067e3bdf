// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"maps"
	"slices"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// DeviceFacts is what a sweep found out about one device.
type DeviceFacts struct {
	Ordinal    int64
	Process    *Process
	First, End int64
	QueueMax   int // of the streams, the longest queue
	Computed   Computed
	Allocated  *Allocated // nil: the file has no allocations
	Totals     *facts.Totals
	Context    *facts.Context
	Report     facts.Report // without findings
}

// Devices returns the facts about each device, by ordinal. It is called once, after the sweep.
func (s *Sweep) Devices() (list []*DeviceFacts) {
	s.steps.finish()
	s.in.Meta.Windows = s.in.Meta.Windows || s.in.Names.AnyIs(vocabulary.IsWindowsFrame)
	for _, ordinal := range slices.Sorted(maps.Keys(s.devices)) {
		d := s.devices[ordinal]
		d.after(s)
		x := &DeviceFacts{
			Ordinal: ordinal, Process: d.process, First: d.first, End: d.end, QueueMax: d.queueMax, Computed: d.computed,
			Allocated: s.memories[ordinal], Totals: &d.verdicts.Totals, Context: s.context(ordinal),
		}
		x.Report = d.verdicts.Report(x.Context)
		x.Report.ByStep = s.steps.kept[ordinal]
		list = append(list, x)
	}
	return list
}

// context returns what a report needs besides the activities.
func (s *Sweep) context(ordinal int64) *facts.Context {
	f := s.in.Naming()
	f.Ordinal, f.Model, f.Steps = ordinal, s.in.ModelOf(ordinal), s.steps.count
	f.World = s.in.Meta.WorldSize
	f.Peak = s.in.Peak(ordinal)
	f.Modules = &s.modules
	f.Clocks, f.Windows = s.in.Clocks(ordinal), s.in.Meta.Windows
	f.Memory = s.in.memory(s.memories[ordinal])
	for _, p := range s.Processes {
		for _, device := range [...]int64{ordinal, anyDevice} {
			if l := p.lost[device]; l != nil {
				f.Launches, f.Lost = f.Launches+l.launches, f.Lost+l.count
			}
		}
	}
	f.Incomplete = cmp.Or(s.in.Meta.Partial, s.in.Meta.Dropped)
	return f
}

// StepContext returns what the findings of a step need besides its account.
func (in *Input) StepContext(st *Step) *facts.Context {
	f := in.Naming()
	f.Memory = in.memory(&st.Allocated)
	return f
}

func (in *Input) memory(m *Allocated) facts.Memory {
	if m == nil || !m.HasUsage {
		return facts.Memory{}
	}
	return facts.Memory{
		First: m.first, Highest: m.Highest, At: in.Names.Text(m.at), Levels: m.levels.From(in.Meta.Base),
	}
}

// stepLists keeps the accounts of steps for the reports of their devices. A step is complete when
// maxSteps further ones have started: activities that it launched may run long after it.
type stepLists struct {
	in       *Input
	observer Observer // nil: none
	count    int64
	open     []*Step
	kept     map[int64][]facts.Step // by device
}

// maxSteps bounds the steps of a device's report, and the steps that are not complete.
const maxSteps = 2000

func (l *stepLists) add(st *Step) {
	st.Ordinal = l.count
	l.count++
	if l.open = append(l.open, st); len(l.open) > maxSteps {
		l.keep(l.open[0])
		l.open[0] = nil
		l.open = l.open[1:]
	}
}

// keep keeps the parts of a step that ran on one device.
func (l *stepLists) keep(st *Step) {
	if l.observer != nil {
		l.observer.Step(st)
	}
	ordinal, ok := st.OnlyDevice()
	list := l.kept[ordinal]
	if !ok || len(list) >= maxSteps {
		return
	}
	name := spanfacts.DistinctText(l.in.Names.Name(st.Name), spanfacts.MaxText)
	l.kept[ordinal] = append(list, st.Account.Step(name, l.in.Meta.Base+st.Start, st.End-st.Start, st.compute.Length))
}

// finish completes all steps.
func (l *stepLists) finish() {
	for _, st := range l.open {
		l.keep(st)
	}
	l.open = nil
}
