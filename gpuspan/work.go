// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import "github.com/otelgpu/otelgpu/gpuspan/internal/engine"

// Work is what a section moved and computed, as the caller declares it. Zero means not stated, never "none". Values
// that cannot be (negative ones, FLOPs that are no finite number, unknown precisions) count as not stated and as
// misuse.
type Work struct {
	Read      int64     // bytes read (gpu.io.read.size)
	Written   int64     // bytes written (gpu.io.write.size)
	Bytes     int64     // bytes moved in all, when the split is not known (gpu.io.size is Bytes + Read + Written)
	Items     int64     // elements processed: tokens, rows, images (gpu.operation.items)
	FLOPs     float64   // floating-point operations, a multiply-add counting 2 (gpu.flop.count)
	Precision Precision // of FLOPs
}

// Precision names the arithmetic whose dense peak a FLOP count is compared with (gpu.flop.precision).
type Precision = engine.Precision

// Precisions; zero means not stated.
const (
	PrecisionUnset = engine.PrecisionUnset
	FP64           = engine.FP64
	FP32           = engine.FP32
	TF32           = engine.TF32
	FP16           = engine.FP16
	BF16           = engine.BF16
	FP8            = engine.FP8
	FP4            = engine.FP4
	INT8           = engine.INT8
)

// Direction is where a copy went (gpu.copy.direction).
type Direction = engine.Direction

// Directions of copies.
const (
	HostToDevice   = engine.HostToDevice
	DeviceToHost   = engine.DeviceToHost
	DeviceToDevice = engine.DeviceToDevice
	PeerToPeer     = engine.PeerToPeer
	HostToHost     = engine.HostToHost
)

// HostMemory is the kind of host memory of a copy (gpu.copy.host_memory).
type HostMemory = engine.HostMemory

// Kinds of host memory; MemoryUnset is for copies that touch none.
const (
	MemoryUnset = engine.MemoryUnset
	Pinned      = engine.Pinned   // page-locked: copies run at the link's rate and beside other work
	Pageable    = engine.Pageable // copied through a staging buffer
)
