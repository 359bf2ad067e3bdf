// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package report provides the measurements of a profiler as plain Go values, and writes them as
// text, CSV, JSON, structured log records and a DOT graph, without a Collector.
//
//	Profiler.Snapshot ── Summary ──► WriteText, WriteCSV, WriteJSON, WriteDOT
//	                        └──────► Findings(Thresholds)
//
// Counts, bytes, FLOPs and items cover all runs of an operation, as the application declared them.
// Durations and rates cover timed runs only: a rate is the work of the timed runs divided by their
// time. An unknown value is zero in the Go struct and omitted in every format.
//
// The package imports the standard library only, because package gpuspan returns its types and must
// not add dependencies other than the OpenTelemetry API. Quantiles of whole runs need a sketch,
// such as package ddsketch provides. Without one they are computed from a uniform sample of 512
// durations of each operation.
package report

import (
	"maps"
	"math"
	"slices"
	"time"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Summary is a copy of a profiler's measurements at one moment.
type Summary struct {
	Service    string           `json:"service,omitempty"`       // name of the service or program; may be empty
	Start      time.Time        `json:"start,omitzero"`          // when measuring began (or was reset)
	End        time.Time        `json:"end,omitzero"`            // when the summary was created
	Covered    time.Duration    `json:"-"`                       // union of all timed sections on the wall clock
	Operations []Operation      `json:"operations"`              // parents before their children
	Loops      []Loop           `json:"loops,omitempty"`         // loops whose steps were recorded
	Devices    []Device         `json:"devices,omitempty"`       // devices that sections ran on
	Timed      int64            `json:"-"`                       // timed runs of all operations
	OnHost     int64            `json:"timed_on_host,omitempty"` // timed runs with the host's times
	Dropped    map[string]int64 `json:"dropped,omitempty"`       // sections lost, by reason
	Overflow   int64            `json:"overflow,omitempty"`      // runs counted under "(other)": too many operations
	Pending    int64            `json:"pending,omitempty"`       // sections that have ended and are not read back yet

	total time.Duration // union of the sections of each stream, summed; 0: not known
}

// Wall returns the time that the summary covers.
func (s Summary) Wall() time.Duration { return s.End.Sub(s.Start) }

// WallCoverage returns the share of wall time in which at least one timed section ran, 0 to 1, and
// false if no time has passed. It is how much of the program the sections explain, not how busy the
// device was.
func (s Summary) WallCoverage() (float64, bool) {
	w := s.Wall()
	if w <= 0 {
		return 0, false
	}
	return min(float64(s.Covered)/float64(w), 1), true
}

// Total returns for how long a section ran on each stream, summed over the streams, except work on
// the host. Streams run concurrently, so it may exceed the wall time.
func (s Summary) Total() time.Duration {
	if s.total > 0 {
		return s.total
	}
	var t time.Duration // of a part of a summary
	for i := range s.Operations {
		if o := &s.Operations[i]; !o.onHost() && s.outermost(o) {
			t += o.All.Duration.Total
		}
	}
	return t
}

// above reports whether an operation around o has the property.
func (s Summary) above(o *Operation, such func(*Operation) bool) bool {
	for p := o.Parent; p >= 0; p = s.Operations[p].Parent {
		if such(&s.Operations[p]) {
			return true
		}
	}
	return false
}

// outermost reports whether no GPU work is around an operation.
func (s Summary) outermost(o *Operation) bool {
	return !s.above(o, func(a *Operation) bool { return !a.onHost() })
}

// onHost reports whether the operation is work on the host, which is not part of the GPU's time.
func (i *Info) onHost() bool { return i.Type == typeHost }

const typeHost = "host" // semconv.GPUOperationTypeHost

// Device is one device that the sections ran on.
type Device struct {
	Ordinal int           `json:"ordinal"`         // as the process sees it
	ID      string        `json:"id,omitempty"`    // hw.id
	Model   string        `json:"model,omitempty"` // as the driver reports it
	Floor   time.Duration `json:"-"`               // duration of an empty section; 0 when not known
	Peaks   Peaks         `json:"peaks,omitzero"`  // its limits
}

// Durations are statistics of durations. If Count is 0, all fields are 0.
type Durations struct {
	Count  int64         // durations seen
	Total  time.Duration // their sum
	Min    time.Duration // the shortest
	Max    time.Duration // the longest
	Mean   time.Duration // Total ÷ Count
	StdDev time.Duration // of the population: divided by Count
	P50    time.Duration // median; 0 if there are no quantiles
	P99    time.Duration // 99th percentile; 0 if there are no quantiles
}

// Figures hold the statistics of a set of runs.
type Figures struct {
	Count    int64              `json:"count"`                 // runs, timed or not
	Duration Durations          `json:"duration,omitzero"`     // of the timed runs
	Memory   IO                 `json:"memory_bytes,omitzero"` // of all runs, bytes over device memory
	PCIe     Transfer           `json:"pcie_bytes,omitzero"`   // of all runs, bytes over PCIe
	Items    int64              `json:"items,omitempty"`       // of all runs
	FLOPs    map[string]float64 `json:"flops,omitempty"`       // of all runs, by precision ("" when not stated)
	timed    work               // of the timed runs: the dividend of rates
}

type work struct {
	time   time.Duration // of the runs that a device timed, or that are synchronous
	memory IO
	pcie   Transfer
	items  int64
	flops  float64
}

func (w *work) add(o work) {
	w.time += o.time
	w.memory.add(o.memory)
	w.pcie.add(o.pcie)
	w.items += o.items
	w.flops += o.flops
}

// Rates are work per second of the timed runs: bytes, floating-point operations and items per
// second. Zero means unknown.
type Rates struct {
	MemoryRead    float64 `json:"memory_read_bytes_per_second,omitempty"`      // device memory
	MemoryWritten float64 `json:"memory_write_bytes_per_second,omitempty"`     // device memory
	Memory        float64 `json:"memory_bytes_per_second,omitempty"`           // with bytes of unstated direction
	ToDevice      float64 `json:"pcie_to_device_bytes_per_second,omitempty"`   // PCIe, from host to device
	FromDevice    float64 `json:"pcie_from_device_bytes_per_second,omitempty"` // PCIe, from device to host
	PCIe          float64 `json:"pcie_bytes_per_second,omitempty"`             // with bytes of unstated direction
	FLOPs         float64 `json:"flops_per_second,omitempty"`                  // of all precisions
	Items         float64 `json:"items_per_second,omitempty"`                  // as the operation counts them
}

// Rates returns the declared work of the timed runs divided by their duration. Host-timed runs
// count only if the operation is synchronous: for others, the host times show when the work was
// launched, not when it ran.
func (f Figures) Rates() Rates {
	s := f.timed.time.Seconds()
	if s <= 0 {
		return Rates{}
	}
	t := f.timed
	return Rates{
		MemoryRead: float64(t.memory.Read) / s, MemoryWritten: float64(t.memory.Written) / s,
		Memory:   float64(t.memory.Total()) / s,
		ToDevice: float64(t.pcie.ToDevice) / s, FromDevice: float64(t.pcie.FromDevice) / s, PCIe: float64(t.pcie.Total()) / s,
		FLOPs: t.flops / s, Items: float64(t.items) / s,
	}
}

// TotalFLOPs returns the sum of FLOPs over all precisions.
func (f Figures) TotalFLOPs() float64 {
	var sum float64
	for _, v := range f.FLOPs {
		sum += v
	}
	return sum
}

// Operation holds the statistics of an operation at one position in the nesting.
type Operation struct {
	Info
	Parent int      `json:"-"`      // index into Summary.Operations; −1 for outermost sections
	Depth  int      `json:"-"`      // 0 for outermost sections
	Path   []string `json:"path"`   // names from the outermost section to this one
	Device int      `json:"device"` // gpu.device.ordinal of the latest run

	All   Figures `json:"all"`            // every run
	First Figures `json:"first,omitzero"` // the first run in the process
	Rest  Figures `json:"rest,omitzero"`  // every other run, and all runs that only count

	// of the parent's total duration, 0 to 1; 0 when not known, or longer than the parent, as on
	// another stream
	ShareOfParent float64 `json:"share_of_parent,omitempty"`
	ShareOfTotal  float64 `json:"share_of_total,omitempty"` // of Summary.Total, 0 to 1
	// share of the closest limit; 0 if unknown. More than 1 is impossible: the work, or what it was
	// timed by, is declared wrong, or a cache served it.
	PeakShare float64 `json:"peak_share,omitempty"`
	PeakOf    string  `json:"peak_of,omitempty"` // which limit: "memory", "pcie", or the precision

	Starved    int64         `json:"starved,omitempty"`     // timed runs with an end delay below 5 % of Duration
	BelowFloor int64         `json:"below_floor,omitempty"` // timed runs shorter than 10 × the device's empty section
	Floor      time.Duration `json:"-"`                     // empty section of the latest run's device; 0: not known

	MemoryPeak  int64 `json:"memory_peak_bytes,omitempty"`  // highest device memory in use at the end of a run, bytes
	MemorySpike int64 `json:"memory_spike_bytes,omitempty"` // largest growth of device memory during one run, bytes

	AccessPattern string `json:"access_pattern,omitempty"` // gpu.io.access_pattern, as declared last
	// mean share of the declared bytes that came from the L2 cache, weighted by time; see
	// HasL2HitRatio
	L2HitRatio    float64 `json:"-"`
	HasL2HitRatio bool    `json:"-"` // whether L2HitRatio was declared

	ZeroCopy ZeroCopy `json:"zero_copy,omitempty"` // gpu.zero_copy, as declared last

	Kernels []Kernel `json:"kernels,omitempty"` // launched by this operation, in order of first launch; at most 32

	whole time.Duration // of all its runs, in whichever row they are
}

// Kernel is a kernel that an operation launched, with its count.
type Kernel struct {
	Name   string `json:"name"`             // full name
	Module string `json:"module,omitempty"` // module that holds it; empty when not stated
	Count  int64  `json:"count"`            // launches
}

// Loop holds the statistics of the recorded steps of one loop.
type Loop struct {
	Name       string        `json:"name"`                    // name of the loop, and of its steps' spans
	Steps      int64         `json:"steps"`                   // recorded steps
	Duration   Durations     `json:"duration,omitzero"`       // boundary event to boundary event
	Host       Durations     `json:"host_duration,omitzero"`  // host time
	Phases     []Phase       `json:"phases"`                  // in order of first declaration
	Partial    int64         `json:"partial_steps,omitempty"` // steps with an unknown phase: a section was not timed
	Overlap    time.Duration `json:"-"`                       // time of other steps = sum of phases − Overlap + Other
	Other      time.Duration `json:"-"`                       // part of them that belongs to no phase
	Covered    time.Duration `json:"-"`                       // part of fully timed steps in which a section ran
	Exposed    time.Duration `json:"-"`                       // communication that no other phase hides
	Waiting    time.Duration `json:"-"`                       // phase data minus the time that other phases hide
	Items      int64         `json:"items,omitempty"`         // elements processed; 0 when not stated
	ItemType   string        `json:"item_type,omitempty"`     // unit of items
	ModelFLOPs float64       `json:"model_flops,omitempty"`   // as the application states them; 0 when not stated
	MFU        float64       `json:"mfu,omitempty"`           // ModelFLOPs ÷ (time × devices × dense peak); 0: not known

	partial time.Duration // time of partial steps
}

// Phase holds the statistics of one phase. Count is the number of steps that had the phase.
type Phase struct {
	Name     string    `json:"name"`                    // data, forward, backward, optimizer, comm, or a further one
	Duration Durations `json:"duration"`                // union of its intervals in each step that had it
	Unknown  int64     `json:"unknown_steps,omitempty"` // further steps, in which a section of it was not timed

	unknown time.Duration // time of the steps in which it is unknown
}

// ByName returns the statistics of an operation over all its positions, and false if it has not
// run. Quantiles are 0 if there are several positions.
func (s Summary) ByName(name string) (Figures, bool) {
	return s.sum(func(o *Operation) bool { return o.Name == name })
}

// Categories returns the sums of the operations of each category, in order of first appearance.
// Operations below another one of the same category are omitted, because the other one includes
// their time.
func (s Summary) Categories() []Category {
	var out []Category
	seen, own := map[string]bool{}, s.ownTimes()
	for i := range s.Operations {
		c := s.Operations[i].Category
		if c == "" || seen[c] {
			continue
		}
		seen[c] = true
		of := func(o *Operation) bool { return o.Category == c }
		f, _ := s.sum(func(o *Operation) bool { return of(o) && !s.above(o, of) })
		share := Durations{Total: own[c]}.part(s.Total())
		out = append(out, Category{Name: c, Figures: f, ShareOfTotal: share})
	}
	return out
}

// categorized reports whether an operation is GPU work of a category.
func (o *Operation) categorized() bool { return o.Category != "" && !o.onHost() }

// ownTimes returns the time of each category without the time of other categorized operations
// inside it, so that each moment counts for the innermost one.
func (s Summary) ownTimes() map[string]time.Duration {
	left := make([]time.Duration, len(s.Operations))
	for i := range s.Operations {
		o := &s.Operations[i]
		if !o.categorized() {
			continue
		}
		left[i] = o.All.Duration.Total
		for p := o.Parent; p >= 0; p = s.Operations[p].Parent {
			if s.Operations[p].categorized() {
				left[p] = max(left[p]-left[i], 0) // a child on another stream may be longer
				break
			}
		}
	}
	own := map[string]time.Duration{}
	for i, t := range left {
		own[s.Operations[i].Category] += t
	}
	return own
}

// uncategorized returns the time that no category explains: outermost GPU work without a category,
// minus the time of operations within it that have one.
func (s Summary) uncategorized() Category {
	out := Category{Name: "(no category)"}
	rest := s.Total()
	for i := range s.Operations {
		o := &s.Operations[i]
		switch {
		case o.onHost() || s.above(o, (*Operation).categorized):
		case o.categorized():
			rest -= o.All.Duration.Total
		case s.outermost(o):
			out.Figures.Count += o.All.Count
		}
	}
	if rest > 0 {
		out.Figures.Duration.Total = rest
		out.ShareOfTotal = out.Figures.Duration.part(s.Total())
	}
	return out
}

// Category holds the statistics of all operations of one category.
type Category struct {
	Name    string  // gpu.operation.category
	Figures Figures // of all operations of the category, nested ones counted once
	// of Summary.Total, without operations of other categories inside; work on the host omitted of
	// both; 0 when not known
	ShareOfTotal float64
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

// merge adds the runs of o. Quantiles cannot be merged from their values and are dropped, unless f
// was empty.
func (f *Figures) merge(o Figures) {
	f.Count += o.Count
	f.Duration = f.Duration.merge(o.Duration)
	f.Memory.add(o.Memory)
	f.PCIe.add(o.PCIe)
	f.Items += o.Items
	if len(o.FLOPs) > 0 {
		sum := make(map[string]float64, len(f.FLOPs)+len(o.FLOPs))
		maps.Copy(sum, f.FLOPs)
		for p, v := range o.FLOPs {
			sum[p] += v
		}
		f.FLOPs = sum
	}
	f.timed.add(o.timed)
}

// partOf is like part, but 0 if the sum is larger: then it is no part, as of a child on another
// stream.
func (d Durations) partOf(of time.Duration) float64 {
	if d.Total > of {
		return 0
	}
	return d.part(of)
}

// part returns d.Total/of, or 0 if of is 0.
func (d Durations) part(of time.Duration) float64 {
	if of <= 0 {
		return 0
	}
	return float64(d.Total) / float64(of)
}

// merge uses Chan, Golub and LeVeque's pairwise update of mean and variance (1979).
func (d Durations) merge(o Durations) Durations {
	switch {
	case o.Count == 0:
		return d
	case d.Count == 0:
		return o
	}
	n, m := float64(d.Count), float64(o.Count)
	a, b := float64(d.Total)/n, float64(o.Total)/m
	va, vb := float64(d.StdDev), float64(o.StdDev)
	variance := (n*va*va+m*vb*vb)/(n+m) + n*m*(b-a)*(b-a)/((n+m)*(n+m))
	total := d.Total + o.Total
	return Durations{
		Count: d.Count + o.Count, Total: total,
		Min: min(d.Min, o.Min), Max: max(d.Max, o.Max),
		Mean:   time.Duration(math.Round(float64(total) / (n + m))),
		StdDev: time.Duration(math.Round(math.Sqrt(variance))),
	}
}
