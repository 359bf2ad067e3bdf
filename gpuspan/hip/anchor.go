// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip

import (
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// statusCaptureUnsupported is hipErrorStreamCaptureUnsupported.
const statusCaptureUnsupported = 900

// NewAnchorStream makes a stream for clock anchors, and the four bytes that are set before each of its records. A
// device has one.
func (b *Backend) NewAnchorStream(c backend.Context) (s backend.StreamHandle, st backend.Status) {
	if s, st = b.NewStream(c); st != backend.StatusOK {
		return 0, st
	}
	st = b.In(c, func() backend.Status {
		f := dl.NewFrame()
		defer f.Free()
		f.Args[0], f.Args[1] = f.Addr(0), 4
		st := backend.Status(f.Call(b.fn.Of["hipMalloc"], 2))
		if st == backend.StatusOK {
			if old := b.devices[c].scratch.Swap(uintptr(f.Out[0])); old != 0 {
				b.fn.Of["hipFree"].Call(old)
			}
			b.devices[c].anchor.Store(uintptr(s))
		}
		return st
	})
	if st != backend.StatusOK {
		b.API.FreeStream(c, s)
		return 0, st
	}
	return s, st
}

// FreeStream destroys a stream of NewStream or NewAnchorStream.
func (b *Backend) FreeStream(c backend.Context, s backend.StreamHandle) {
	b.API.FreeStream(c, s)
	if int(c) < len(b.devices) && b.devices[c].anchor.CompareAndSwap(uintptr(s), 0) {
		b.fn.Of["hipFree"].Call(b.devices[c].scratch.Swap(0))
	}
}

// Record enqueues an event; on an anchor stream behind a write, so that it has a marker of its own.
func (b *Backend) Record(c *backend.Call) backend.Status {
	for i := range b.devices {
		d := &b.devices[i]
		if d.anchor.Load() != c.Args[1] || c.Args[1] == 0 {
			continue
		}
		f := dl.NewFrame()
		f.Args[0], f.Args[1], f.Args[2], f.Args[3] = d.scratch.Load(), 0, 4, c.Args[1]
		st := backend.Status(f.Call(b.fn.Of["hipMemsetAsync"], 4))
		f.Free()
		if st != backend.StatusOK {
			return st
		}
	}
	return b.API.Record(c)
}

// Query asks whether an event has happened. A refusal because of a capture elsewhere means that it is not known yet.
func (b *Backend) Query(e backend.Event) backend.Status {
	st := b.API.Query(e)
	if st == statusCaptureUnsupported {
		return backend.StatusNotReady
	}
	return st
}
