// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"runtime"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// RecordStart records the start event of an open slot. The stream's mutex is held around every record, so that the
// order of the pending FIFO is the order on the stream.
func (s *EventRecorder) RecordStart(sl *Slot) {
	r := &sl.Rec
	if s.Failed != backend.StatusOK {
		r.OnHost(StatusDeviceError)
		return
	}
	if r.Flags&FlagLent == 0 {
		if st := s.Record(&sl.Start); st != backend.StatusOK {
			s.refused(r, st)
			return
		}
	}
	r.Flags |= FlagStarted
	r.StartEvent = backend.Event(sl.Start.Args[0])
}

func (s *EventRecorder) RecordEnd(sl *Slot) {
	r := &sl.Rec
	switch {
	case s.Closed: // the stream may no longer exist
		r.OnHost(StatusTimeout)
		return
	case s.Failed != backend.StatusOK:
		r.OnHost(StatusDeviceError)
		return
	}
	if r.Flags&FlagLent != 0 {
		if r.Flags&flagRecorded == 0 {
			r.Flags |= FlagHost // the recording of its events was not confirmed
		}
		return
	}
	if st := s.Record(&sl.End); st != backend.StatusOK {
		s.refused(r, st)
	}
}

// refused handles a record refused by the driver.
func (s *EventRecorder) refused(r *Record, st backend.Status) {
	if r.Failed(st) && s.Failed == backend.StatusOK {
		s.Failed = st // retired; the polling thread reports it
	}
}

// OnHost switches a section to host times.
func (r *Record) OnHost(status TimingStatus) {
	r.Flags |= FlagHost
	r.Status = status
}

// Failed switches a section to host times after a status of the driver; it reports whether the device failed, as
// opposed to a graph capture.
func (r *Record) Failed(st backend.Status) bool {
	if st.Capture() {
		r.OnHost(StatusCaptured)
		return false
	}
	r.OnHost(StatusDeviceError)
	return true
}

// Record enqueues an event, unless the stream captures a graph: nothing runs then, and the event would have no time. A
// panicking backend counts as a refusal.
func (s *EventRecorder) Record(c *backend.Call) (st backend.Status) {
	st = backend.StatusPanic
	defer func() {
		if st == backend.StatusPanic { // queried only after a panic, because the query takes longer than everything else here
			_ = recover()
		}
	}()
	switch {
	case s.Bound:
		return s.recordBound(c)
	case s.Capture:
		return s.recordHere(c)
	}
	return s.Backend.Record(c)
}

// recordHere records in the current context; for the legacy stream the query whether it captures needs that, too.
func (s *EventRecorder) recordHere(c *backend.Call) backend.Status {
	if s.Capture {
		// another error shows again at the record
		if capturing, st := s.Backend.Capturing(s.Handle); capturing || st.Capture() {
			return backend.StatusCapturedEvent
		}
	}
	return s.Backend.Record(c)
}

// recordBound makes the stream's context current for the record. It is a separate function, because a deferred call
// in record would cost all records.
func (s *EventRecorder) recordBound(c *backend.Call) backend.Status {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unbind, st := s.Backend.Bind(s.Context)
	if st != backend.StatusOK {
		return st
	}
	defer unbind()
	return s.recordHere(c)
}

func (s *EventRecorder) memoryUsage() (int64, bool) {
	if !s.DeviceTimed() {
		return 0, false
	}
	defer s.Core.Guard("memory usage was read")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unbind, st := s.Backend.Bind(s.Context)
	if st != backend.StatusOK {
		return 0, false
	}
	defer unbind()
	used, st := s.Backend.MemoryUsage(s.Context)
	return used, st == backend.StatusOK
}

// MaxLinks bounds the links of one section, 88 bytes each, which its slot keeps. If there are more requests,
// gpu.batch.size and the shares count all of them.
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
