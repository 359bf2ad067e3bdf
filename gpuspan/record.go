// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import "runtime"

// recordStart records the start event of an open slot. The stream's mutex is held around every record, so that the order
// of the pending FIFO is the order on the stream.
func (s *Stream) recordStart(sl *slot) {
	r := &sl.rec
	if s.failed != StatusOK {
		r.flags |= flagHost
		r.status = statusDeviceError
		return
	}
	if st := s.record(&sl.start); st != StatusOK {
		s.refused(r, st)
		return
	}
	r.flags |= flagStarted
	r.startEvent = Event(sl.start.Args[0])
}

// recordEnd records the end event.
func (s *Stream) recordEnd(sl *slot) {
	r := &sl.rec
	if s.failed != StatusOK {
		r.flags |= flagHost
		r.status = statusDeviceError
		return
	}
	if st := s.record(&sl.end); st != StatusOK {
		s.refused(r, st)
	}
}

// refused handles a record that the driver refused.
func (s *Stream) refused(r *record, st Status) {
	r.flags |= flagHost
	if st.capture() {
		r.status = statusCaptured
		return
	}
	r.status = statusDeviceError
	if s.failed == StatusOK {
		s.failed = st // retired; the polling thread says so
	}
}

// record enqueues an event, unless the stream captures a graph: nothing runs then, and the event would have no time. A panicking backend
// counts as a refusal.
func (s *Stream) record(c *Call) (st Status) {
	st = statusPanic
	defer func() {
		if st == statusPanic { // asked only where there may be a panic, for asking takes longer than all else here
			_ = recover()
		}
	}()
	if s.capture {
		if capturing, st := s.backend.Capturing(s.handle); capturing || st.capture() { // another error shows again at the record
			return StatusCapturedEvent
		}
	}
	if s.bound {
		return s.recordBound(c)
	}
	return s.backend.Record(c)
}

// recordBound makes the device's context current for the record. It is apart from record, whose every deferred call costs all records.
func (s *Stream) recordBound(c *Call) Status {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unbind, st := s.backend.Bind(s.device.info.Ordinal)
	if st != StatusOK {
		return st
	}
	defer unbind()
	return s.backend.Record(c)
}

// statusPanic stands for a backend that panicked.
const statusPanic Status = -1

// memoryUsage is the device memory in use now.
func (s *Stream) memoryUsage() (int64, bool) {
	if s.host || s.device == nil {
		return 0, false
	}
	defer s.p.guard("memory usage was read")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unbind, st := s.backend.Bind(s.device.info.Ordinal)
	if st != StatusOK {
		return 0, false
	}
	defer unbind()
	used, st := s.backend.MemoryUsage(s.device.info.Ordinal)
	return used, st == StatusOK
}
