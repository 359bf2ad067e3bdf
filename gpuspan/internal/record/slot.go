// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/elapsed"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// slotState is who owns a slot.
//
//	free ──begin──► open ──end──► pending ──polling thread──► free
//	                                 └──► retained (outermost section whose inner ones are not all resolved) ──► free
//
// Free and open slots belong to the holder of the stream's mutex; pending and retained ones to the polling thread.
type slotState uint8

const (
	SlotFree slotState = iota
	SlotOpen
	SlotPending
	SlotHeld
)

// Slot holds one section of a stream. It owns two events permanently. The fields that Start and End access are first
// and adjacent, in three cache lines, because each line that has to be fetched from the polling thread's processor adds
// to their time.
type Slot struct {
	Stream *Stream
	State  slotState

	// refs keeps the slot from being reused: 1 for itself, also while it is free, 1 for each unresolved section below
	// an outermost one, 1 for a following step that starts at this slot's end event.
	Refs atomic.Int32

	Start backend.Call // arguments of the two records; the slot lives on the heap, so backends need no allocation
	End   backend.Call

	Rec Record

	// polling thread
	Held     []*Record // resolved sections below this one
	Nest     *Nest     // the nest of the section, if it was created before all sections in it were resolved; nil: not yet
	Resolved int64     // host time at which the section resolved
	Expired  bool      // reported, although the device has not finished it

	_ uint64 // pads to whole cache lines
}

type Flags uint16

const (
	FlagNone     Flags = 0
	FlagHost     Flags = 1 << iota // no events: host times only
	FlagStarted                    // the start event was recorded
	FlagStep                       // boundary of a step
	FlagMemory                     // memory use was read at start
	FlagGiven                      // GPU duration given by the caller
	FlagChunk                      // gpu.chunk.index is set
	FlagWait                       // End waits for the device
	FlagLent                       // foreign code records the events
	flagRecorded                   // and it has confirmed that it did
	flagExtra                      // extra holds something

	FlagsPlain = FlagStarted | FlagWait // flags of a plain section
)

// Record is one section: the caller's statements and the result. It is copied out of the slot when the section
// resolves.
type Record struct {
	Claim
	Result
}

// Claim is the part that callers write. In the slot of a plain section that was read it stays unchanged, except for
// ctx, until the slot is taken again: the next caller has to fetch every cache line that the polling thread writes.
type Claim struct {
	Ctx    context.Context
	ID     uint64 // of the section: unique in the process while it is needed; 0: none
	Parent uint64 // of the section around it; 0: none
	Root   *Slot  // the outermost section's slot
	Depth  int32
	Flags  Flags
	Status TimingStatus
	Phase  int8 // index of the step's phase plus 1; 0: none

	Op   *OpState
	Step *StepState

	StartEvent         backend.Event // own, or the end event of the step before
	HostStart, HostEnd int64         // hostClock
	Annotation         uint64
	Work               work.Work
	Extra              *Extra

	Chunk, Chunks int32
	MemoryStart   int64
	MemoryEnd     int64
	Borrowed      *Slot // whose event startEvent is
}

// Result is the polling thread's, later the emitter's. The result in a slot stays empty if the record is copied out as
// soon as it is read.
type Result struct {
	Times
	Stamps      clockmap.Stamps // of the device; placed when the next anchor exists
	Occurrence  int64
	GPU         float64 // GPU duration in ns; valid when timed
	Timed       bool    // gpu is known
	Rate        float64 // host ns per GPU ns
	Device      *Device // that timed it
	Span        trace.SpanContext
	ChildFLOPs  float64
	ChildWork   work.Work
	ChildCopied *[work.Directions]int64 // bytes that chunks moved in another direction than the section; nil: none
	ChildChunks int32
	Summed      bool // work is the sum of chunks
	Node        int32
	Done        bool    // resolved
	HeldOn      *Stream // of a record that was taken out of its slot
}

type Times struct {
	StartNs, EndNs int64 // wall clock
	ErrorNs        int64 // that both are off by at most
	Offset         int64 // of the wall clock, for all times of the section
}

// Extra holds what few sections have. A slot keeps its extra for reuse.
type Extra struct {
	Attrs  []attribute.KeyValue
	Links  []trace.Link
	Shares []int64 // items of each link; 0: not stated
	Batch  int     // requests that were linked to, also beyond maxLinks
	Kept   int     // number of links on the span
	Items  int64   // of all of them
	Copied [work.Directions]int64
	Moved  bool // some copied is set
	Stack  []uintptr

	Checksum uint64 // of the output, when summed
	Summed   bool
	IDs      spanid.IDs // reserved for the span
	Elapsed  *elapsed.Value
	Error    string // why the section failed; empty: it did not
}

// more returns the record's extra for modification. The stream's mutex must be held.
func (r *Record) more() *Extra {
	if r.Extra == nil {
		r.Extra = &Extra{}
	}
	r.Flags |= flagExtra
	return r.Extra
}

func (e *Extra) reset() {
	e.Elapsed.Set(0, false) // if nothing was measured
	e.Elapsed = nil
	clear(e.Attrs)
	clear(e.Links)
	e.Checksum, e.Summed, e.Error = 0, false, ""
	e.IDs, e.Batch, e.Kept, e.Items = spanid.IDs{}, 0, 0, 0
	e.Attrs, e.Links, e.Shares, e.Stack = e.Attrs[:0], e.Links[:0], e.Shares[:0], e.Stack[:0]
	if e.Moved {
		e.Copied, e.Moved = [work.Directions]int64{}, false
	}
}

// TimingStatus is gpu.timing.status.
type TimingStatus uint8

const (
	StatusTimed TimingStatus = iota
	StatusCaptured
	statusDropped
	StatusDeviceError
	StatusTimeout
	StatusClockJump
	timingStatuses
)

func (sl *Slot) Unchain() {
	if sl.Refs.Add(-1) > 0 {
		return
	}
	sl.Refs.Store(1) // as in free slots
	s := sl.Stream
	s.Mu.Lock()
	s.Release(sl)
	s.Mu.Unlock()
}

func (sl *Slot) Hold() {
	sl.Stream.Mu.Lock()
	sl.State = SlotHeld
	sl.Stream.Mu.Unlock()
}

// Take copies a slot's record. The record keeps the slot's extra, the slot gets the record's empty one. The stream's
// mutex must be held, unless the section is outermost and contains no other.
func (r *Record) Take(sl *Slot) {
	spare := r.Extra
	*r = sl.Rec
	sl.Rec.Extra = spare
}

// TooOld reports whether a point of the host's axis is more than d ago.
func TooOld(then, now int64, d time.Duration) bool { return now-then > int64(d) }

// JustEnded is the start of a section of Record that ended at the call.
const JustEnded = math.MinInt64
