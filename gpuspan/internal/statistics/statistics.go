// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package statistics defines what a profiler tells the statistics that package report keeps. It is
// separate so that package report exports only what programs need.
package statistics

import "time"

// New returns a Collector[report.Info, report.Device, report.Summary] whose measurements start now.
// Sample.Start has the same clock; opts are []report.Option. Package report sets it.
var New func(now func() time.Time, opts any) any

// Collector makes summaries of a profiler's measurements. Its memory is bounded: at most 4096
// positions in the nesting, 64 loops, 64 phases of each; runs over the first limit are counted in
// the summary's Overflow. It is safe for concurrent use, but one goroutine calls Node, Section,
// Untimed and Step.
type Collector[Info, Device, Summary any] interface {
	// Node returns the node of an operation below its parent's node. The same parent and name give
	// the same node for the life of the Collector, so callers may keep it.
	Node(parent Node, op Info) Node
	// Section adds one finished run. The root is not an operation: sections recorded there are
	// ignored.
	Section(n Node, s Sample)
	// Untimed adds count runs that were not timed individually, as below unsampled parents, with
	// their declared work. With a count of 0 it adds work to runs that have been counted, such as
	// FLOPs of another precision.
	Untimed(n Node, count int64, s Sample)
	// Step adds one finished step of a loop.
	Step(loop string, s StepSample)
	// SetDevice adds a device or replaces the one with the same ordinal, for example when its floor
	// has been measured. Peaks that an option set are kept.
	SetDevice(d Device)
	// SetDropped sets the number of sections that were lost for a reason since the profiler started.
	SetDropped(reason string, n int64)
	// Summary returns a copy of all statistics so far. It omits operations that have not run since
	// the last Reset, and sorts the others by time.
	Summary() Summary
	// Reset clears all statistics. Nodes stay valid.
	Reset()
}

// Node is a Collector's number of an operation at one position in the nesting of sections. Zero is
// the root, the parent of outermost sections.
type Node int32

// IO is a number of bytes moved over device memory.
type IO struct {
	Read, Written int64
	Unsplit       int64 // bytes whose direction was not stated
}

// Transfer is a number of bytes moved over PCIe, by direction.
type Transfer struct {
	ToDevice, FromDevice int64
	Unsplit              int64 // bytes whose direction was not stated
}

// Sample is one finished run of an operation. Zero fields are unknown or not stated.
type Sample struct {
	Timed       bool          // Start and Duration were measured; otherwise only the declared work is counted
	Start       int64         // start on the wall clock, unix nanoseconds
	Duration    time.Duration // start to end on the stream (gpu.duration)
	OnHost      bool          // no device measured Duration: it is the time from Start to End on the host
	Synchronous bool          // with OnHost: the work was done at End, so rates are valid
	Host        time.Duration // host time between Start and End
	EndDelay    time.Duration // GPU end minus host End (gpu.end.delay); read when HasDelay
	HasDelay    bool          // EndDelay was measured
	Floor       time.Duration // duration of an empty section on the device

	Occurrence int64 // 1 for the first run in the process; it decides what counts as "first"
	Device     int   // gpu.device.ordinal
	Stream     int   // gpu.stream.id; 0: not known

	Memory    IO       // bytes over device memory
	PCIe      Transfer // bytes over PCIe
	Items     int64    // elements processed
	FLOPs     float64  // floating-point operations, multiply-add = 2
	Precision string   // of FLOPs: bf16, fp32 …

	MemoryUsed    int64   // device memory in use at the end, bytes
	MemoryDelta   int64   // its change during the run, bytes
	AccessPattern string  // gpu.io.access_pattern, as declared
	L2HitRatio    float64 // gpu.cache.l2.hit_ratio, as declared; read when HasL2HitRatio
	HasL2HitRatio bool    // whether L2HitRatio was declared
	ZeroCopy      bool    // gpu.zero_copy, as declared; read when HasZeroCopy
	HasZeroCopy   bool    // gpu.zero_copy was declared

	Kernel string // name of the kernel that the section launched
	Module string // module of Kernel
}

// PhaseSample is the time of one phase of one step.
type PhaseSample struct {
	Name     string        // gpu.step.phase.name: data, forward, backward, optimizer, comm, or a further one
	Duration time.Duration // union of the phase's intervals clipped to the step
	Unknown  bool          // a section of the phase has no time, so Duration is unknown
}

// StepSample is one finished step of a loop. Duration = sum of Phases − Overlap + Other, unless a
// phase is unknown.
type StepSample struct {
	Index      int64         // gpu.step.index, from 1 unless FirstStep is set
	Duration   time.Duration // boundary event to boundary event
	Host       time.Duration // host time of the step
	Phases     []PhaseSample // in the order of declaration
	Partial    bool          // a phase is unknown, and so are Overlap, Other, Exposed and Waiting
	Untimed    int           // sections whose time is unknown; Covered is then unknown
	Overlap    time.Duration // sum of phases minus their union
	Other      time.Duration // step minus union of phases
	Covered    time.Duration // union of the sections in the step
	Exposed    time.Duration // communication not hidden by other phases; 0 when not known
	Waiting    time.Duration // phase data minus the time that other phases hide
	Device     int           // gpu.device.ordinal of the step's stream
	Items      int64         // elements processed; 0 when not stated
	ItemType   string        // unit of items
	ModelFLOPs float64       // as the application states them
	Precision  string        // of ModelFLOPs
	Devices    int           // devices that shared the work of ModelFLOPs; 0 means 1
}
