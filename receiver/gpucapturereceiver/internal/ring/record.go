// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package ring reads the rings that libotelgpu_capture.so writes; ../../shim/ring.h is the format.
//
// A ring is written by another process, maybe another user's and maybe hostile: nothing in it is believed. Records are
// copied out by read calls, for a mapping of a file that is cut short under the reader would end this process. Only the
// header's page is mapped, for the few words that both sides change, and a fault in it is an error.
package ring

import (
	"encoding/binary"
	"math"
)

// Kind says what a record stands for.
type Kind uint8

// Kinds of record; the values are of the format.
const (
	Kernel      Kind = 1
	Copy        Kind = 2
	Memset      Kind = 3
	Graph       Kind = 4 // all work of one launch of a graph
	Context     Kind = 5 // Correlation belongs to the context of number A
	WindowBegin Kind = 6 // Start: CLOCK_MONOTONIC, End: CLOCK_REALTIME, A: CUPTI's clock, B: the request
	WindowEnd   Kind = 7
)

// Kinds of record that a window asks for.
const (
	KindKernel uint32 = 1 << iota
	KindCopy
	KindMemset
	KindGraph
	KindContext
)

// RecordSize is the length of a record as this package knows it, in bytes; a newer writer's may be longer.
const RecordSize = 96

// NoName is the number of a name that found no room.
const NoName = math.MaxUint32

// Record is the bytes of one record. Times are ns of the clock that WindowBegin and WindowEnd relate to others.
type Record []byte

func (r Record) u32(at int) uint32 { return binary.LittleEndian.Uint32(r[at:]) }
func (r Record) u64(at int) uint64 { return binary.LittleEndian.Uint64(r[at:]) }

// Kind is what the record stands for.
func (r Record) Kind() Kind { return Kind(r[0]) }

// CopyKind is CUPTI's kind of a copy; SourceKind and TargetKind are its kinds of memory.
func (r Record) CopyKind() uint8   { return r[1] }
func (r Record) SourceKind() uint8 { return r[2] }
func (r Record) TargetKind() uint8 { return r[3] }

// Device, Context, Stream and Correlation are CUPTI's numbers.
func (r Record) Device() uint32      { return r.u32(4) }
func (r Record) Context() uint32     { return r.u32(8) }
func (r Record) Stream() uint32      { return r.u32(12) }
func (r Record) Correlation() uint32 { return r.u32(16) }

// Name is the number of the name, for Ring.Name.
func (r Record) Name() uint32 { return r.u32(20) }

// Start and End are ns.
func (r Record) Start() uint64 { return r.u64(24) }
func (r Record) End() uint64   { return r.u64(32) }

// A and B depend on the kind: bytes of a copy, number of a context, graph, graph node.
func (r Record) A() uint64 { return r.u64(40) }
func (r Record) B() uint64 { return r.u64(48) }

// Grid, Block, SharedMemory (static and dynamic, bytes) and Registers are a kernel's launch parameters.
func (r Record) Grid() [3]uint32  { return [3]uint32{r.u32(56), r.u32(60), r.u32(64)} }
func (r Record) Block() [3]uint32 { return [3]uint32{r.u32(68), r.u32(72), r.u32(76)} }
func (r Record) SharedMemory() uint64 {
	return uint64(r.u32(80)) + uint64(r.u32(84))
}
func (r Record) Registers() uint16 { return binary.LittleEndian.Uint16(r[88:]) }

// Pushed is a context that the application stated for the launches of one of its threads.
type Pushed struct {
	TraceID [16]byte // zero: no span
	SpanID  [8]byte
	Flags   byte
	Thread  uint32
	At      uint64 // CLOCK_MONOTONIC, ns
}
