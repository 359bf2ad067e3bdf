// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
)

func (t *registrar) Stream(h uintptr, name string, opts ...func(*StreamConfig)) *record.Stream {
	p := t.p
	if p.Stopped.Load() {
		return nil
	}
	c := StreamConfig{Sync: p.Cfg.Sync}
	for _, o := range opts {
		o(&c)
	}
	if c.Foreign {
		h = 0
	}
	if p.Backend != nil && (c.Foreign || c.Legacy && h <= 1) {
		c.current = currentContext(p)
	}
	var s *record.Stream
	var err error
	ctx, cancel := context.WithTimeout(context.Background(), registerLimit)
	defer cancel()
	if callErr := t.Call(ctx, func() {
		s, err = t.register(h, name, c)
	}); callErr != nil {
		if errors.Is(callErr, ErrStopped) {
			return nil
		}
		// The polling thread hangs in the driver. The closure may still run, so its variables are not read.
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
func (t *registrar) register(h backend.StreamHandle, name string, c StreamConfig) (*record.Stream, error) {
	p := t.p
	streams := p.StreamList.All()
	known, refused := openStreamOf(streams, h, name, c)
	if known != nil && known.FailedStatus() == backend.StatusOK {
		return known, nil
	}
	if refused != nil && (p.Backend == nil || c.Device != nil) && onDevice(refused, c.Device) {
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
	if s.Closed = errors.Is(err, errTooManyStreams); !s.Closed { // otherwise nothing would read its slots: it only counts
		addStream(p, s)
	}
	return s, err
}

// openStreamOf finds the stream of a handle. A refused one may be registered again, with other options; without a
// device many streams may have the same handle, so that names distinguish streams with host times.
func openStreamOf(
	streams []*record.Stream, h backend.StreamHandle, name string, c StreamConfig,
) (known, refused *record.Stream) {
	for _, s := range streams {
		s.Mu.Lock()
		same := s.Handle == h && !s.Closed && s.Foreign == c.Foreign &&
			(!s.Legacy || s.Context == c.current) && // each context has a legacy stream
			(!s.Foreign || s.Asked == name && (s.Host || s.Context == c.current))
		s.Mu.Unlock()
		switch {
		case !same:
		case !s.Host:
			return s, nil
		case s.Asked == name:
			refused = s
		}
	}
	return nil, refused
}

// onDevice reports whether a stream of host times is on the device that the application names, nil for none.
func onDevice(s *record.Stream, d *backend.Device) bool {
	return d == nil && s.Device == nil || d != nil && s.Device != nil && sameDevice(s.Device.Info, *d)
}

// openStream queries the driver about the stream and creates its events.
func (t *registrar) openStream(s *record.Stream, h backend.StreamHandle, c StreamConfig, others int) error {
	p := t.p
	if others >= p.Cfg.Streams {
		return errTooManyStreams
	}
	if c.Device != nil {
		s.Host, s.Device = true, t.givenDevice(*c.Device)
	}
	if p.Backend == nil || c.Device != nil {
		prepare(s, nil)
		return nil
	}
	info, err := p.Backend.StreamInfo(h, c.current)
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
	for _, d := range p.DeviceList.All() {
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
	s.Context, s.Legacy = info.Context, kind == backend.StreamLegacy && !c.Foreign
	if st := p.Backend.NewEvents(s.Context, events); st != backend.StatusOK {
		return &backend.StatusError{Call: fmt.Sprintf("cannot make %d events on device %d", len(events), ordinal), Status: st}
	}
	prepare(s, events)
	s.Bound = c.Bound || s.Legacy || !s.Foreign && !t.selfTest(s)
	return nil
}

const selfTestLimit = 50 * time.Millisecond

// selfTest tests whether a thread without a context can record on the stream, which saves making the context current
// around each record. The thread is new and ends with the goroutine, because it is never unlocked.
func (t *registrar) selfTest(s *record.Stream) bool {
	if c, st := s.Backend.Capturing(s.Handle); c || st != backend.StatusOK {
		return false // a record now would be captured into the application's graph
	}
	call := &s.Slots[0].Start
	done := make(chan backend.Status, 1)
	go func() {
		runtime.LockOSThread()
		done <- s.Record(call)
	}()
	select {
	case st := <-done:
		if st != backend.StatusOK {
			return false
		}
	case <-time.After(registerLimit / 2):
		return false
	}
	// Work that the stream already has may delay the event beyond the deadline; then the successful record itself was
	// sufficient.
	for deadline := time.Now().Add(selfTestLimit); ; time.Sleep(100 * time.Microsecond) {
		switch st := s.Backend.Query(backend.Event(call.Args[0])); {
		case st == backend.StatusOK:
			return true
		case st != backend.StatusNotReady:
			return false
		case time.Now().After(deadline):
			return true
		}
	}
}
