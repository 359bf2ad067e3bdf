// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import "time"

// Summary is what a profiler has measured up to one moment. It shares no memory with the profiler.
type Summary struct {
	Service    string           // name of the service or program; may be empty
	Start      time.Time        // when measuring began (or was reset)
	End        time.Time        // when the summary was made
	Covered    time.Duration    // union of all timed sections on the wall clock, over all streams
	Operations []Operation      // parents before their children
	Loops      []Loop           // loops whose steps were recorded
	Devices    []Device         // devices that sections ran on
	Timed      int64            // timed runs of all operations
	OnHost     int64            // of them, those with the host's times, as without a device
	Dropped    map[string]int64 // sections lost, by reason
	Overflow   int64            // runs counted under "(other)" because there were too many operations
	Pending    int64            // sections that have ended and are not read back yet
}

// Wall is the time that the summary covers.
func (s Summary) Wall() time.Duration { return s.End.Sub(s.Start) }

// WallCoverage is the share of wall time in which at least one timed section ran, 0 to 1, and false when no time has
// passed. It says how much of the program the sections explain, not how busy the device was.
func (s Summary) WallCoverage() (float64, bool) {
	w := s.Wall()
	if w <= 0 {
		return 0, false
	}
	return min(float64(s.Covered)/float64(w), 1), true
}

// Total is the time of all outermost sections but work on the host, each moment of a stream once. Streams run side by
// side, so it may exceed the wall time.
func (s Summary) Total() time.Duration {
	var t time.Duration
	for i := range s.Operations {
		if o := &s.Operations[i]; !o.onHost() && s.outermost(i) {
			t += o.All.Duration.Total - o.inside
		}
	}
	return t
}

// outermost reports whether no GPU work is around an operation.
func (s Summary) outermost(i int) bool {
	for i = s.Operations[i].Parent; i >= 0; i = s.Operations[i].Parent {
		if !s.Operations[i].onHost() {
			return false
		}
	}
	return true
}

// onHost reports whether the operation is work on the host, which is no part of the GPU's time.
func (i *Info) onHost() bool { return i.Type == typeHost }

const typeHost = "host" // semconv.GPUOperationTypeHost

// Device is one device that the sections ran on.
type Device struct {
	Ordinal int           `json:"ordinal"`         // as the process sees it
	ID      string        `json:"id,omitempty"`    // hw.id
	Model   string        `json:"model,omitempty"` // as the driver says
	Floor   time.Duration `json:"-"`               // duration of an empty section; 0 when not known
	Peaks   Peaks         `json:"peaks,omitzero"`  // its limits
}

// Durations are statistics of durations. All but Count are zero when Count is.
type Durations struct {
	Count  int64         // durations seen
	Total  time.Duration // their sum
	Min    time.Duration // the shortest
	Max    time.Duration // the longest
	Mean   time.Duration // Total ÷ Count
	StdDev time.Duration // of the population: divided by Count
	P50    time.Duration // median; zero when no quantiles were kept
	P99    time.Duration // likewise
}

// Figures are the figures of a set of runs.
type Figures struct {
	Count    int64              // runs, timed or not
	Duration Durations          // of the timed runs
	Memory   IO                 // of all runs, bytes over device memory
	PCIe     IO                 // of all runs, bytes over PCIe
	Items    int64              // of all runs
	FLOPs    map[string]float64 // of all runs, by precision ("" when not stated)
	timed    work               // of the timed runs: what the rates divide
}

type work struct {
	time         time.Duration // of the runs that a device timed, or that are synchronous
	memory, pcie IO
	items        int64
	flops        float64
}

// Rates are work per second of the timed runs, in bytes, floating-point operations and items. Zero is not known.
type Rates struct {
	MemoryRead, MemoryWritten, Memory float64 // device memory; Memory has bytes of unstated direction too
	PCIeRead, PCIeWritten, PCIe       float64 // PCIe, likewise
	FLOPs                             float64 // of all precisions
	Items                             float64 // as the operation counts them
}

// Rates divides the declared work of the timed runs by their duration. Runs with the host's times count only where the
// operation is synchronous: of others the host knows when they were launched, not when they ran.
func (f Figures) Rates() Rates {
	s := f.timed.time.Seconds()
	if s <= 0 {
		return Rates{}
	}
	t := f.timed
	return Rates{
		MemoryRead: float64(t.memory.Read) / s, MemoryWritten: float64(t.memory.Written) / s,
		Memory:   float64(t.memory.Total()) / s,
		PCIeRead: float64(t.pcie.Read) / s, PCIeWritten: float64(t.pcie.Written) / s, PCIe: float64(t.pcie.Total()) / s,
		FLOPs: t.flops / s, Items: float64(t.items) / s,
	}
}

// TotalFLOPs is the sum of FLOPs over all precisions.
func (f Figures) TotalFLOPs() float64 {
	var sum float64
	for _, v := range f.FLOPs {
		sum += v
	}
	return sum
}

// Operation is an operation at one place in the nesting.
type Operation struct {
	Info
	Parent int      // index into Summary.Operations; −1 for outermost sections
	Depth  int      // 0 for outermost sections
	Path   []string // names from the outermost section to this one
	Device int      // gpu.device.ordinal of the latest run

	All   Figures // every run
	First Figures // the first run in the process
	Rest  Figures // every other run, and all runs that only count

	// of the parent's total duration, 0 to 1 unless children ran on several streams; 0 when not known
	ShareOfParent float64
	ShareOfTotal  float64 // of the duration of all outermost sections
	PeakShare     float64 // of the limit that was closest: device memory, PCIe or FLOP/s; 0 when not known
	PeakOf        string  // which limit: "memory", "pcie", or the precision

	Starved    int64         // timed runs whose end delay was below Duration/20: the GPU waited for the host
	BelowFloor int64         // timed runs shorter than 10 × the device's empty section
	Floor      time.Duration // the empty section of the device of the latest run; 0 when not known

	MemoryPeak  int64 // highest device memory in use at the end of a run, bytes
	MemorySpike int64 // largest growth of device memory during one run, bytes

	AccessPattern string // gpu.io.access_pattern, as declared last
	// mean share of the declared bytes that came from the L2 cache, weighted by time; see HasL2HitRatio
	L2HitRatio    float64
	HasL2HitRatio bool

	Kernels []Kernel // launched by this operation, in order of first launch; at most 32

	inside time.Duration // part of the time of an outermost operation that lies in other ones on its stream
}

// Kernel is a kernel that an operation launched.
type Kernel struct {
	Name   string `json:"name"`             // full name
	Module string `json:"module,omitempty"` // module that holds it; empty when not stated
	Count  int64  `json:"count"`            // launches
}

// Loop is the statistics of the recorded steps of one loop.
type Loop struct {
	Name       string        // name of the loop, and of its steps' spans
	Steps      int64         // recorded steps
	Duration   Durations     // boundary event to boundary event
	Host       Durations     // host time beside it
	Phases     []Phase       // in order of first declaration
	Overlap    time.Duration // sums over all steps; Duration.Total = sum of phases − Overlap + Other
	Other      time.Duration // part of the steps that belongs to no phase
	Covered    time.Duration // part of the steps in which a section ran
	Exposed    time.Duration // communication that no other phase hides
	Waiting    time.Duration // phase data less what other phases hide of it: copies ahead of time are no gap
	Items      int64         // elements processed; 0 when not stated
	ItemType   string        // what an item is
	ModelFLOPs float64       // as the application states them; 0 when not stated
	MFU        float64       // ModelFLOPs ÷ (time × devices × dense peak of their precision); 0 when not known
}

// Phase is the statistics of one phase. Count counts the steps that had the phase.
type Phase struct {
	Name     string    // data, forward, backward, optimizer, comm, or a further one
	Duration Durations // union of its intervals in each step that had it
}

// ByName adds up an operation over every place in which it ran. Quantiles are absent when there was more than one.
func (s Summary) ByName(name string) (Figures, bool) {
	return s.sum(func(o *Operation) bool { return o.Name == name })
}

// Categories adds up the operations of each category, in order of first appearance. An operation below another one of
// its own category is left out, since its time is within the other's.
func (s Summary) Categories() []Category {
	var out []Category
	seen := map[string]bool{}
	for i := range s.Operations {
		c := s.Operations[i].Category
		if c == "" || seen[c] {
			continue
		}
		seen[c] = true
		f, _ := s.sum(func(o *Operation) bool { return o.Category == c && !s.within(o, c) })
		out = append(out, Category{Name: c, Figures: f})
	}
	return out
}

// Category is the figures of all operations of one category.
type Category struct {
	Name    string  // gpu.operation.category
	Figures Figures // of all operations of it, nested ones counted once
}

func (s Summary) within(o *Operation, category string) bool {
	for p := o.Parent; p >= 0; p = s.Operations[p].Parent {
		if s.Operations[p].Category == category {
			return true
		}
	}
	return false
}

func (s Summary) sum(match func(*Operation) bool) (Figures, bool) {
	var f Figures
	n := 0
	for i := range s.Operations {
		if match(&s.Operations[i]) {
			f.merge(s.Operations[i].All)
			n++
		}
	}
	return f, n > 0
}
