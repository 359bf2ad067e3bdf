// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Stream is gpuspan.Stream. Sections of one stream contend for its mutex; sections of different
// streams share nothing. The mutex guards all that changes and is held around every record, so that
// the order of the queue is the order on the device. It is in one cache line with what it guards.
type Stream struct {
	ID      int // gpu.stream.id
	label   string
	asked   string               // name as registered; may be empty
	legacy  bool                 // the legacy stream of context
	foreign bool                 // the handle stays with foreign code, which records events of context
	Attrs   []attribute.KeyValue // identity and stream, on each span
	sync    settings.SyncMode

	openNamed atomic.Int32 // len(named)

	Core    *Core
	backend backend.Backend
	handle  backend.StreamHandle
	Device  *Device // nil: host times only
	context backend.Context
	capture bool // query before each record
	bound   bool // records need the device's context made current
	Host    bool // no events: there is no device, or the stream was refused

	syncing atomic.Int32 // callers of End that wait for the device

	Mu      sync.Mutex
	failed  backend.Status // not StatusOK: the stream is retired
	closed  bool
	Slots   []*Slot     // all; they do not move, because sections refer to them
	Free    []*Slot     // last in first out: a warm slot is in the cache
	pending ring        // ended slots, in the order of their end events, which is the order of completion
	lastID  uint64      // of a section; begins at the stream's number in its upper 24 bits
	crowd   int         // number of pending slots at which the polling thread is woken, even if it has just read
	read    uint64      // sections that ended and were read back
	back    []*Slot     // open slots that were taken back
	lost    int64       // sections that found no free slot
	step    *StepState  // that sections without a step in their context belong to
	named   []namedOpen // open sections of StartNamed

	saidHang uint64 // section already reported by the watchdog

	Public public // of package gpuspan

	// polling thread
	saidFailed  bool
	saidFull    bool
	fixed       bool // the driver refused more events
	eventsFreed bool
	Unplaced    []Stamped         // read, waiting for the anchor that places them
	Stamps      []clockmap.Stamps // of each of unplaced, where it is plain

	InFlight atomic.Int32 // records in unplaced, emits and emitting
	emitMu   sync.Mutex
	Emits    []Stamped // placed, waiting to become spans

	// goroutine of the exporter
	Emitting []Stamped // was emits; emitting[emitted:] are still to become spans
	emitted  int
}

// moreSlots returns how many slots the stream needs in addition to those it has: as many again, up
// to Settings.MostSlots, if half of them are pending after they have been read, or none is free.
// lost is how many sections found none so far.
func (s *Stream) moreSlots() (more int, lost int64) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	n := len(s.Slots)
	if !s.closed && (2*s.pending.size >= n || len(s.Free) == 0) {
		more = min(n, s.Core.Cfg.MostSlots()-n)
	}
	return more, s.lost
}

// addSlots adds n slots. events has two for each, or is nil.
func (s *Stream) addSlots(n int, events []backend.Event) {
	slots := make([]Slot, n)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for i := range slots {
		sl := &slots[n-1-i]
		sl.stream = s
		sl.refs.Store(1)
		if events != nil {
			sl.start.Args = [2]uintptr{uintptr(events[2*i]), s.handle}
			sl.end.Args = [2]uintptr{uintptr(events[2*i+1]), s.handle}
		}
		s.Slots = append(s.Slots, sl)
		s.Free = append(s.Free, sl)
	}
	s.Free = slices.Grow(s.Free, len(s.Slots)-len(s.Free)) // Release must not allocate
	s.pending.grow(len(s.Slots))
	s.Looked()
}

func (s *Stream) isClosed() bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.closed
}

// Next returns the next placed section that was read by then, for the exporter; nil: there is none.
func (s *Stream) Next(until int64) *Stamped {
	if s.emitted == len(s.Emitting) {
		s.emitMu.Lock()
		s.Emitting, s.Emits, s.emitted = s.Emits, s.Emitting[:0], 0
		s.emitMu.Unlock()
	}
	if s.emitted == len(s.Emitting) || s.Emitting[s.emitted].Read > until {
		return nil
	}
	s.emitted++
	return &s.Emitting[s.emitted-1]
}

// Exported states that n records of the stream have become spans.
func (s *Stream) Exported(n int) {
	if n > 0 && s.InFlight.Add(-int32(n)) == 0 && s.isClosed() {
		s.Core.wake() // it can be dropped
	}
}

// ring is a FIFO of slots; a stream has never more pending than slots.
type ring struct {
	buf        []*Slot
	head, size int
}

func (r *ring) push(sl *Slot) {
	r.buf[r.index(r.size)] = sl
	r.size++
}

// grow allocates n slots.
func (r *ring) grow(n int) {
	buf := make([]*Slot, n)
	for i := range r.size {
		buf[i] = r.At(i)
	}
	r.buf, r.head = buf, 0
}

func (r *ring) pop() {
	r.head = r.index(1)
	r.size--
}

func (r *ring) At(i int) *Slot { return r.buf[r.index(i)] }

// index returns the position of the i-th element. It compares instead of dividing, because a
// division would cost more than the rest of push.
func (r *ring) index(i int) int {
	if i += r.head; i >= len(r.buf) {
		i -= len(r.buf)
	}
	return i
}

func (s *Stream) Name() string {
	if s == nil {
		return ""
	}
	return s.label
}

func (s *Stream) DeviceTimed() bool {
	if s.Host {
		return false
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.failed == backend.StatusOK && !s.closed
}

// failedStatus returns the status with which the device failed on the stream, else StatusOK.
func (s *Stream) failedStatus() backend.Status {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.failed
}

// Filled returns how many slots there are, how many of them are in use, and how many of those wait
// to be read back.
func (s *Stream) Filled() (all, used, pending int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return len(s.Slots), len(s.Slots) - len(s.Free), s.pending.size
}

func (s *Stream) Close() {
	if s == nil {
		return
	}
	s.Mu.Lock()
	s.closed = true
	s.Mu.Unlock()
	s.Core.wake()
}

// Oldest returns the oldest section of the stream that has ended and is not read back.
func (s *Stream) Oldest(now int64) (name string, age time.Duration, id uint64, ok bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.pending.size == 0 {
		return "", 0, 0, false
	}
	r := &s.pending.At(0).Rec
	return r.Op.Cfg.Info.Name, time.Duration(now - r.HostEnd), r.ID, true
}
