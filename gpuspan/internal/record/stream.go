// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

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

// Stream is gpuspan.Stream. Sections of one stream contend for its mutex; sections of different streams share nothing.
type Stream struct {
	ID      int // gpu.stream.id
	Label   string
	Asked   string               // name as registered; may be empty
	Legacy  bool                 // the legacy stream of context
	Foreign bool                 // the handle stays with foreign code, which records events of context
	Attrs   []attribute.KeyValue // identity and stream, on each span
	Sync    settings.SyncMode

	openNamed atomic.Int32 // len(named)

	EventRecorder // ends with its mutex, so that the mutex and what it guards are in one cache line

	Slots   []*Slot     // all; they do not move, because sections refer to them
	Free    []*Slot     // last in first out: a warm slot is in the cache
	Pending ring        // ended slots, in the order of their end events, which is the order of completion
	LastID  uint64      // of a section; begins at the stream's number in its upper 24 bits
	Crowd   int         // number of pending slots at which the polling thread is woken, even if it has just read
	Read    uint64      // sections that ended and were read back
	Back    []*Slot     // open slots that were taken back
	Lost    int64       // sections that found no free slot
	step    *StepState  // that sections without a step in their context belong to
	named   []namedOpen // open sections of StartNamed

	SaidHang uint64 // section already reported by the watchdog

	Public Public // of package gpuspan

	// polling thread
	SaidFailed  bool
	SaidFull    bool
	Fixed       bool // the driver refused more events
	EventsFreed bool
	Unplaced    []Stamped         // read, waiting for the anchor that places them
	Stamps      []clockmap.Stamps // of each of unplaced, where it is plain

	InFlight atomic.Int32 // records in unplaced, emits and emitting
	EmitMu   sync.Mutex
	Emits    []Stamped // placed, waiting to become spans

	// goroutine of the emitter
	Emitting []Stamped // was emits; emitting[emitted:] are still to become spans
	Emitted  int
}

// MoreSlots returns how many slots the stream needs in addition to those it has: as many again, up to
// Settings.MostSlots, if half of them are pending after they have been read, or none is free. lost is how many sections
// found none so far.
func (s *Stream) MoreSlots() (more int, lost int64) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	n := len(s.Slots)
	if !s.Closed && (2*s.Pending.Size >= n || len(s.Free) == 0) {
		more = min(n, s.Core.Cfg.MostSlots()-n)
	}
	return more, s.Lost
}

// AddSlots adds n slots. events has two for each, or is nil.
func (s *Stream) AddSlots(n int, events []backend.Event) {
	slots := make([]Slot, n)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for i := range slots {
		sl := &slots[n-1-i]
		sl.Stream = s
		sl.Refs.Store(1)
		if events != nil {
			sl.Start.Args = [2]uintptr{uintptr(events[2*i]), s.Handle}
			sl.End.Args = [2]uintptr{uintptr(events[2*i+1]), s.Handle}
		}
		s.Slots = append(s.Slots, sl)
		s.Free = append(s.Free, sl)
	}
	s.Free = slices.Grow(s.Free, len(s.Slots)-len(s.Free)) // Release must not allocate
	s.Pending.grow(len(s.Slots))
	s.Looked()
}

func (s *EventRecorder) IsClosed() bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Closed
}

// ring is a FIFO of slots; a stream has never more pending than slots.
type ring struct {
	buf        []*Slot
	head, Size int
}

func (r *ring) push(sl *Slot) {
	r.buf[r.index(r.Size)] = sl
	r.Size++
}

// grow allocates n slots.
func (r *ring) grow(n int) {
	buf := make([]*Slot, n)
	for i := range r.Size {
		buf[i] = r.At(i)
	}
	r.buf, r.head = buf, 0
}

func (r *ring) Pop() {
	r.head = r.index(1)
	r.Size--
}

func (r *ring) At(i int) *Slot { return r.buf[r.index(i)] }

// index returns the position of the i-th element. It compares instead of dividing, because a division would cost more
// than the rest of push.
func (r *ring) index(i int) int {
	if i += r.head; i >= len(r.buf) {
		i -= len(r.buf)
	}
	return i
}

// EventRecorder records events on a stream of a device. The mutex, which guards all of the stream that changes, is held
// around every record, so that the order of the queue is the order on the device.
type EventRecorder struct {
	Core    *Core
	Backend backend.Backend
	Handle  backend.StreamHandle
	Device  *Device // nil: host times only
	Context backend.Context
	Capture bool // query before each record
	Bound   bool // records need the device's context made current
	Host    bool // no events: there is no device, or the stream was refused

	Syncing atomic.Int32 // callers of End that wait for the device

	Mu     sync.Mutex
	Failed backend.Status // not StatusOK: the stream is retired
	Closed bool
}

func (s *Stream) Name() string {
	if s == nil {
		return ""
	}
	return s.Label
}

func (s *EventRecorder) DeviceTimed() bool {
	if s.Host {
		return false
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Failed == backend.StatusOK && !s.Closed
}

// FailedStatus returns the status with which the device failed on the stream, else StatusOK.
func (s *EventRecorder) FailedStatus() backend.Status {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Failed
}

// Filled returns how many slots there are, how many of them are in use, and how many of those wait to be read back.
func (s *Stream) Filled() (all, used, pending int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return len(s.Slots), len(s.Slots) - len(s.Free), s.Pending.Size
}

func (s *Stream) Close() {
	if s == nil {
		return
	}
	s.Mu.Lock()
	s.Closed = true
	s.Mu.Unlock()
	s.Core.Polling.Wake()
}

// Oldest returns the oldest section of the stream that has ended and is not read back.
func (s *Stream) Oldest(now int64) (name string, age time.Duration, id uint64, ok bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Pending.Size == 0 {
		return "", 0, 0, false
	}
	r := &s.Pending.At(0).Rec
	return r.Op.Op.Cfg.Info.Name, time.Duration(now - r.HostEnd), r.ID, true
}
