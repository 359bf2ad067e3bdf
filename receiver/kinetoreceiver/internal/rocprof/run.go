// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package rocprof reads what ROCm's rocprofv3 writes as tables in CSV and as Perfetto traces (ROCprofiler-SDK,
// source/lib/output/generateCSV.cpp and generatePerfetto.cpp). Its JSON and its databases are read elsewhere.
package rocprof

import (
	"regexp"
	"strconv"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// Run is what a file says about its run.
type Run struct {
	Records int64
	Bytes   int64
	PID     int64 // 0: not stated
	Devices []event.Device
	Faults  []string
}

// unlisted is the fault of a run whose file does not list the agents.
const unlisted = "devices have the numbers of rocprofv3's agents, which count CPUs too: the list of agents is missing"

// record is one record of either format. Numbers that are not stated are 0.
type record struct {
	kind          event.Kind
	name          string
	start, end    int64 // ns since the start of the machine
	thread        int64
	correlation   int64
	stream, queue int64
	agent, source string // labels of agents: of a kernel, or the destination and the source of a copy
	bytes         int64
	hasBytes      bool
	grid, block   [3]int64 // of work-items
	hasGrid       bool
	needs         event.RocKernel
	memory        int64 // LDS of a block, bytes
}

// adder passes records to a profile.
type adder struct {
	p      *profiletrace.Profile
	agents agents
	run    Run
}

// add passes on a record, or counts why it cannot.
func (a *adder) add(r *record) error {
	a.run.Records++
	e := event.Event{
		Kind: r.kind, Start: r.start, Duration: r.end - r.start, Process: a.run.PID, HasProcess: true, Thread: r.thread,
		Device: -1,
	}
	name, ok := r.name, true
	switch r.kind {
	case event.KindKernel:
		e.Device, ok = a.agents.device(r.agent)
		e.Detail.Grid, e.Detail.Block, e.Detail.HasGrid = blocks(r)
		e.Detail.SetRoc(a.agents.target(e.Device), r.needs, r.memory)
	case event.KindCopy:
		name = vocabulary.RocCopy(r.name)
		e.Detail.Direction, _ = vocabulary.CopyKind(name)
		e.Device, ok = a.copies(r, e.Detail.Direction)
		e.Detail.Bytes, e.Detail.HasBytes = r.bytes, r.hasBytes
	}
	switch {
	case name == "" || r.kind == event.KindAnnotation && r.end <= r.start:
		a.p.Skip("record without a name or length")
		return nil
	case !ok:
		a.p.Skip("activity of an agent that is not a listed GPU")
		return nil
	case r.start <= 0 || r.end < r.start:
		a.p.Skip("start or end missing or no number")
		return nil
	}
	if e.Kind.Device() {
		e.Stream = a.p.Stream(r.stream, r.queue)
	}
	if e.Kind != event.KindAnnotation {
		e.Correlation = r.correlation & (1<<event.CorrelationBits - 1)
	}
	e.Name = a.p.Names.ID(name)
	return a.p.Add(&e)
}

// copies returns the device of a copy: its destination, otherwise its source. Without a list of agents, the direction
// says which of the two is a device.
func (a *adder) copies(r *record, direction string) (int64, bool) {
	if !a.agents.listed() && direction == "device_to_host" {
		return a.agents.device(r.source)
	}
	if !a.agents.listed() && direction == "" {
		return 0, false
	}
	if d, ok := a.agents.device(r.agent); ok {
		return d, true
	}
	return a.agents.device(r.source)
}

// blocks returns the grid in blocks; HSA counts it in work-items.
func blocks(r *record) (grid, block [3]int64, ok bool) {
	if !r.hasGrid || min(r.block[0], r.block[1], r.block[2]) <= 0 {
		return grid, block, false
	}
	for i, n := range r.block {
		grid[i] = (r.grid[i] + n - 1) / n
	}
	return grid, r.block, true
}

// agents finds the device of an agent by its label: "Agent 4" (the agent's number, the default), "GPU 0" (of
// --agent-index=type-relative) or a number alone, as of ROCm 6.
type agents struct {
	numbers map[int64]agent // empty: the agents are not listed
	gpus    []event.Device
}

type agent struct {
	ordinal int64
	gpu     bool
}

// maxAgents bounds the agents that are remembered.
const maxAgents = 1 << 16

// list adds an agent; ordinals count the GPUs in the order of their numbers.
func (a *agents) list(number int64, gpu bool, model string, limits occupancy.Device) {
	if len(a.numbers) >= maxAgents {
		return
	}
	if a.numbers == nil {
		a.numbers = map[int64]agent{}
	}
	a.numbers[number] = agent{int64(len(a.gpus)), gpu}
	if gpu {
		a.gpus = append(a.gpus, event.Device{Ordinal: int64(len(a.gpus)), Model: model, Limits: limits})
	}
}

// target returns the name of a device such as gfx942, empty if it is unknown.
func (a *agents) target(ordinal int64) string {
	if ordinal < 0 || ordinal >= int64(len(a.gpus)) {
		return ""
	}
	return a.gpus[ordinal].Limits.Target
}

func (a *agents) listed() bool { return len(a.numbers) > 0 }

var label = regexp.MustCompile(`^([A-Za-z]*)[ -]?(\d+)$`)

func (a *agents) device(text string) (ordinal int64, ok bool) {
	m := label.FindStringSubmatch(text)
	if m == nil || m[1] == "CPU" {
		return 0, false
	}
	n, err := strconv.ParseInt(m[2], 10, 32)
	if err != nil {
		return 0, false
	}
	if m[1] == "GPU" || !a.listed() {
		return n, true
	}
	found := a.numbers[n]
	return found.ordinal, found.gpu
}

// done returns the run.
func (a *adder) done() Run {
	if a.run.Devices = a.agents.gpus; !a.agents.listed() {
		a.run.Faults = append(a.run.Faults, unlisted)
	}
	return a.run
}

func integer(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
