// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

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
// Free and open slots belong to the holder of the stream's mutex; pending and retained ones to the
// polling thread.
type slotState uint8

const (
	slotFree slotState = iota
	slotOpen
	SlotPending
	SlotHeld
)

// Slot holds one section of a stream. It owns two events permanently. The fields that Start and End
// access are first and adjacent, in three cache lines, because each line that has to be fetched
// from the polling thread's processor adds to their time.
type Slot struct {
	stream *Stream
	state  slotState

	// refs keeps the slot from being reused: 1 for itself, also while it is free, 1 for each
	// unresolved section below an outermost one, 1 for a following step that starts at this slot's
	// end event.
	refs atomic.Int32

	start backend.Call // arguments of the two records; the slot lives on the heap, so backends need no allocation
	end   backend.Call

	Rec Record

	// polling thread
	held     []*Record // resolved sections below this one
	nest     *Nest     // the nest of the section, if it was created before all sections in it were resolved; nil: not yet
	resolved int64     // host time at which the section resolved
	expired  bool      // reported, although the device has not finished it

	_ uint64 // pads to whole cache lines
}

type Flags uint16

const (
	FlagNone     Flags = 0
	FlagHost     Flags = 1 << iota // no events: host times only
	FlagStarted                    // the start event was recorded
	flagStep                       // boundary of a step
	FlagMemory                     // memory use was read at start
	FlagGiven                      // GPU duration given by the caller
	FlagChunk                      // gpu.chunk.index is set
	FlagWait                       // End waits for the device
	flagLent                       // foreign code records the events
	flagRecorded                   // and it has confirmed that it did
	flagExtra                      // extra holds something

	flagsPlain = FlagStarted | FlagWait // flags of a plain section
)

// Record is one section: the caller's statements and the result. It is copied out of the slot when
// the section resolves, and then belongs to whom it was passed on to. In the slot of a plain
// section that was read the caller's part stays unchanged, except for ctx, until the slot is taken
// again: the next caller has to fetch every cache line that the polling thread writes.
type Record struct {
	// written by callers
	Ctx    context.Context
	ID     uint64 // of the section: unique in the process while it is needed; 0: none
	Parent uint64 // of the section around it; 0: none
	root   *Slot  // the outermost section's slot
	Depth  int32
	Flags  Flags
	Status TimingStatus
	Phase  int8 // index of the step's phase plus 1; 0: none

	Op   *OpState
	Step *StepState

	startEvent         backend.Event // own, or the end event of the step before
	HostStart, HostEnd int64         // hostClock
	annotation         uint64
	Work               work.Work
	Extra              *Extra

	Chunk, Chunks int32
	MemoryStart   int64
	MemoryEnd     int64
	borrowed      *Slot // whose event startEvent is

	// written by the polling thread, later by the exporter; in a slot it stays empty if the record
	// is copied out as soon as it is read
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
	done        bool    // resolved
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
	statusTimeout
	statusClockJump
	timingStatuses
)

// String returns the value of gpu.timing.status.
func (s TimingStatus) String() string { return statusNames[s] }

func (sl *Slot) unchain() {
	if sl.refs.Add(-1) > 0 {
		return
	}
	sl.refs.Store(1) // as in free slots
	s := sl.stream
	s.Mu.Lock()
	s.release(sl)
	s.Mu.Unlock()
}

func (sl *Slot) hold() {
	sl.stream.Mu.Lock()
	sl.state = SlotHeld
	sl.stream.Mu.Unlock()
}

// take copies a slot's record. The record keeps the slot's extra, the slot gets the record's empty
// one. The stream's mutex must be held, unless the section is outermost and contains no other.
func (r *Record) take(sl *Slot) {
	spare := r.Extra
	*r = sl.Rec
	sl.Rec.Extra = spare
}

// TooOld reports whether a point of the host's axis is more than d ago.
func TooOld(then, now int64, d time.Duration) bool { return now-then > int64(d) }

// justEnded is the start of a section of Record that ended at the call.
const justEnded = math.MinInt64

// StepState is the part of a step that its sections need.
type StepState struct {
	Core      *Core
	Owner     any             // the step; of package tree
	Ctx       context.Context // of the step: the parent of its outermost sections
	Timed     bool            // otherwise its sections only count
	Recorded  bool            // otherwise its sections only keep events warm, and nothing is reported of them
	Device    *Device         // on which the boundaries are timed
	around    *StepState      // to which the loop's stream returns; under the stream's mutex
	Open      atomic.Int32    // sections that are not resolved
	Running   atomic.Int32    // unresolved sections that have not ended
	Lost      atomic.Int32    // sections without a slot
	Cancelled atomic.Bool     // the iteration is not a step
}

type stepKey struct{}

// WithStep returns the context of a step's body.
func WithStep(ctx context.Context, st *StepState) context.Context {
	return context.WithValue(ctx, stepKey{}, st)
}

// stepOf returns the step that a section belongs to: its context's, otherwise the one that runs on
// its stream.
func stepOf(ctx context.Context, p *Core, s *Stream) *StepState {
	if ctx != nil {
		if st, ok := ctx.Value(stepKey{}).(*StepState); ok && st.Core == p {
			return st
		}
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.step
}

// SetStep makes st the step of sections on the stream that have none in their context. It may start
// within another step, as an evaluation's steps do within a training step.
func (s *Stream) SetStep(st *StepState) {
	s.Mu.Lock()
	st.around, s.step = s.step, st
	s.Mu.Unlock()
}

// ClearStep returns the stream to the step around st.
func (s *Stream) ClearStep(st *StepState) {
	s.Mu.Lock()
	for at := &s.step; *at != nil; at = &(*at).around {
		if *at == st {
			*at, st.around = st.around, nil
			break
		}
	}
	s.Mu.Unlock()
}
