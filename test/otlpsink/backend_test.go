// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlpsink

import (
	"sync/atomic"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// device is a backend whose device does nothing and timestamps events when they are recorded.
type device struct {
	begin  time.Time
	stamps []atomic.Int64
	next   int
}

func newDevice() *device { return &device{begin: time.Now(), stamps: make([]atomic.Int64, 1<<16)} }

func (d *device) Name() string { return "cuda_event" }

func (d *device) Devices() ([]backend.Device, error) {
	return []backend.Device{{
		UUID: "GPU-627cc493-f310-47de-96bd-71410b7dec09", Model: "NVIDIA H200", Vendor: "NVIDIA", DriverVersion: "580.65.06",
		PCIBDF: "0000:17:00.0",
	}}, nil
}

func (d *device) Now() time.Time                             { return time.Now() }
func (d *device) ThreadInit() error                          { return nil }
func (d *device) Current() (backend.Context, backend.Status) { return 0, backend.StatusOK }
func (d *device) StreamInfo(backend.StreamHandle, backend.Context) (backend.StreamInfo, error) {
	return backend.StreamInfo{}, nil
}
func (d *device) Bind(backend.Context) (func(), backend.Status) { return func() {}, backend.StatusOK }
func (d *device) NewStream(backend.Context) (backend.StreamHandle, backend.Status) {
	return 99, backend.StatusOK
}

func (d *device) NewAnchorStream(backend.Context) (backend.StreamHandle, backend.Status) {
	return 98, backend.StatusOK
}
func (d *device) FreeStream(backend.Context, backend.StreamHandle) {}

func (d *device) NewEvents(_ backend.Context, dst []backend.Event) backend.Status {
	for i := range dst {
		d.next++
		dst[i] = backend.Event(d.next)
	}
	return backend.StatusOK
}
func (d *device) FreeEvents(backend.Context, []backend.Event) {}
func (d *device) Capturing(backend.StreamHandle) (bool, backend.Status) {
	return false, backend.StatusOK
}

func (d *device) Record(c *backend.Call) backend.Status {
	d.stamps[c.Args[0]].Store(int64(time.Since(d.begin)))
	return backend.StatusOK
}
func (d *device) Query(backend.Event) backend.Status       { return backend.StatusOK }
func (d *device) Synchronize(backend.Event) backend.Status { return backend.StatusOK }

func (d *device) Elapsed(a, b backend.Event) (float64, backend.Status) {
	return float64(float32(d.stamps[b].Load()-d.stamps[a].Load())/1e6) * 1e6, backend.StatusOK
}
func (d *device) MemoryUsage(backend.Context) (int64, backend.Status) { return 0, backend.StatusOK }
func (d *device) Close() error                                        { return nil }
