// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// scripted is a backend whose device does nothing and is done at once, unless a test says otherwise. It costs next to
// nothing, so benchmarks over it show what the library costs.
type scripted struct {
	devices []backend.Device

	record    atomic.Int32 // Status of Record
	query     atomic.Int32 // Status of Query
	bind      atomic.Int32 // Status of Bind
	capturing atomic.Bool
	panics    atomic.Bool // Record and Query panic
	kind      backend.StreamKind
	infoErr   error
	blocks    atomic.Bool // Query of a section's event waits for block: a driver that hangs
	block     chan struct{}
	quick     bool // Record does nothing at all
	threads   bool // Record on a thread without Bind fails

	mu     sync.Mutex
	next   uintptr
	own    backend.Event // the last of the library's own events, for clocks and the floor
	live   map[backend.Event]bool
	bound  atomic.Int32
	closed atomic.Bool
	closes atomic.Int32

	records atomic.Int64
	syncs   atomic.Int64
	used    atomic.Int64
	asked   atomic.Int64 // how often MemoryUsage was called
}

func newScripted() *scripted {
	return &scripted{live: map[backend.Event]bool{}, devices: []backend.Device{{
		UUID: "GPU-test", Model: "Test",
		Vendor: "test",
	}}}
}

func (b *scripted) Name() string                               { return "cuda_event" }
func (b *scripted) Devices() ([]backend.Device, error)         { return b.devices, nil }
func (b *scripted) Now() time.Time                             { return time.Now() }
func (b *scripted) ThreadInit() error                          { return nil }
func (b *scripted) Current() (backend.Context, backend.Status) { return 0, backend.StatusOK }

func (b *scripted) StreamInfo(backend.StreamHandle, backend.Context) (backend.StreamInfo, error) {
	return backend.StreamInfo{Kind: b.kind}, b.infoErr
}

func (b *scripted) Bind(backend.Context) (func(), backend.Status) {
	b.bound.Add(1)
	return func() { b.bound.Add(-1) }, backend.Status(b.bind.Load())
}

func (b *scripted) NewStream(backend.Context) (backend.StreamHandle, backend.Status) {
	return 99, backend.StatusOK
}

func (b *scripted) NewAnchorStream(c backend.Context) (backend.StreamHandle, backend.Status) {
	return b.NewStream(c)
}
func (b *scripted) FreeStream(backend.Context, backend.StreamHandle) {}

func (b *scripted) NewEvents(_ backend.Context, dst []backend.Event) backend.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range dst {
		b.next++
		dst[i] = backend.Event(b.next)
		b.live[dst[i]] = true
	}
	if n := len(dst); n == 2 || n == 262 {
		b.own = dst[n-1]
	}
	return backend.StatusOK
}

func (b *scripted) FreeEvents(_ backend.Context, events []backend.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		delete(b.live, e)
	}
}

func (b *scripted) Capturing(backend.StreamHandle) (bool, backend.Status) {
	return b.capturing.Load(), backend.StatusOK
}

func (b *scripted) Record(c *backend.Call) backend.Status {
	if b.quick || c.Args[1] == 99 { // 99: the library's own stream
		return backend.StatusOK
	}
	if b.panics.Load() {
		panic("scripted panic")
	}
	if b.threads && b.bound.Load() == 0 {
		return backend.StatusInvalidContext
	}
	b.records.Add(1)
	return backend.Status(b.record.Load())
}

func (b *scripted) Query(e backend.Event) backend.Status {
	b.mu.Lock()
	own := e <= b.own
	b.mu.Unlock()
	switch {
	case own:
		return backend.StatusOK
	case b.panics.Load():
		panic("scripted panic")
	case b.blocks.Load():
		<-b.block
	}
	return backend.Status(b.query.Load())
}
func (b *scripted) Synchronize(backend.Event) backend.Status { b.syncs.Add(1); return backend.StatusOK }
func (b *scripted) Elapsed(backend.Event, backend.Event) (float64, backend.Status) {
	return 1000, backend.StatusOK
}

func (b *scripted) MemoryUsage(backend.Context) (int64, backend.Status) {
	b.asked.Add(1)
	return b.used.Load(), backend.StatusOK
}

func (b *scripted) Close() error {
	b.closes.Add(1)
	b.closed.Store(true)
	return nil
}
