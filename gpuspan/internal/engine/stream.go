// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Stream is gpuspan.Stream. Sections of one stream contend for its mutex, sections of different streams share nothing.
type Stream struct {
	p       *Profiler
	id      int // gpu.stream.id
	name    string
	asked   string // name as registered; may be empty
	handle  backend.StreamHandle
	device  *device // nil: host times only
	context backend.Context
	legacy  bool // the legacy stream of context
	foreign bool // the handle stays with foreign code, which records events of context
	backend backend.Backend
	attrs   []attribute.KeyValue // identity and stream, on each span
	sync    settings.SyncMode
	capture bool // ask before each record
	bound   bool // records need the device's context made current
	host    bool // no events: there is no device, or the stream was refused

	syncing   atomic.Int32 // callers of End that wait for the device
	openNamed atomic.Int32 // len(named)

	mu      sync.Mutex
	slots   []slot
	free    []int32 // indexes of free slots, last in first out: a warm slot is in the cache
	pending ring    // indexes of ended slots, in the order of their end events, which is the order of completion
	nextID  uint64
	failed  backend.Status // not StatusOK: the stream is retired
	crowd   int            // pending slots from which on the polling thread is woken, though it has just looked
	closed  bool
	read    uint64      // sections that ended and were read back
	back    []int32     // indexes of open slots that were taken back
	step    *Step       // that sections without a step in their context belong to
	named   []namedOpen // open sections of StartNamed

	saidHang uint64 // section that the watchdog spoke of; watchdog

	// polling thread
	saidFailed  bool
	eventsFreed bool
	unplaced    []queued          // read, waiting for the anchor that places them
	stamps      []clockmap.Stamps // of each of unplaced, where it is plain

	inFlight atomic.Int32 // records in unplaced, emits and emitting
	emitMu   sync.Mutex
	emits    []queued // placed, waiting to become spans

	// goroutine of the emitter
	emitting []queued // was emits; emitting[emitted:] are still to become spans
	emitted  int
}

func (s *Stream) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// ring is a FIFO of slot indexes; a stream has never more pending than slots.
type ring struct {
	buf        []int32
	head, size int
}

func (r *ring) push(i int32) {
	r.buf[r.place(r.size)] = i
	r.size++
}

func (r *ring) pop() {
	r.head = r.place(1)
	r.size--
}

func (r *ring) at(i int) int32 { return r.buf[r.place(i)] }

// place is where the i-th element is or comes to be. A comparison, for a division would cost more than the rest of
// push.
func (r *ring) place(i int) int {
	if i += r.head; i >= len(r.buf) {
		i -= len(r.buf)
	}
	return i
}

func (s *Stream) Name() string {
	if s == nil {
		return ""
	}
	return s.name
}

func (s *Stream) DeviceTimed() bool {
	if s == nil || s.host {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed == backend.StatusOK && !s.closed
}

// failedStatus is not StatusOK where the device failed on the stream.
func (s *Stream) failedStatus() backend.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// filled is how many slots are in use, and how many of those wait to be read back.
func (s *Stream) filled() (used, pending int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.slots) - len(s.free), s.pending.size
}

// Real is s, or nil for one that no profiler made: a zero value does what nil does.
func (s *Stream) Real() *Stream {
	if s == nil || s.p == nil {
		return nil
	}
	return s
}

func (s *Stream) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.p.poller.wake()
}
