// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import "time"

// Node is a Recorder's number of an operation at one position in the nesting of sections. Zero is
// the root, the parent of outermost sections.
type Node int32

// Info describes an operation.
type Info struct {
	Name        string `json:"name"`                       // gpu.operation.name
	Category    string `json:"category,omitempty"`         // gpu.operation.category; empty when not stated
	Type        string `json:"type,omitempty"`             // gpu.operation.type; empty means section
	Description string `json:"description,omitempty"`      // for people; may be empty
	ItemType    string `json:"item_type,omitempty"`        // unit of items: token, row, image
	Direction   string `json:"copy_direction,omitempty"`   // gpu.copy.direction of a copy
	HostMemory  string `json:"copy_host_memory,omitempty"` // gpu.copy.host_memory of a copy: pinned, pageable
	Synchronous bool   `json:"-"`                          // host times equal the work's times, as of blocking calls
	Level       string `json:"level,omitempty"`            // macro, midi or micro for tiles, which never become spans
}

// ZeroCopy states whether kernels accessed host memory directly (gpu.zero_copy). Zero means not
// stated.
type ZeroCopy uint8

// Values of ZeroCopy.
const (
	ZeroCopyUnset ZeroCopy = iota // not stated
	NoZeroCopy                    // no kernel accessed host memory
	UsesZeroCopy                  // a kernel accessed host memory
)

// String returns "yes", "no", or the empty string if not stated.
func (z ZeroCopy) String() string {
	switch z {
	case NoZeroCopy:
		return "no"
	case UsesZeroCopy:
		return "yes"
	}
	return ""
}

// MarshalText returns the text of String. The error is always nil.
func (z ZeroCopy) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

// IO is a number of bytes moved over device memory.
type IO struct {
	Read    int64 `json:"read,omitempty"`    // bytes read
	Written int64 `json:"written,omitempty"` // bytes written
	Unsplit int64 `json:"unsplit,omitempty"` // bytes whose direction was not stated
}

// Total returns the sum of the bytes of all directions.
func (b IO) Total() int64 { return b.Read + b.Written + b.Unsplit }

func (b IO) negative() IO { return IO{-b.Read, -b.Written, -b.Unsplit} }

func (b *IO) add(o IO) {
	b.Read += o.Read
	b.Written += o.Written
	b.Unsplit += o.Unsplit
}

// Transfer is a number of bytes moved over PCIe, by direction.
type Transfer struct {
	ToDevice   int64 `json:"to_device,omitempty"`   // bytes from host to device
	FromDevice int64 `json:"from_device,omitempty"` // bytes from device to host
	Unsplit    int64 `json:"unsplit,omitempty"`     // bytes whose direction was not stated
}

// Total returns the sum of the bytes of all directions.
func (b Transfer) Total() int64 { return b.ToDevice + b.FromDevice + b.Unsplit }

func (b Transfer) negative() Transfer { return Transfer{-b.ToDevice, -b.FromDevice, -b.Unsplit} }

func (b *Transfer) add(o Transfer) {
	b.ToDevice += o.ToDevice
	b.FromDevice += o.FromDevice
	b.Unsplit += o.Unsplit
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

	MemoryUsed    int64    // device memory in use at the end, bytes
	MemoryDelta   int64    // its change during the run, bytes
	AccessPattern string   // gpu.io.access_pattern, as declared
	L2HitRatio    float64  // gpu.cache.l2.hit_ratio, as declared; read when HasL2HitRatio
	HasL2HitRatio bool     // whether L2HitRatio was declared
	ZeroCopy      ZeroCopy // gpu.zero_copy, as declared

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

// Peaks are the limits of a device. Zero means unknown.
type Peaks struct {
	Memory float64            `json:"memory_bytes_per_second,omitempty"` // device memory, bytes per second
	PCIe   float64            `json:"pcie_bytes_per_second,omitempty"`   // one direction of the link, bytes per second
	FLOPs  map[string]float64 `json:"flops_per_second,omitempty"`        // dense FLOP per second, by precision
	Source string             `json:"source,omitempty"`                  // source of the peaks: config, table or device
}

func (p Peaks) known() bool { return p.Memory > 0 || p.PCIe > 0 || len(p.FLOPs) > 0 }

// Sketch summarizes a stream of durations in bounded memory.
type Sketch interface {
	// Add adds one duration in seconds, greater than or equal to 0.
	Add(seconds float64)
	// Quantile returns the value at q in [0, 1] in seconds; false if nothing was added.
	Quantile(q float64) (float64, bool)
}
