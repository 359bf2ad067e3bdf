// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"runtime"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// recordStart records the start event of an open slot. The stream's mutex is held around every record, so that the
// order of the pending FIFO is the order on the stream.
func (s *Stream) recordStart(sl *slot) {
	r := &sl.rec
	if s.failed != backend.StatusOK {
		r.onHost(statusDeviceError)
		return
	}
	if r.flags&flagLent == 0 {
		if st := s.record(&sl.start); st != backend.StatusOK {
			s.refused(r, st)
			return
		}
	}
	r.flags |= flagStarted
	r.startEvent = backend.Event(sl.start.Args[0])
}

func (s *Stream) recordEnd(sl *slot) {
	r := &sl.rec
	switch {
	case s.closed: // the stream may not exist any more
		r.onHost(statusTimeout)
		return
	case s.failed != backend.StatusOK:
		r.onHost(statusDeviceError)
		return
	}
	if r.flags&flagLent != 0 {
		if r.flags&flagRecorded == 0 {
			r.flags |= flagHost // nobody said that the events are recorded
		}
		return
	}
	if st := s.record(&sl.end); st != backend.StatusOK {
		s.refused(r, st)
	}
}

// refused handles a record that the driver refused.
func (s *Stream) refused(r *record, st backend.Status) {
	if r.failed(st) && s.failed == backend.StatusOK {
		s.failed = st // retired; the polling thread says so
	}
}

// onHost leaves a section to the host's times.
func (r *record) onHost(status timingStatus) {
	r.flags |= flagHost
	r.status = status
}

// failed leaves a section to the host's times after an answer of the driver; it reports whether the device failed, and
// not a graph was captured.
func (r *record) failed(st backend.Status) bool {
	if st.Capture() {
		r.onHost(statusCaptured)
		return false
	}
	r.onHost(statusDeviceError)
	return true
}

// record enqueues an event, unless the stream captures a graph: nothing runs then, and the event would have no time. A
// panicking backend counts as a refusal.
func (s *Stream) record(c *backend.Call) (st backend.Status) {
	st = backend.StatusPanic
	defer func() {
		if st == backend.StatusPanic { // asked only where there may be a panic, for asking takes longer than all else here
			_ = recover()
		}
	}()
	if s.bound {
		return s.recordBound(c)
	}
	return s.recordHere(c)
}

// recordHere records in the context that is current; for the legacy stream the question whether it captures needs that,
// too.
func (s *Stream) recordHere(c *backend.Call) backend.Status {
	if s.capture {
		// another error shows again at the record
		if capturing, st := s.backend.Capturing(s.handle); capturing || st.Capture() {
			return backend.StatusCapturedEvent
		}
	}
	return s.backend.Record(c)
}

// recordBound makes the stream's context current for the record. It is apart from record, whose every deferred call
// costs all records.
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
	defer s.p.guard("memory usage was read")
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
