// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// Work is what a section moved and computed, as the caller declares it. Zero means not stated.
// Impossible values (negative ones, 2^53 and more, FLOPs that are NaN or above 1e30, unknown
// precisions) are ignored and counted as misuse.
type Work struct {
	Read      int64     // bytes read (gpu.io.read.size)
	Written   int64     // bytes written (gpu.io.write.size)
	Bytes     int64     // bytes moved in all, when the split is not known (gpu.io.size is Bytes + Read + Written)
	Items     int64     // elements processed: tokens, rows, images (gpu.operation.items)
	FLOPs     float64   // floating-point operations, a multiply-add counting 2 (gpu.flop.count)
	Precision Precision // of FLOPs
}

// internal returns the work as the packages below know it.
func (w *Work) internal() work.Work {
	return work.Work{
		Read: w.Read, Written: w.Written, Bytes: w.Bytes, Items: w.Items, FLOPs: w.FLOPs,
		Precision: work.Precision(w.Precision),
	}
}

// Precision is the arithmetic precision whose dense peak a FLOP count is compared with
// (gpu.flop.precision).
type Precision uint8

// Precisions; zero means not stated.
const (
	PrecisionUnset = Precision(work.PrecisionUnset) // not stated
	FP64           = Precision(work.FP64)           // IEEE double precision
	FP32           = Precision(work.FP32)           // IEEE single precision
	TF32           = Precision(work.TF32)           // TensorFloat-32: single precision with rounded operands
	FP16           = Precision(work.FP16)           // IEEE half precision
	BF16           = Precision(work.BF16)           // bfloat16
	FP8            = Precision(work.FP8)            // any 8-bit floating-point format
	FP4            = Precision(work.FP4)            // any 4-bit floating-point format
	INT8           = Precision(work.INT8)           // 8-bit integers; FLOPs are then integer operations
)

// String returns the value of gpu.flop.precision; empty when not stated.
func (p Precision) String() string { return work.Precision(p).String() }

// Direction is the direction of a copy (gpu.copy.direction).
type Direction uint8

// Directions of copies; zero means not stated.
const (
	HostToDevice   = Direction(work.HostToDevice)
	DeviceToHost   = Direction(work.DeviceToHost)
	DeviceToDevice = Direction(work.DeviceToDevice) // within one device
	PeerToPeer     = Direction(work.PeerToPeer)     // between two devices
	HostToHost     = Direction(work.HostToHost)
)

// String returns the value of gpu.copy.direction; empty when not stated.
func (d Direction) String() string { return work.Direction(d).String() }

// HostMemory is the kind of host memory of a copy (gpu.copy.host_memory).
type HostMemory uint8

// Kinds of host memory; MemoryUnset is for copies that involve none.
const (
	MemoryUnset = HostMemory(work.MemoryUnset) // not stated
	Pinned      = HostMemory(work.Pinned)      // page-locked: copies run at the link's rate, concurrently with other work
	Pageable    = HostMemory(work.Pageable)    // copied through a staging buffer
)

// String returns the value of gpu.copy.host_memory; empty when not stated.
func (m HostMemory) String() string { return work.HostMemory(m).String() }
