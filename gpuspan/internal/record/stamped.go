// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// Nest is an outermost section with all sections in it, copied out of their slots: the unit of export.
type Nest struct {
	Stream *Stream
	Root   *Record // mostly own
	Own    Record
	Held   []*Record // sections in it, in the order in which they were read
	Step   *Slot     // instead of root: the boundaries of a step
	Late   *Nest     // parent of root's span: a nest that was not waited for any longer
	Around *OpState  // of the outermost section of a root that gets no span; else nil
	Expiry bool      // of a step that the device does not finish
	Kept   bool      // late nests refer to this one

	// goroutine of the emitter, where kept
	Span trace.SpanContext
	Node int32
}

// Put clears a nest whose spans have ended, for the next one.
func (n *Nest) Put(spare *SpareNests) {
	for i, r := range n.Held {
		putRecord(r)
		n.Held[i] = nil
	}
	if n.Root != nil && n.Root != &n.Own {
		putRecord(n.Root)
	}
	held := n.Held[:0]
	if n.Own.clear(); n.Kept || cap(held) > 256 { // one wide nest need not cost memory forever
		held = nil
	}
	if n.Root, n.Held = nil, held; n.Kept {
		return
	}
	n.Stream, n.Step, n.Late, n.Around, n.Expiry = nil, nil, nil, nil, false
	spare.put(n)
}

// Count returns how many records there are: the record of a step's boundary or of the outermost section, and the
// sections in it.
func (n *Nest) Count() int { return 1 + len(n.Held) }

// Record returns the i-th of them.
func (n *Nest) Record(i int) *Record {
	switch {
	case i > 0:
		return n.Held[i-1]
	case n.Step != nil:
		return &n.Step.Rec
	}
	return n.Root
}

// SpareNests are returned from the emitter to the polling thread in batches: sync.Pool would take one at a time from
// another processor.
type SpareNests struct {
	mu   sync.Mutex
	list []*Nest
}

func (s *SpareNests) put(n *Nest) {
	s.mu.Lock()
	if len(s.list) < maxSpare {
		s.list = append(s.list, n)
	}
	s.mu.Unlock()
}

// TakeAll exchanges the list for an empty one.
func (s *SpareNests) TakeAll(empty []*Nest) []*Nest {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.list
	s.list = empty[:0]
	return all
}

var RecordPool = sync.Pool{New: func() any { return new(Record) }}

func putRecord(r *Record) {
	r.clear()
	RecordPool.Put(r)
}

// clear clears a record except its extra, which is empty then, too.
func (r *Record) clear() {
	e := r.Extra
	if e != nil {
		e.reset()
	}
	*r = Record{Claim: Claim{Extra: e}}
}

// maxSpare bounds the memory that is kept after a burst, about 3 MiB.
const maxSpare = MaxInFlight

// plain is an outermost timed section with none in it, in no step, that states nothing except its work, as most do. It
// is passed by value: three processors pass it on, and fetching memory from another processor is most of a section's
// additional cost of reading clocks. A nest takes three times as many cache lines.
type plain struct {
	Times
	Ctx                context.Context
	Op                 *OpState
	Work               work.Work
	HostStart, HostEnd int64 // hostClock
	Occurrence         int64
}

// Stamped waits for the anchor that places it, then for its span. The stamps of a plain section stay with the polling
// thread, in Stream.stamps.
type Stamped struct {
	Nest *Nest // nil: it is plain
	Read int64 // hostClock
	plain
}

// Count returns how many records there are.
func (q *Stamped) Count() int {
	if q.Nest == nil {
		return 1
	}
	return q.Nest.Count()
}

// MaxInFlight bounds the sections of a stream that are read and not yet exported, about 0.5 KiB each. Beyond it
// sections stay in their slots, and sections without a slot are counted as dropped.
const MaxInFlight = 4096
