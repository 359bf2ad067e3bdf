// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// StreamOption configures [Profiler.Stream].
type StreamOption interface{ applyStream(*streamConfig) }

type streamConfig struct {
	sync       SyncMode
	legacy     bool
	noCapture  bool
	forceBound bool
}

type streamOption func(*streamConfig)

func (f streamOption) applyStream(c *streamConfig) { f(c) }

// AllowLegacy accepts the legacy default stream (handle 0 or 1). It waits for every blocking stream of the device and they for
// it, so its sections include work of other streams.
func AllowLegacy() StreamOption { return streamOption(func(c *streamConfig) { c.legacy = true }) }

// NeverCaptured promises that no graph is ever captured on the stream, which saves a driver call at Start and at End.
func NeverCaptured() StreamOption { return streamOption(func(c *streamConfig) { c.noCapture = true }) }

// Bound makes the device's context current around every record, as if the self-test at registration had failed.
func Bound() StreamOption { return streamOption(func(c *streamConfig) { c.forceBound = true }) }

// Stream registers a device stream of the application: h is a cudaStream_t, CUstream or hipStream_t, or a simulated stream. The
// name is for the reader of reports. The same handle gives the same Stream until it is closed; of
// streams with host times the same handle and name do.
//
// The result is nil only for a nil or stopped Profiler. A stream that cannot be timed (per-thread default stream, legacy default stream
// without [AllowLegacy], unknown handle, too many streams) gets host times, and the reason goes to the error handler.
// Registration asks the driver and must not happen while the stream captures a graph.
func (p *Profiler) Stream(h uintptr, name string, opts ...StreamOption) *Stream {
	if p == nil || p.stopped.Load() {
		return nil
	}
	c := streamConfig{sync: p.cfg.Sync}
	for _, o := range opts {
		if o != nil {
			o.applyStream(&c)
		}
	}
	var s *Stream
	var err error
	ctx, cancel := context.WithTimeout(context.Background(), registerLimit)
	defer cancel()
	if callErr := p.poller.call(ctx, func() { s, err = p.poller.register(StreamHandle(h), name, c) }); callErr != nil {
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

const registerLimit = 5 * time.Second

// hostStream makes a stream of host times that no list knows, for when the polling thread does not answer.
func (p *Profiler) hostStream(name string, c streamConfig) *Stream {
	s := p.newStream(name, 0, c)
	s.host = true
	s.prepare(nil)
	p.addStream(s)
	return s
}

// streamIDs numbers streams: gpu.stream.id is unique in the process, also with several profilers.
var streamIDs atomic.Int64

func (p *Profiler) newStream(name string, h StreamHandle, c streamConfig) *Stream {
	id, asked := int(streamIDs.Add(1)), name
	if name == "" {
		name = fmt.Sprintf("stream%d", id)
	}
	s := &Stream{p: p, id: id, name: name, asked: asked, handle: h, backend: p.backend, sync: c.sync}
	s.capture = p.cfg.CaptureCheck && !c.noCapture
	return s
}

func (p *Profiler) addStream(s *Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := append(append([]*Stream(nil), *p.streamList.Load()...), s)
	p.streamList.Store(&list)
}

func (p *Profiler) removeStream(s *Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*Stream
	for _, o := range *p.streamList.Load() {
		if o != s {
			list = append(list, o)
		}
	}
	p.streamList.Store(&list)
}

// prepare makes the slots. events has two for each, or is nil.
func (s *Stream) prepare(events []Event) {
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
	s.attrs = []attribute.KeyValue{semconv.GPUStreamIDKey.Int(s.id)}
	if s.device != nil {
		s.attrs = append(s.attrs, s.device.attrs...)
	}
}

var errTooManyStreams = errors.New("too many streams (close those that are gone, or raise `streams`)")

// register runs on the polling thread. It always returns a usable stream.
func (t *poller) register(h StreamHandle, name string, c streamConfig) (*Stream, error) {
	p := t.p
	streams := *p.streamList.Load()
	known, refused := openStreamOf(streams, h, name)
	if known != nil {
		return known, nil
	}
	if refused != nil && p.backend == nil {
		return refused, nil
	}
	s := p.newStream(name, h, c)
	err := t.openStream(s, h, c, len(streams))
	if err != nil {
		if refused != nil { // once more, as where each request asks
			return refused, err
		}
		s.device = nil
		s.prepare(nil)
	}
	if s.device == nil {
		s.host = true
	}
	if !errors.Is(err, errTooManyStreams) {
		p.addStream(s)
		return s, err
	}
	// Not in the list, so nothing would read its slots back: it only counts.
	s.closed = true
	return s, err
}

// openStreamOf finds the stream of a handle. One that was refused may be registered again, with other options; without a device many streams may have
// the same handle, so that names tell those of host times apart.
func openStreamOf(streams []*Stream, h StreamHandle, name string) (known, refused *Stream) {
	for _, s := range streams {
		s.mu.Lock()
		same := s.handle == h && !s.closed
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

// openStream asks the driver about the stream and makes its events.
func (t *poller) openStream(s *Stream, h StreamHandle, c streamConfig, others int) error {
	p := t.p
	if others >= p.cfg.Streams {
		return errTooManyStreams
	}
	if p.backend == nil {
		s.prepare(nil)
		return nil
	}
	ordinal, kind, err := p.backend.StreamInfo(h)
	if kind == StreamPerThread {
		return errors.New("the per-thread default stream means a different stream on each OS thread (create a stream and use it)")
	}
	if kind == StreamLegacy && !c.legacy {
		return errors.New("the legacy default stream waits for all blocking streams, so its times include theirs (create a stream, or pass AllowLegacy)")
	}
	if err != nil {
		return fmt.Errorf("cannot resolve the device of handle %#x: %w", uintptr(h), err)
	}
	for _, d := range *p.devices.Load() {
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
	events := make([]Event, 2*p.cfg.Slots)
	if st := p.backend.NewEvents(ordinal, events); st != StatusOK {
		return statusError(fmt.Sprintf("cannot make %d events on device %d", len(events), ordinal), st)
	}
	s.prepare(events)
	s.bound = c.forceBound || kind == StreamLegacy || !t.selfTest(s)
	return nil
}

const selfTestLimit = 50 * time.Millisecond

// selfTest finds out whether a thread without a context can record on the stream, which saves making the context current
// around each record. The thread is fresh and ends with the goroutine, as that one never unlocks it.
func (t *poller) selfTest(s *Stream) bool {
	if c, st := s.backend.Capturing(s.handle); c || st != StatusOK {
		return false // a record now would end up in the application's graph
	}
	call := &s.slots[0].start
	done := make(chan Status, 1)
	go func() {
		runtime.LockOSThread()
		done <- s.record(call)
	}()
	select {
	case st := <-done:
		if st != StatusOK {
			return false
		}
	case <-time.After(registerLimit / 2):
		return false
	}
	// Work that the stream already holds may keep the event from completing in time; then the record itself was the proof.
	for deadline := time.Now().Add(selfTestLimit); ; time.Sleep(100 * time.Microsecond) {
		switch st := s.backend.Query(Event(call.Args[0])); {
		case st == StatusOK:
			return true
		case st != StatusNotReady:
			return false
		case time.Now().After(deadline):
			return true
		}
	}
}
