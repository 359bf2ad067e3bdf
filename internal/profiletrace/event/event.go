// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

// Kind is the kind of an Event.
type Kind uint8

// Kinds of event. The order is that in which ranges with the same start and length enclose each
// other.
const (
	KindStep       Kind = iota + 1 // one iteration of a loop, on the host
	KindAnnotation                 // a range that the application named, on the host
	KindModule                     // a frame of a neural network module, on the host
	KindFrame                      // any other frame of a call stack; never a span
	KindOperator                   // an operator of the framework, on the host
	KindOther                      // a host range of a category without meaning here
	KindRuntime                    // a call of the device runtime or driver, on the host
	KindKernel                     // a kernel on the device
	KindCopy                       // a copy on the device
	KindMemset                     // a memset on the device
	KindMemory                     // an instant: memory was allocated or freed
	KindCount
)

// Device reports whether the event is an activity of a device.
func (k Kind) Device() bool { return k == KindKernel || k == KindCopy || k == KindMemset }

// Event is one record of a profiler's file.
type Event struct {
	Kind       Kind
	Start      int64  // ns since the file's base
	Duration   int64  // ns, at least 0
	Name       uint32 // full name, by Profile.Names
	Process    int64  // process id: of host events always, of device events where HasProcess
	HasProcess bool
	Thread     int64 // host events: thread id, or a number assigned to its name
	Device     int64 // device events: ordinal in the file
	Stream     int64 // device events: stream in the file
	// Correlation connects a runtime call with activities of the device; 0: none; see
	// CorrelationBits. Of frames it is the profiler's number: of two with equal bounds, the inner
	// one has the higher number.
	Correlation int64
	// Gradient connects an operator with the function of the backward pass that computes its
	// gradient; 0: none. It is no part of spans.
	Gradient int64
	Detail   Detail // not kept for frames
}

// CorrelationBits of Event.Correlation are the file's number, and are written on spans. Above them
// a reader may put what makes it unique, if the file's number is only unique within a process.
const CorrelationBits = 40

// CorrelationMask selects the CorrelationBits of Event.Correlation.
const CorrelationMask = 1<<CorrelationBits - 1

// maxBytes is more than a device addresses; sums over as many copies as a profile has stay within
// int64.
const maxBytes = 1 << 48

// unstatedOccupancy is the shared memory of a block, in bytes, from which PyTorch's profiler writes
// an occupancy of 0, whatever it is: cuda_occupancy.h does not know that the kernel opted in to
// more.
const unstatedOccupancy = 48 << 10

// Limits of what a kernel uses: CDNA has 512 registers for a thread, and no multiprocessor has more
// than some hundreds of KiB of shared memory. Old versions of XLA write what was in memory.
const (
	maxRegisters    = 1 << 10
	maxSharedMemory = 1 << 20
)

// bounded removes numbers that no device can have from the detail of an activity, as if they were
// not stated.
func (d *Detail) bounded() {
	if d.Bytes < 0 || d.Bytes > maxBytes {
		d.Bytes, d.HasBytes = 0, false
	}
	d.HasGrid = d.HasGrid && min(d.Grid[0], d.Grid[1], d.Grid[2], d.Block[0], d.Block[1], d.Block[2]) >= 0
	d.HasResources = d.HasResources && min(d.Registers, d.SharedMemory, d.Scalars) >= 0 &&
		d.Registers <= maxRegisters && d.SharedMemory <= maxSharedMemory
	d.HasOccupancy = d.HasOccupancy && 0 <= d.Occupancy && d.Occupancy <= 1 &&
		(d.Occupancy > 0 || d.SharedMemory < unstatedOccupancy)
	d.BlocksPerSM, d.WarpsPerSM = max(0, d.BlocksPerSM), max(0, d.WarpsPerSM)
}

// End returns Start + Duration.
func (e *Event) End() int64 { return e.Start + e.Duration }

// Detail holds what some events state beyond the common fields. Zero means not stated.
type Detail struct {
	Step           int64 // number of the step
	HasStep        bool
	Bytes          int64 // size of a copy or memset, or of an allocation (negative: freed)
	HasBytes       bool
	Direction      string // value of gpu.copy.direction
	HostMemory     string // value of gpu.copy.host_memory
	Grid, Block    [3]int64
	HasGrid        bool
	Registers      int64
	SharedMemory   int64
	HasResources   bool  // Registers and SharedMemory are stated
	Scalars        int64 // registers of a wave of AMD's devices
	BlocksPerSM    float64
	WarpsPerSM     float64
	Occupancy      float64 // 0..1, by launch parameters
	HasOccupancy   bool
	Collective     string // value of gpu.collective.name
	Group          string // description of the process group, for people
	GroupID        uint32 // identifies the process group, by Profile.Names: the unique name and the ranks
	Sequence       int64  // number of the collective in its group
	HasSequence    bool
	Peer           int64 // rank on the other side of a send or recv
	HasPeer        bool
	GroupSize      int64
	ElementType    string
	InElements     int64
	OutElements    int64
	Graph          int64
	GraphNode      int64
	WholeGraph     bool // a kernel that represents all work of one launch of a graph, which is not shown
	FLOPs          float64
	Traffic        float64 // bytes of device memory that an operator reads and writes at least
	Elements       float64 // that it reads and writes, where their type is not recorded
	Launches       uint32  // of a call: the kernel that it launches, by Profile.Names
	Signature      uint32  // shapes of an operator's inputs, by Profile.Names
	Precision      string  // value of gpu.flop.precision
	Shapes         string  // JSON, as in the file
	Types          string  // JSON, as in the file
	Domain         string  // of an annotation
	Category       string  // of an annotation: the application's own grouping
	Payload        string  // of an annotation: a number
	PayloadText    string  // of an annotation
	TraceParent    string  // W3C: of an annotation its parent; of a device activity the live span that launched it
	Requests       uint32  // that a device activity served together, by Profile.Names: traceparents and blanks
	RequestsLost   int64   // requests that are not among them
	Operator       uint32  // that an activity of a device states, by Profile.Names; FLOPs and Traffic are the activity's
	Modules        uint32  // path of modules around it, by Profile.Names: "jit(step)/layer0"
	MemoryDevice   int64   // of an allocation
	MemoryUsage    int64   // after an allocation
	HasMemoryUsage bool
}
