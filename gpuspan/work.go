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

// Precision is the arithmetic precision whose dense peak a FLOP count is compared with
// (gpu.flop.precision, which its String method returns).
type Precision = work.Precision

// Precisions; zero means not stated.
const (
	PrecisionUnset = work.PrecisionUnset // not stated
	FP64           = work.FP64           // IEEE double precision
	FP32           = work.FP32           // IEEE single precision
	TF32           = work.TF32           // TensorFloat-32: single precision with rounded operands
	FP16           = work.FP16           // IEEE half precision
	BF16           = work.BF16           // bfloat16
	FP8            = work.FP8            // any 8-bit floating-point format
	FP4            = work.FP4            // any 4-bit floating-point format
	INT8           = work.INT8           // 8-bit integers; FLOPs are then integer operations
)

// Direction is the direction of a copy (gpu.copy.direction, which its String method returns).
type Direction = work.Direction

// Directions of copies; zero means not stated.
const (
	HostToDevice   = work.HostToDevice
	DeviceToHost   = work.DeviceToHost
	DeviceToDevice = work.DeviceToDevice // within one device
	PeerToPeer     = work.PeerToPeer     // between two devices
	HostToHost     = work.HostToHost
)

// HostMemory is the kind of host memory of a copy (gpu.copy.host_memory, which its String method
// returns).
type HostMemory = work.HostMemory

// Kinds of host memory; MemoryUnset is for copies that involve none.
const (
	MemoryUnset = work.MemoryUnset // not stated
	Pinned      = work.Pinned      // page-locked: copies run at the link's rate, concurrently with other work
	Pageable    = work.Pageable    // copied through a staging buffer
)
