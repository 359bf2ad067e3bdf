// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

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
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// StreamConfig is what a stream is registered with.
type StreamConfig struct {
	Sync      settings.SyncMode
	Legacy    bool
	NoCapture bool
	Bound     bool
	Foreign   bool
	Device    *backend.Device // not nil: no events, the device is what the application says

	current backend.Context // of the goroutine that registers the legacy stream
}

func (p *Profiler) Stream(h uintptr, name string, opts ...func(*StreamConfig)) *Stream {
	if p == nil || p.stopped.Load() {
		return nil
	}
	c := StreamConfig{Sync: p.cfg.Sync}
	for _, o := range opts {
		o(&c)
	}
	if c.Foreign {
		h = 0
	}
	if p.backend != nil && (c.Foreign || c.Legacy && h <= 1) {
		c.current = p.currentContext()
	}
	var s *Stream
	var err error
	ctx, cancel := context.WithTimeout(context.Background(), registerLimit)
	defer cancel()
	if callErr := p.poller.call(ctx, func() {
		s, err = p.poller.register(backend.StreamHandle(h), name, c)
	}); callErr != nil {
		if errors.Is(callErr, errStopped) {
			return nil
		}
		// The polling thread hangs in the driver. The closure may still run, so its variables are not read.
		p.errors.report("stream", fmt.Errorf("stream %q: %w (host times only)", name, callErr))
		return p.hostStream(name, c)
	}
	if err != nil {
		p.errors.report("stream "+name, fmt.Errorf("stream %q: %w (host times only)", name, err))
	}
	return s
}

// currentContext asks for the calling OS thread's context. What the driver refuses shows again when the stream is
// resolved.
func (p *Profiler) currentContext() (c backend.Context) {
	defer p.guard("the current context was asked for")
	c, _ = p.backend.Current()
	return c
}

const registerLimit = 5 * time.Second

// hostStream makes a stream of host times that no list knows, for when the polling thread does not answer.
func (p *Profiler) hostStream(name string, c StreamConfig) *Stream {
	s := p.newStream(name, 0, c)
	s.host = true
	s.prepare(nil)
	p.addStream(s)
	return s
}

// streamIDs numbers streams: gpu.stream.id is unique in the process, also with several profilers.
var streamIDs atomic.Int64

func (p *Profiler) newStream(name string, h backend.StreamHandle, c StreamConfig) *Stream {
	id, asked := int(streamIDs.Add(1)), name
	name = cmp.Or(ValidText(name), fmt.Sprintf("stream%d", id))
	s := &Stream{p: p, id: id, name: name, asked: asked, handle: h, backend: p.backend, sync: c.Sync}
	s.capture = p.cfg.CaptureCheck && !c.NoCapture
	s.foreign = c.Foreign
	return s
}

func (p *Profiler) addStream(s *Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streamList.add(s)
}

func (p *Profiler) removeStream(s *Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streamList.set(slices.DeleteFunc(slices.Clone(p.streamList.all()), func(o *Stream) bool { return o == s }))
}

// prepare makes the slots. events has two for each, or is nil.
func (s *Stream) prepare(events []backend.Event) {
	n := s.p.cfg.Slots
	s.slots = make([]slot, n)
	s.free = make([]int32, n)
	s.pending.buf = make([]int32, n)
	s.crowd = n / 2
	for i := range s.slots {
		sl := &s.slots[i]
		sl.stream, sl.index = s, uint16(i)
		sl.refs.Store(1)
		if events != nil {
			sl.start.Args = [2]uintptr{uintptr(events[2*i]), uintptr(s.handle)}
			sl.end.Args = [2]uintptr{uintptr(events[2*i+1]), uintptr(s.handle)}
		}
		s.free[n-1-i] = int32(i)
	}
	s.describe()
}

var errTooManyStreams = errors.New("too many streams (close those that are gone, or raise `streams`)")

// register runs on the polling thread. It always returns a usable stream.
func (t *poller) register(h backend.StreamHandle, name string, c StreamConfig) (*Stream, error) {
	p := t.p
	streams := p.streamList.all()
	known, refused := openStreamOf(streams, h, name, c)
	if known != nil && known.failedStatus() == backend.StatusOK {
		return known, nil
	}
	if refused != nil && (p.backend == nil || c.Device != nil) && refused.on(c.Device) {
		return refused, nil
	}
	s := p.newStream(name, h, c)
	err := t.openStream(s, h, c, len(streams))
	switch {
	case err == nil && known != nil: // the handle was given anew, as after a device's reset
		known.Close()
	case err == nil:
	case known != nil:
		return known, nil
	case refused != nil: // once more, as where each request asks
		return refused, err
	default:
		s.device = nil
		s.prepare(nil)
	}
	s.host = s.host || s.device == nil
	if s.closed = errors.Is(err, errTooManyStreams); !s.closed { // else nothing would read its slots back: it only counts
		p.addStream(s)
	}
	return s, err
}

// openStreamOf finds the stream of a handle. One that was refused may be registered again, with other options; without
// a device many streams may have the same handle, so that names tell those of host times apart.
func openStreamOf(streams []*Stream, h backend.StreamHandle, name string, c StreamConfig) (known, refused *Stream) {
	for _, s := range streams {
		s.mu.Lock()
		same := s.handle == h && !s.closed && s.foreign == c.Foreign &&
			(!s.legacy || s.context == c.current) && // each context has a legacy stream
			(!s.foreign || s.asked == name && (s.host || s.context == c.current))
		s.mu.Unlock()
		switch {
		case !same:
		case !s.host:
			return s, nil
		case s.asked == name:
			refused = s
		}
	}
	return nil, refused
}

// on reports whether a stream of host times is on the device that the application names, nil for none.
func (s *Stream) on(d *backend.Device) bool {
	return d == nil && s.device == nil || d != nil && s.device != nil && sameDevice(s.device.info, *d)
}

// openStream asks the driver about the stream and makes its events.
func (t *poller) openStream(s *Stream, h backend.StreamHandle, c StreamConfig, others int) error {
	p := t.p
	if others >= p.cfg.Streams {
		return errTooManyStreams
	}
	if c.Device != nil {
		s.host, s.device = true, t.givenDevice(*c.Device)
	}
	if p.backend == nil || c.Device != nil {
		s.prepare(nil)
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
		return fmt.Errorf("cannot resolve the device of handle %#x: %w", uintptr(h), err)
	}
	for _, d := range p.devices.all() {
		if d.info.Ordinal == ordinal {
			s.device = d
		}
	}
	if s.device == nil {
		return fmt.Errorf("handle %#x belongs to device %d, which the backend does not list", uintptr(h), ordinal)
	}
	if err := t.openDevice(s.device); err != nil {
		return fmt.Errorf("device %d: %w", ordinal, err)
	}
	events := make([]backend.Event, 2*p.cfg.Slots)
	s.context, s.legacy = info.Context, kind == backend.StreamLegacy && !c.Foreign
	if st := p.backend.NewEvents(s.context, events); st != backend.StatusOK {
		return &backend.StatusError{Call: fmt.Sprintf("cannot make %d events on device %d", len(events), ordinal), Status: st}
	}
	s.prepare(events)
	s.bound = c.Bound || s.legacy || !s.foreign && !t.selfTest(s)
	return nil
}

const selfTestLimit = 50 * time.Millisecond

// selfTest finds out whether a thread without a context can record on the stream, which saves making the context
// current around each record. The thread is fresh and ends with the goroutine, as that one never unlocks it.
func (t *poller) selfTest(s *Stream) bool {
	if c, st := s.backend.Capturing(s.handle); c || st != backend.StatusOK {
		return false // a record now would end up in the application's graph
	}
	call := &s.slots[0].start
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
	// Work that the stream already holds may keep the event from completing in time; then the record itself was the proof.
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
