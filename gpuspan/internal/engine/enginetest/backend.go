// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package enginetest runs an engine over a scripted device, for tests of the packages that it is
// assembled from.
package enginetest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// Backend is a backend whose device completes everything immediately, unless a test sets otherwise.
// It costs almost nothing, so benchmarks over it measure the library's cost.
type Backend struct {
	List []backend.Device

	RecordStatus atomic.Int32 // Status of Record
	QueryStatus  atomic.Int32 // Status of Query
	BindStatus   atomic.Int32 // Status of Bind
	InCapture    atomic.Bool
	Panics       atomic.Bool // Record and Query panic
	Kind         backend.StreamKind
	InfoErr      error
	Blocks       atomic.Bool // Query of a section's event waits for block: a driver that hangs
	Block        chan struct{}
	Quick        bool // Record does nothing at all
	Threads      bool // Record on a thread without Bind fails

	Mu       sync.Mutex
	next     uintptr
	own      backend.Event // the last of the library's own events, for clocks and the floor
	Live     map[backend.Event]bool
	BoundNow atomic.Int32
	Closed   atomic.Bool
	Closes   atomic.Int32

	Records atomic.Int64
	Syncs   atomic.Int64
	Used    atomic.Int64
	Asked   atomic.Int64 // how often MemoryUsage was called
}

// NewBackend returns a backend of one device.
func NewBackend() *Backend {
	return &Backend{Live: map[backend.Event]bool{}, List: []backend.Device{{
		UUID: "GPU-test", Model: "Test",
		Vendor: "test",
	}}}
}

func (b *Backend) Name() string { return "cuda_event" }

func (b *Backend) Devices() ([]backend.Device, error) { return b.List, nil }

func (b *Backend) Now() time.Time { return time.Now() }

func (b *Backend) ThreadInit() error { return nil }

func (b *Backend) Current() (backend.Context, backend.Status) { return 0, backend.StatusOK }

func (b *Backend) StreamInfo(backend.StreamHandle, backend.Context) (backend.StreamInfo, error) {
	return backend.StreamInfo{Kind: b.Kind}, b.InfoErr
}

func (b *Backend) Bind(backend.Context) (func(), backend.Status) {
	b.BoundNow.Add(1)
	return func() { b.BoundNow.Add(-1) }, backend.Status(b.BindStatus.Load())
}

func (b *Backend) NewStream(backend.Context) (backend.StreamHandle, backend.Status) {
	return 99, backend.StatusOK
}

func (b *Backend) NewAnchorStream(c backend.Context) (backend.StreamHandle, backend.Status) {
	return b.NewStream(c)
}

func (b *Backend) FreeStream(backend.Context, backend.StreamHandle) {}

func (b *Backend) NewEvents(_ backend.Context, dst []backend.Event) backend.Status {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for i := range dst {
		b.next++
		dst[i] = backend.Event(b.next)
		b.Live[dst[i]] = true
	}
	if n := len(dst); n == 2 || n == 262 {
		b.own = dst[n-1]
	}
	return backend.StatusOK
}

func (b *Backend) FreeEvents(_ backend.Context, events []backend.Event) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for _, e := range events {
		delete(b.Live, e)
	}
}

func (b *Backend) Capturing(backend.StreamHandle) (bool, backend.Status) {
	return b.InCapture.Load(), backend.StatusOK
}

func (b *Backend) Record(c *backend.Call) backend.Status {
	if b.Quick || c.Args[1] == 99 { // 99: the library's own stream
		return backend.StatusOK
	}
	if b.Panics.Load() {
		panic("scripted panic")
	}
	if b.Threads && b.BoundNow.Load() == 0 {
		return backend.StatusInvalidContext
	}
	b.Records.Add(1)
	return backend.Status(b.RecordStatus.Load())
}

func (b *Backend) Query(e backend.Event) backend.Status {
	b.Mu.Lock()
	own := e <= b.own
	b.Mu.Unlock()
	switch {
	case own:
		return backend.StatusOK
	case b.Panics.Load():
		panic("scripted panic")
	case b.Blocks.Load():
		<-b.Block
	}
	return backend.Status(b.QueryStatus.Load())
}

func (b *Backend) Synchronize(backend.Event) backend.Status { b.Syncs.Add(1); return backend.StatusOK }

func (b *Backend) Elapsed(backend.Event, backend.Event) (float64, backend.Status) {
	return 1000, backend.StatusOK
}

func (b *Backend) MemoryUsage(backend.Context) (int64, backend.Status) {
	b.Asked.Add(1)
	return b.Used.Load(), backend.StatusOK
}

func (b *Backend) Close() error {
	b.Closes.Add(1)
	b.Closed.Store(true)
	return nil
}
