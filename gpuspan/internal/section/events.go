// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"runtime"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// recordStart records the start event of an open slot. The stream's mutex is held around every
// record, so that the order of the pending FIFO is the order on the stream.
func (s *Stream) recordStart(sl *Slot) {
	r := &sl.Rec
	if s.failed != backend.StatusOK {
		r.onHost(StatusDeviceError)
		return
	}
	if r.Flags&flagLent == 0 {
		if st := s.record(&sl.start); st != backend.StatusOK {
			s.refused(r, st)
			return
		}
	}
	r.Flags |= FlagStarted
	r.startEvent = backend.Event(sl.start.Args[0])
}

func (s *Stream) recordEnd(sl *Slot) {
	r := &sl.Rec
	switch {
	case s.closed: // the stream may no longer exist
		r.onHost(statusTimeout)
		return
	case s.failed != backend.StatusOK:
		r.onHost(StatusDeviceError)
		return
	}
	if r.Flags&flagLent != 0 {
		if r.Flags&flagRecorded == 0 {
			r.Flags |= FlagHost // the recording of its events was not confirmed
		}
		return
	}
	if st := s.record(&sl.end); st != backend.StatusOK {
		s.refused(r, st)
	}
}

// refused handles a record refused by the driver.
func (s *Stream) refused(r *Record, st backend.Status) {
	if r.failed(st) && s.failed == backend.StatusOK {
		s.failed = st // retired; the polling thread reports it
	}
}

// onHost switches a section to host times.
func (r *Record) onHost(status TimingStatus) {
	r.Flags |= FlagHost
	r.Status = status
}

// failed switches a section to host times after a status of the driver; it reports whether the
// device failed, as opposed to a graph capture.
func (r *Record) failed(st backend.Status) bool {
	if st.Capture() {
		r.onHost(StatusCaptured)
		return false
	}
	r.onHost(StatusDeviceError)
	return true
}

// record enqueues an event, unless the stream captures a graph: nothing runs then, and the event
// would have no time. A panicking backend counts as a refusal.
func (s *Stream) record(c *backend.Call) (st backend.Status) {
	st = backend.StatusPanic
	defer func() {
		if st == backend.StatusPanic { // queried only after a panic, because the query takes longer than everything else here
			_ = recover()
		}
	}()
	switch {
	case s.bound:
		return s.recordBound(c)
	case s.capture:
		return s.recordHere(c)
	}
	return s.backend.Record(c)
}

// recordHere records in the current context; for the legacy stream the query whether it captures
// needs that, too.
func (s *Stream) recordHere(c *backend.Call) backend.Status {
	if s.capture {
		// another error shows again at the record
		if capturing, st := s.backend.Capturing(s.handle); capturing || st.Capture() {
			return backend.StatusCapturedEvent
		}
	}
	return s.backend.Record(c)
}

// recordBound makes the stream's context current for the record. It is a separate function, because
// a deferred call in record would cost all records.
func (s *Stream) recordBound(c *backend.Call) backend.Status {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unbind, st := s.backend.Bind(s.context)
	if st != backend.StatusOK {
		return st
	}
	defer unbind()
	return s.recordHere(c)
}

func (s *Stream) memoryUsage() (int64, bool) {
	if !s.DeviceTimed() {
		return 0, false
	}
	defer s.Core.Guard("memory usage was read")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unbind, st := s.backend.Bind(s.context)
	if st != backend.StatusOK {
		return 0, false
	}
	defer unbind()
	used, st := s.backend.MemoryUsage(s.context)
	return used, st == backend.StatusOK
}

// MaxLinks bounds the links of one section, 88 bytes each, which its slot keeps. If there are more
// requests, gpu.batch.size and the shares count all of them.
const MaxLinks = 1024

// link adds a request to a batch. If there is no room, a sampled request replaces one that is not.
func (e *Extra) link(sc trace.SpanContext, items int64) {
	e.Batch++
	e.Items += items
	if len(e.Links) < MaxLinks {
		e.Links = append(e.Links, trace.Link{SpanContext: sc})
		e.Shares = append(e.Shares, items)
		return
	}
	i := slices.IndexFunc(e.Links, func(l trace.Link) bool { return !l.SpanContext.IsSampled() })
	if i >= 0 && sc.IsSampled() {
		e.Links[i], e.Shares[i] = trace.Link{SpanContext: sc}, items
	}
}
