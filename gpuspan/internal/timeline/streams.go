// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// StreamConfig configures a stream.
type StreamConfig struct {
	Sync      settings.SyncMode
	Legacy    bool
	NoCapture bool
	Bound     bool
	Foreign   bool
	Device    *backend.Device // not nil: no events; the device is stated by the application

	current backend.Context // of the goroutine that registers the legacy stream
}

// currentContext returns the calling OS thread's context. Errors of the driver appear again when the stream is
// resolved.
func currentContext(p *record.Core) (c backend.Context) {
	defer p.Guard("current context")
	c, _ = p.Backend.Current()
	return c
}

// hostStream creates a stream of host times that is in no list, for when the polling thread does not respond.
func hostStream(p *record.Core, name string, c StreamConfig) *record.Stream {
	s := newStream(p, name, 0, c)
	s.Host = true
	prepare(s, nil)
	addStream(p, s)
	return s
}

// StreamIDs numbers streams: gpu.stream.id is unique in the process, also with several profilers.
var StreamIDs atomic.Int64

func newStream(p *record.Core, name string, h backend.StreamHandle, c StreamConfig) *record.Stream {
	id, asked := int(StreamIDs.Add(1)), name
	name = cmp.Or(spanattr.ValidText(name), fmt.Sprintf("stream%d", id))
	s := &record.Stream{ID: id, LastID: uint64(id) << 40, Label: name, Asked: asked, Sync: c.Sync}
	s.Core, s.Handle, s.Backend = p, h, p.Backend
	s.Capture = p.Cfg.CaptureCheck && !c.NoCapture
	s.Foreign = c.Foreign
	return s
}

func addStream(p *record.Core, s *record.Stream) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.StreamList.Add(s)
}

func removeStream(p *record.Core, s *record.Stream) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.StreamList.Set(slices.DeleteFunc(slices.Clone(p.StreamList.All()), func(o *record.Stream) bool { return o == s }))
}

// prepare creates the first slots. events has two for each, or is nil.
func prepare(s *record.Stream, events []backend.Event) {
	s.AddSlots(s.Core.Cfg.Slots, events)
	s.Describe()
}
