// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package ring reads the rings that libotelgpu_capture.so writes; ../../shim/ring.h is the format.
//
// A ring is written by another process, possibly another user's and possibly hostile: nothing in it
// is trusted. Records are copied out by read calls, because a mapping of a file that is truncated
// during a read would end this process. Only the header's page is mapped, for the few words that
// both sides change, and a fault in it is an error.
package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

const (
	magic      = "OTELGPUR"
	version    = 1
	headerSize = 4096 // the part of it that changes
	fullHeader = 8192
	// maxFile bounds the size stated in a header, so that offsets do not overflow: 2 GiB.
	maxFile = 2 << 30
	// chunk is how much is read at once; a multiple of every record size that is accepted.
	chunk = 1 << 20
	// maxNames bounds the texts that are kept of one ring.
	maxNames = 4 << 20
)

// Offsets of the words that change, in the header.
const (
	offReady          = 200
	offHead           = 512
	offContextsHead   = 520
	offNamesUsed      = 528
	offDroppedFull    = 536
	offDroppedBudget  = 544
	offDroppedCUPTI   = 552
	offNamesDropped   = 560
	offState          = 576
	offAnswered       = 580
	offReason         = 584
	offCUPTIVersion   = 592
	offMessage        = 608
	messageSize       = 256
	offTail           = 1024
	offRequest        = 1032
	offKinds          = 1036
	offWindow         = 1040
	offBudget         = 1048
	offCancel         = 1056
	offService        = 4096
	offDevices        = 5248
	maxDevices        = 16
	deviceSize        = 128
	offLimits         = 7304
	limitsSize        = 32
	contextRecordSize = 64
)

// ErrForeign is returned for a file that is not a ring, or one that this version cannot read.
var ErrForeign = errors.New("not a ring of libotelgpu_capture.so")

// ErrBroken is returned for a ring with impossible contents.
var ErrBroken = errors.New("the ring is broken")

// layout is where the parts of a ring are, and how large.
type layout struct {
	recordSize, contextSize uint32
	records, recordsCap     uint64
	contexts, contextsCap   uint64
	names, namesCap         uint64
}

// check rejects what does not fit into a file of that size.
func (l layout) check(header uint32, size uint64) error {
	fits := func(at, n, each uint64) bool { return at <= size && n <= maxFile/each && at+n*each <= size }
	switch {
	case header < fullHeader || header > 1<<20,
		l.recordSize < RecordSize || l.recordSize > 4096 || l.recordSize%8 != 0,
		l.contextSize < contextRecordSize || l.contextSize > 4096,
		l.recordsCap == 0 || l.recordsCap&(l.recordsCap-1) != 0,
		l.contextsCap == 0,
		!fits(l.records, l.recordsCap, uint64(l.recordSize)),
		!fits(l.contexts, l.contextsCap, uint64(l.contextSize)),
		!fits(l.names, l.namesCap, 1),
		l.records < uint64(header) || l.contexts < uint64(header) || l.names < uint64(header):
		return fmt.Errorf("%w: its layout exceeds its size", ErrBroken)
	}
	return nil
}

// Kind is the kind of a record.
type Kind uint8

// Kinds of record; the values are part of the format.
const (
	Kernel      Kind = 1
	Copy        Kind = 2
	Memset      Kind = 3
	Context     Kind = 5 // Correlation belongs to the context of number A
	WindowBegin Kind = 6 // Start: CLOCK_MONOTONIC, End: CLOCK_REALTIME, A: CUPTI's clock, B: the request
	WindowEnd   Kind = 7
	Call        Kind = 8 // a call of CUDA on the host, of the thread Thread
)

// Kinds of record that a window requests.
const (
	KindKernel uint32 = 1 << iota
	KindCopy
	KindMemset
	_ // CUPTI's records of whole graphs crash processes that have instantiated a graph before
	KindContext
	KindCall
)

// RecordSize is the length of a record as this package knows it, in bytes; a newer writer's may be
// longer.
const RecordSize = 96

// MaxLinks bounds the requests of one push.
const MaxLinks = 128

// NoName is the number of a name for which there was no room.
const NoName = math.MaxUint32

// Record is the bytes of one record. Times are ns of the clock that WindowBegin and WindowEnd
// relate to others.
type Record []byte

func (r Record) u32(at int) uint32 { return binary.LittleEndian.Uint32(r[at:]) }
func (r Record) u64(at int) uint64 { return binary.LittleEndian.Uint64(r[at:]) }

// Kind returns the kind of the record.
func (r Record) Kind() Kind { return Kind(r[0]) }

// CopyKinds returns CUPTI's kinds of a copy, of the memory that is read and of that which is
// written.
func (r Record) CopyKinds() (of, source, target int64) { return int64(r[1]), int64(r[2]), int64(r[3]) }

// Device returns CUDA's ordinal in the process.
func (r Record) Device() uint32 { return r.u32(4) }

// Thread returns the operating system's ID of the thread of a call.
func (r Record) Thread() uint32 { return r.u32(8) }

// Stream returns CUPTI's number of the stream.
func (r Record) Stream() uint32 { return r.u32(12) }

// Correlation ties what one launch did together.
func (r Record) Correlation() uint32 { return r.u32(16) }

// Name returns the number of the name, for Ring.Name.
func (r Record) Name() uint32 { return r.u32(20) }

// Start returns the start in ns.
func (r Record) Start() uint64 { return r.u64(24) }

// End returns the end in ns.
func (r Record) End() uint64 { return r.u64(32) }

// A depends on the kind: bytes of a copy or memset, number of a context, CUPTI's clock of a
// window's mark.
func (r Record) A() uint64 { return r.u64(40) }

// B depends on the kind: graph node of a kernel or copy, request of a window's mark.
func (r Record) B() uint64 { return r.u64(48) }

// Grid returns how many blocks a kernel has in each dimension.
func (r Record) Grid() [3]uint32 { return [3]uint32{r.u32(56), r.u32(60), r.u32(64)} }

// Block returns how many threads a block has in each dimension.
func (r Record) Block() [3]uint32 { return [3]uint32{r.u32(68), r.u32(72), r.u32(76)} }

// SharedMemory returns a block's, static and dynamic, in bytes.
func (r Record) SharedMemory() uint64 { return uint64(r.u32(80)) + uint64(r.u32(84)) }

// Registers returns how many a thread of a kernel uses.
func (r Record) Registers() uint16 { return binary.LittleEndian.Uint16(r[88:]) }

// Pushed is a context that the application stated for the launches of one of its threads.
type Pushed struct {
	TraceID [16]byte // zero: no span
	SpanID  [8]byte
	Flags   byte
	Thread  uint32
	// The contexts of the numbers that follow are requests that the launches served together;
	// LinksLost more were pushed and not kept.
	Links, LinksLost uint32
}
