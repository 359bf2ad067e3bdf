// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/worker"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// openDevice opens the device's clock and measures its floor, when its first stream is registered.
func (t *Poller) openDevice(d *Device) error {
	if d.Anchorer != nil {
		return nil
	}
	b := t.back
	a, st := clockmap.NewAnchorer(b, backend.Context(d.Info.Ordinal), clockmap.Defaults())
	if st != backend.StatusOK {
		return &backend.StatusError{Call: "cannot make clock events", Status: st}
	}
	if st := a.Anchor(); st != backend.StatusOK {
		a.Close()
		return &backend.StatusError{Call: "cannot anchor the device's clock", Status: st}
	}
	d.Anchorer, d.axis = a, a.Axis(t.p.Clock.Time(0))
	measureFloor(d, b)
	describeDevice(t.p, d)
	return nil
}

// givenDevice returns the device that the application names for streams without events.
func (t *Poller) givenDevice(info backend.Device) *Device {
	for _, d := range t.given {
		if sameDevice(d.Info, info) {
			return d
		}
	}
	d := t.p.newDevice(info)
	t.given = append(t.given, d) // at most one for each stream
	describeDevice(t.p, d)
	return d
}

// describeDevice reports the device's capabilities to the recorder.
func describeDevice(p *Core, d *Device) {
	if p.Recorder != nil {
		p.Recorder.SetDevice(report.Device{
			Ordinal: d.Info.Ordinal, ID: d.Info.UUID, Model: d.Info.Model,
			Floor: time.Duration(d.floor.Load()), Peaks: peaksOf(d.Info),
		})
	}
}

func (t *Poller) RegisterStream(h uintptr, name string, opts ...func(*StreamConfig)) *Stream {
	p := t.p
	if p.stopped.Load() {
		return nil
	}
	c := StreamConfig{Sync: p.Cfg.Sync}
	for _, o := range opts {
		o(&c)
	}
	if c.Foreign {
		h = 0
	}
	if p.backend != nil && (c.Foreign || c.Legacy && h <= 1) {
		c.current = currentContext(p)
	}
	var s *Stream
	var err error
	ctx, cancel := context.WithTimeout(context.Background(), registerLimit)
	defer cancel()
	if callErr := t.Call(ctx, func() {
		s, err = t.register(h, name, c)
	}); callErr != nil {
		if errors.Is(callErr, worker.ErrStopped) {
			return nil
		}
		// The polling thread hangs in the driver. The closure may still run, so its variables are
		// not read.
		p.Errors.Report("stream", fmt.Errorf("stream %q: %w (host times only)", name, callErr))
		return hostStream(p, name, c)
	}
	if err != nil {
		p.Errors.Report("stream "+name, fmt.Errorf("stream %q: %w (host times only)", name, err))
	}
	return s
}

const registerLimit = 5 * time.Second

var errTooManyStreams = errors.New("too many streams (close unused streams, or raise `streams`)")

// register runs on the polling thread. It always returns a usable stream.
func (t *Poller) register(h backend.StreamHandle, name string, c StreamConfig) (*Stream, error) {
	p := t.p
	streams := p.streamList.all()
	known, refused := openStreamOf(streams, h, name, c)
	if known != nil && known.failedStatus() == backend.StatusOK {
		return known, nil
	}
	if refused != nil && (p.backend == nil || c.Device != nil) && onDevice(refused, c.Device) {
		return refused, nil
	}
	s := newStream(p, name, h, c)
	err := t.openStream(s, h, c, len(streams))
	switch {
	case err == nil && known != nil: // the handle was reused, as after a device's reset
		known.Close()
	case err == nil:
	case known != nil:
		return known, nil
	case refused != nil: // registered again, as if each request does it
		return refused, err
	default:
		s.Device = nil
		prepare(s, nil)
	}
	s.Host = s.Host || s.Device == nil
	if s.closed = errors.Is(err, errTooManyStreams); !s.closed { // otherwise nothing would read its slots: it only counts
		addStream(p, s)
	}
	return s, err
}

// openStreamOf finds the stream of a handle. A refused one may be registered again, with other
// options; without a device many streams may have the same handle, so that names distinguish
// streams with host times.
func openStreamOf(
	streams []*Stream, h backend.StreamHandle, name string, c StreamConfig,
) (known, refused *Stream) {
	for _, s := range streams {
		s.Mu.Lock()
		same := s.handle == h && !s.closed && s.foreign == c.Foreign &&
			(!s.legacy || s.context == c.current) && // each context has a legacy stream
			(!s.foreign || s.asked == name && (s.Host || s.context == c.current))
		s.Mu.Unlock()
		switch {
		case !same:
		case !s.Host:
			return s, nil
		case s.asked == name:
			refused = s
		}
	}
	return nil, refused
}

// onDevice reports whether a stream of host times is on the device that the application names, nil
// for none.
func onDevice(s *Stream, d *backend.Device) bool {
	return d == nil && s.Device == nil || d != nil && s.Device != nil && sameDevice(s.Device.Info, *d)
}

// openStream queries the driver about the stream and creates its events.
func (t *Poller) openStream(s *Stream, h backend.StreamHandle, c StreamConfig, others int) error {
	p := t.p
	if others >= p.Cfg.Streams {
		return errTooManyStreams
	}
	if c.Device != nil {
		s.Host, s.Device = true, t.givenDevice(*c.Device)
	}
	if p.backend == nil || c.Device != nil {
		prepare(s, nil)
		return nil
	}
	info, err := p.backend.StreamInfo(h, c.current)
	ordinal, kind := info.Device, info.Kind
	if kind == backend.StreamPerThread {
		return errors.New(
			"the per-thread default stream means a different stream on each OS thread (create a stream and use it)")
	}
	if kind == backend.StreamLegacy && !c.Legacy && !c.Foreign {
		return errors.New(
			"the legacy default stream waits for all blocking streams, so its times include theirs (create a stream, or " +
				"pass AllowLegacy)")
	}
	if err != nil {
		return fmt.Errorf("cannot resolve the device of handle %#x: %w", h, err)
	}
	for _, d := range p.deviceList.all() {
		if d.Info.Ordinal == ordinal {
			s.Device = d
		}
	}
	if s.Device == nil {
		return fmt.Errorf("handle %#x belongs to device %d, which the backend does not list", h, ordinal)
	}
	if err := t.openDevice(s.Device); err != nil {
		return fmt.Errorf("device %d: %w", ordinal, err)
	}
	events := make([]backend.Event, 2*p.Cfg.Slots)
	s.context, s.legacy = info.Context, kind == backend.StreamLegacy && !c.Foreign
	if st := p.backend.NewEvents(s.context, events); st != backend.StatusOK {
		return &backend.StatusError{Call: fmt.Sprintf("cannot make %d events on device %d", len(events), ordinal), Status: st}
	}
	prepare(s, events)
	s.bound = c.Bound || s.legacy || !s.foreign && !t.selfTest(s)
	return nil
}

const selfTestLimit = 50 * time.Millisecond

// selfTest tests whether a thread without a context can record on the stream, which saves making
// the context current around each record. The thread is new and ends with the goroutine, because it
// is never unlocked.
func (t *Poller) selfTest(s *Stream) bool {
	if c, st := s.backend.Capturing(s.handle); c || st != backend.StatusOK {
		return false // a record now would be captured into the application's graph
	}
	call := &s.Slots[0].start
	done := make(chan backend.Status, 1)
	go func() {
		runtime.LockOSThread()
		done <- s.record(call)
	}()
	select {
	case st := <-done:
		if st != backend.StatusOK {
			return false
		}
	case <-time.After(registerLimit / 2):
		return false
	}
	// Work that the stream already has may delay the event beyond the deadline; then the successful
	// record itself was sufficient.
	for deadline := time.Now().Add(selfTestLimit); ; time.Sleep(100 * time.Microsecond) {
		switch st := s.backend.Query(backend.Event(call.Args[0])); {
		case st == backend.StatusOK:
			return true
		case st != backend.StatusNotReady:
			return false
		case time.Now().After(deadline):
			return true
		}
	}
}

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

// hostStream creates a stream of host times that is in no list, for when the polling thread does
// not respond.
func hostStream(p *Core, name string, c StreamConfig) *Stream {
	s := newStream(p, name, 0, c)
	s.Host = true
	prepare(s, nil)
	addStream(p, s)
	return s
}

// StreamIDs numbers streams: gpu.stream.id is unique in the process, also with several profilers.
var StreamIDs atomic.Int64

func newStream(p *Core, name string, h backend.StreamHandle, c StreamConfig) *Stream {
	id, asked := int(StreamIDs.Add(1)), name
	name = cmp.Or(spanattr.ValidText(name), fmt.Sprintf("stream%d", id))
	s := &Stream{ID: id, lastID: uint64(id) << 40, label: name, asked: asked, sync: c.Sync}
	s.Core, s.handle, s.backend = p, h, p.backend
	s.capture = p.Cfg.CaptureCheck && !c.NoCapture
	s.foreign = c.Foreign
	return s
}

func addStream(p *Core, s *Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streamList.add(s)
}

func removeStream(p *Core, s *Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streamList.set(slices.DeleteFunc(slices.Clone(p.streamList.all()), func(o *Stream) bool { return o == s }))
}

func freeEvents(p *Core, s *Stream) {
	defer p.Guard("events were freed")
	s.Mu.Lock()
	s.closed = true
	keep := s.Device == nil || s.Host || s.eventsFreed || s.syncing.Load() != 0
	s.eventsFreed = true
	s.Mu.Unlock()
	if keep {
		return // a caller of End still waits for one of them; a leak is better than a crash
	}
	events := make([]backend.Event, 0, 2*len(s.Slots))
	for _, sl := range s.Slots {
		if sl.start.Args[0] != 0 {
			events = append(events, backend.Event(sl.start.Args[0]), backend.Event(sl.end.Args[0]))
		}
	}
	s.backend.FreeEvents(s.context, events)
}
