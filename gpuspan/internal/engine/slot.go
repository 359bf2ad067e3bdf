// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
)

// slotState is who owns a slot.
//
//	free ──begin──► open ──end──► pending ──polling thread──► free
//	                                 └──► held (outermost section whose inner ones are not all resolved) ──► free
//
// Free and open slots belong to whoever holds the stream's mutex; pending and held ones to the polling thread.
type slotState uint8

const (
	slotFree slotState = iota
	slotOpen
	slotPending
	slotHeld
)

// slot is the place of one section on its stream. It owns two events for life. What Start and End touch comes first and
// together, in three lines of the cache, for each that they have to fetch from the polling thread's processor is a part
// of their time.
type slot struct {
	stream *Stream
	index  uint16
	state  slotState

	// refs keeps the slot from being reused: 1 for itself, also while it is free, 1 for each unresolved section below
	// an outermost one, 1 for a following step that starts at this slot's end event.
	refs atomic.Int32

	start backend.Call // arguments of the two records; the slot lives on the heap, so backends need no allocation
	end   backend.Call

	rec record

	// polling thread
	held     []*record // resolved sections below this one
	nest     *nest     // what was made of the section before all sections in it were resolved; nil: nothing yet
	resolved int64     // host time at which the section resolved
	expired  bool      // reported, though the device has not finished it

	_ uint64 // to whole lines of the cache
}

type recordFlags uint16

const (
	flagNone     recordFlags = 0
	flagHost     recordFlags = 1 << iota // no events: host times only
	flagStarted                          // the start event was recorded
	flagStep                             // boundary of a step
	flagMemory                           // memory use was read at start
	flagGiven                            // GPU duration given by the caller
	flagChunk                            // gpu.chunk.index is set
	flagWait                             // End waits for the device
	flagLent                             // foreign code records the events
	flagRecorded                         // and has said that it did
	flagExtra                            // extra holds something

	flagsPlain = flagStarted | flagWait // those of a plain section
)

// record is what is known of one section: what callers said, and what came of it. It is copied out of the slot when the
// section resolves.
type record struct {
	claim
	result
}

// claim is what callers write. In the slot of a plain section that was read it stays as it was, but for ctx, until the
// slot is taken again: what the polling thread writes, the next caller has to fetch.
type claim struct {
	ctx    context.Context
	id     uint64 // of the section: unique in the process while it matters; 0: none
	parent uint64 // of the section around it; 0: none
	root   *slot  // the outermost section's slot
	depth  int32
	flags  recordFlags
	status timingStatus
	phase  int8 // index of the step's phase plus 1; 0: none

	op   *opState
	step *Step

	startEvent         backend.Event // own, or the end event of the step before
	hostStart, hostEnd int64         // hostClock
	annotation         uint64
	work               Work
	extra              *extra

	chunk, chunks int32
	memoryStart   int64
	memoryEnd     int64
	borrowed      *slot // whose event startEvent is
}

// result is the polling thread's, later the emitter's. That of a slot stays empty where the record is copied out as
// soon as it is read.
type result struct {
	times
	stamps      clockmap.Stamps // of the device; placed when the next anchor is there
	occurrence  int64
	gpu         float64 // GPU duration in ns; valid when timed
	timed       bool    // gpu is known
	rate        float64 // host ns per GPU ns
	device      *device // that timed it
	span        trace.SpanContext
	childFLOPs  float64
	childWork   Work
	childCopied *[directions]int64 // bytes of chunks that moved another way than the section's own; nil: none
	childChunks int32
	summed      bool // work is that of chunks
	node        int32
	done        bool    // resolved
	heldOn      *Stream // of a record that was taken out of its slot
}

type times struct {
	startNs, endNs int64 // wall clock
	errorNs        int64 // that both are off by at most
	offset         int64 // of the wall clock, for all times of the section
}

// extra holds what few sections have. A slot keeps its extra for reuse.
type extra struct {
	attrs  []attribute.KeyValue
	links  []trace.Link
	shares []int64 // items of each link; 0: not stated
	batch  int     // requests that were linked to, also beyond maxLinks
	kept   int     // links that the span has
	items  int64   // of all of them
	copied [directions]int64
	moved  bool // some copied is set
	stack  []uintptr

	checksum uint64 // of the output, when summed
	summed   bool
	ids      spanIDs // reserved for the span
	elapsed  *Elapsed
}

// more is the record's extra, to be changed. The stream's mutex must be held.
func (r *record) more() *extra {
	if r.extra == nil {
		r.extra = &extra{}
	}
	r.flags |= flagExtra
	return r.extra
}

func (e *extra) reset() {
	e.elapsed.set(0, false) // where nothing was measured
	e.elapsed = nil
	clear(e.attrs)
	clear(e.links)
	e.checksum, e.summed = 0, false
	e.ids, e.batch, e.kept, e.items = spanIDs{}, 0, 0, 0
	e.attrs, e.links, e.shares, e.stack = e.attrs[:0], e.links[:0], e.shares[:0], e.stack[:0]
	if e.moved {
		e.copied, e.moved = [directions]int64{}, false
	}
}

// timingStatus is gpu.timing.status.
type timingStatus uint8

const (
	statusTimed timingStatus = iota
	statusCaptured
	statusDropped
	statusDeviceError
	statusTimeout
	timingStatuses
)
