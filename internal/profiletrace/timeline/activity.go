// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"time"

	"github.com/otelgpu/otelgpu/internal/occupancy"
)

// Class is the class of an activity of the device; a lower class hides the higher ones.
type Class uint8

// Classes.
const (
	Computing Class = iota
	Communicating
	Copying
	Idle       // of claims: the device did nothing
	ClassCount = Idle
)

// Activity is one activity of a device.
type Activity struct {
	Start, End int64
	Class      Class
	Name       uint32 // of the kernel
	Operator   uint32 // that launched it; 0: none
	Shape      uint32 // of the operator's inputs, as a name; 0: not recorded
	In         uint32 // range on the host around the launch; 0: none
	Around     uint32 // annotation or module around the launch; 0: none
	Work       *Work  // of the operator, when this is the first of its activities; nil: not known, or counted already
	Graph      bool   // launched by a graph
	Opaque     bool   // in a compiled region or graph, which hides its operators
	Config     Config
	Filled     float64 // part of the multiprocessors that the kernel's blocks fill at most; 0: not known, 1: all
	Tail       float64 // part of the device that is empty on average, because the last wave of blocks is not full
	Stream     int64
	Inner      uint32 // innermost operator around the launch; 0: none
	InnerStart int64  // its begin
	Tried      bool   // Inner is a frame in which kernels are compared with each other
	Phase      uint32 // outermost annotation around the launch that is neither a step nor numbered; 0: none
	Module     uint32 // in the tree of modules and annotations around the launch; 0: outside
	Backward   bool   // Module is of the operator whose gradient is computed
	Maps       bool   // an elementwise kernel: reads each element of its inputs once, and writes as many
	Moves      Move   // a kernel that moves bytes and computes nothing
	Mover      uint32 // operator that moves bytes in it; 0: the kernel itself states it
	Caller     uint32 // range that requests the move; 0: none
	Role       Role   // in attention that is computed in parts
	Launched   uint64 // launch configuration of a kernel, in any form; 0: not known
	Bytes      int64  // of a copy, or of a collective by the convention of NCCL's tests; 0: not stated
	Direction  string // of a copy
	Memory     string // of the host in a copy
	Group      int64  // ranks of a collective; 0: not stated
	Collective string

	// of the process group of a collective, its identity as a name and its description; 0 and "":
	// not stated
	GroupID     uint32
	GroupName   string
	ElementType string // of a collective; "": not stated

	Sent       int64 // elements, of an all-to-all whose two sides are known
	Received   int64 // likewise
	Step       int32 // the step that launched it, from 1 on; 0: none
	Occurrence int64 // of a collective among others of its kernel that the step launched, from 1 on; 0: there are no steps
}

// Length returns the duration of the activity.
func (a *Activity) Length() time.Duration { return time.Duration(a.End - a.Start) }

// Work is the FLOPs and bytes of an operator, computed from its recorded shapes.
type Work struct {
	FLOPs     float64 // 0: none, as for a copy
	Bytes     float64 // compulsory traffic of device memory; 0: not known
	Precision string  // value of gpu.flop.precision
}

// Claim is a part of a device's time, as a step takes it.
type Claim struct {
	From, To int64
	Class    Class
	Cause    Cause // of idle time
	Name, In uint32
}

// MemoryManaged is the kind of host memory of a page migration.
const MemoryManaged = "managed"

// HostToDevice is the direction of copies from the host.
const HostToDevice = "host_to_device"

// Config is how a kernel was launched. Zero is not known.
type Config struct {
	Registers   int64   // of a thread
	BlocksPerSM float64 // blocks of the grid for each multiprocessor
	Waves       float64 // how many times the grid fills all multiprocessors
	// warps on the multiprocessors ÷ the most that they hold, 0 to 1, estimated from the launch
	Occupancy float64
	Limit     occupancy.Limit // what keeps the occupancy from being higher
}
