// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"github.com/otelgpu/otelgpu/semconv"
)

// Precision names the arithmetic whose dense peak a FLOP count is compared with
// (gpu.flop.precision).
type Precision uint8

// Precisions; zero means not stated.
const (
	PrecisionUnset Precision = iota
	FP64
	FP32
	TF32
	FP16
	BF16
	FP8
	FP4
	INT8
)

const Precisions = int(INT8) + 1

var precisionNames = [Precisions]string{"", "fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"}

// String returns the value of gpu.flop.precision; empty when not stated.
func (p Precision) String() string { return nameIn(precisionNames[:], uint8(p)) }

type Work struct {
	Read      int64     // bytes read (gpu.io.read.size)
	Written   int64     // bytes written (gpu.io.write.size)
	Bytes     int64     // bytes moved in all, when the split is not known (gpu.io.size is Bytes + Read + Written)
	Items     int64     // elements processed: tokens, rows, images (gpu.operation.items)
	FLOPs     float64   // floating-point operations, a multiply-add counting 2 (gpu.flop.count)
	Precision Precision // of FLOPs
}

// mostStated and mostFLOPs are the maximum bytes or items and FLOPs of one statement: far more than
// any device does in a section, and few enough for sums of many to be exact or at least finite.
const (
	mostStated = 1 << 53
	mostFLOPs  = 1e30
)

// Wrong reports whether a value is impossible. Such a value would make counters decrease, or be NaN
// forever.
func (w *Work) Wrong() bool {
	return Impossible(w.Read|w.Written|w.Bytes|w.Items) || ImpossibleFLOPs(w.FLOPs) || w.Precision > INT8
}

func Impossible(n int64) bool        { return uint64(n) >= mostStated } // negative ones are above, too
func ImpossibleFLOPs(f float64) bool { return !(f >= 0 && f <= mostFLOPs) }

// Sanitize removes impossible values.
func (w *Work) Sanitize() {
	for _, n := range [...]*int64{&w.Read, &w.Written, &w.Bytes, &w.Items} {
		if Impossible(*n) {
			*n = 0
		}
	}
	if ImpossibleFLOPs(w.FLOPs) {
		w.FLOPs = 0
	}
	if w.Precision > INT8 {
		w.Precision = PrecisionUnset
	}
}

// Add sums work. A stated precision replaces an unstated one.
func (w *Work) Add(o *Work) {
	w.Read += o.Read
	w.Written += o.Written
	w.Bytes += o.Bytes
	w.Items += o.Items
	w.FLOPs += o.FLOPs
	if o.Precision != PrecisionUnset {
		w.Precision = o.Precision
	}
}

func (w *Work) Stated() bool {
	return w.Read != 0 || w.Written != 0 || w.Bytes != 0 || w.Items != 0 || w.FLOPs != 0
}

// Direction is where a copy went (gpu.copy.direction).
type Direction uint8

// Directions; zero means that the section is not a copy, or that its bytes moved over device
// memory.
const (
	DirectionUnset Direction = iota
	HostToDevice
	DeviceToHost
	DeviceToDevice
	PeerToPeer
	HostToHost
	Directions
)

var directionNames = [Directions]string{
	HostToDevice:   semconv.GPUCopyDirectionHostToDevice,
	DeviceToHost:   semconv.GPUCopyDirectionDeviceToHost,
	DeviceToDevice: semconv.GPUCopyDirectionDeviceToDevice,
	PeerToPeer:     semconv.GPUCopyDirectionPeerToPeer,
	HostToHost:     semconv.GPUCopyDirectionHostToHost,
}

// String returns the value of gpu.copy.direction; empty when not stated.
func (d Direction) String() string { return nameIn(directionNames[:], uint8(d)) }

// nameIn returns the i-th name, and empty if missing.
func nameIn(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return ""
}

// HostMemory is the kind of host memory of a copy (gpu.copy.host_memory).
type HostMemory uint8

// Kinds of host memory; zero means not stated.
const (
	MemoryUnset HostMemory = iota
	Pinned                 // page-locked: copies run at the link's rate, concurrently with other work
	Pageable               // copied through a staging buffer
)

var hostMemoryNames = []string{
	Pinned: semconv.GPUCopyHostMemoryPinned, Pageable: semconv.GPUCopyHostMemoryPageable,
}

// String returns the value of gpu.copy.host_memory; empty when not stated.
func (m HostMemory) String() string { return nameIn(hostMemoryNames, uint8(m)) }
