// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"sync"
	"sync/atomic"
	"time"
)

// scripted is a backend whose device does nothing and is done at once, unless a test says otherwise. It costs next to nothing, so
// benchmarks over it show what the library costs.
type scripted struct {
	devices []Device

	record    atomic.Int32 // Status of Record
	query     atomic.Int32 // Status of Query
	bind      atomic.Int32 // Status of Bind
	capturing atomic.Bool
	panics    atomic.Bool // Record and Query panic
	kind      StreamKind
	infoErr   error
	blocks    atomic.Bool // Query of a section's event waits for block: a driver that hangs
	block     chan struct{}
	quick     bool // Record does nothing at all
	threads   bool // Record on a thread without Bind fails

	mu     sync.Mutex
	next   uintptr
	own    Event // the last of the library's own events, for clocks and the floor
	live   map[Event]bool
	bound  atomic.Int32
	closed atomic.Bool

	records atomic.Int64
	syncs   atomic.Int64
	used    atomic.Int64
}

func newScripted() *scripted {
	return &scripted{live: map[Event]bool{}, devices: []Device{{UUID: "GPU-test", Model: "Test", Vendor: "test"}}}
}

func (b *scripted) Name() string               { return "cuda_event" }
func (b *scripted) Devices() ([]Device, error) { return b.devices, nil }
func (b *scripted) Now() time.Time             { return time.Now() }
func (b *scripted) ThreadInit() error          { return nil }
func (b *scripted) StreamInfo(StreamHandle) (int, StreamKind, error) {
	return 0, b.kind, b.infoErr
}

func (b *scripted) Bind(int) (func(), Status) {
	b.bound.Add(1)
	return func() { b.bound.Add(-1) }, Status(b.bind.Load())
}
func (b *scripted) NewStream(int) (StreamHandle, Status) { return 99, StatusOK }
func (b *scripted) FreeStream(int, StreamHandle)         {}

func (b *scripted) NewEvents(_ int, dst []Event) Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range dst {
		b.next++
		dst[i] = Event(b.next)
		b.live[dst[i]] = true
	}
	if n := len(dst); n == 2 || n == 260 {
		b.own = dst[n-1]
	}
	return StatusOK
}

func (b *scripted) FreeEvents(_ int, events []Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		delete(b.live, e)
	}
}

func (b *scripted) Capturing(StreamHandle) (bool, Status) { return b.capturing.Load(), StatusOK }

func (b *scripted) Record(c *Call) Status {
	if b.quick || c.Args[1] == 99 { // 99: the library's own stream
		return StatusOK
	}
	if b.panics.Load() {
		panic("scripted panic")
	}
	if b.threads && b.bound.Load() == 0 {
		return StatusInvalidContext
	}
	b.records.Add(1)
	return Status(b.record.Load())
}

func (b *scripted) Query(e Event) Status {
	b.mu.Lock()
	own := e <= b.own
	b.mu.Unlock()
	switch {
	case own:
		return StatusOK
	case b.panics.Load():
		panic("scripted panic")
	case b.blocks.Load():
		<-b.block
	}
	return Status(b.query.Load())
}
func (b *scripted) Synchronize(Event) Status               { b.syncs.Add(1); return StatusOK }
func (b *scripted) Elapsed(Event, Event) (float64, Status) { return 1000, StatusOK }
func (b *scripted) MemoryUsage(int) (int64, Status)        { return b.used.Load(), StatusOK }
func (b *scripted) Close() error                           { b.closed.Store(true); return nil }
