// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"runtime"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// wait blocks until the device has reached an event.
func (s *Stream) wait(e backend.Event) {
	defer s.syncing.Add(-1)
	defer s.Core.Guard("a section's end was waited for")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unbind, st := s.backend.Bind(s.context); st == backend.StatusOK {
		defer unbind()
		s.backend.Synchronize(e)
	}
}

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
	if r.fail(st) && s.failed == backend.StatusOK {
		s.failed = st // retired; the polling thread reports it
	}
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
