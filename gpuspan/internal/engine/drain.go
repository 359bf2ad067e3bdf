// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// drain reads back what has completed on a stream. Only the oldest pending end event is asked for; behind one that is not ready
// nothing is, for a stream completes in order.
func (t *poller) drain(s *Stream) (progress, pending bool) {
	defer func() {
		if r := recover(); r != nil { // of the backend
			t.p.errors.report("panic", fmt.Errorf("recovered while stream %q was read: %v", s.name, r))
			t.retire(s, backend.StatusPanic)
			pending = true
		}
	}()
	resolved := 0
	for {
		s.mu.Lock()
		n := min(s.pending.size, batchSize)
		for i := range n {
			t.batch[i] = s.pending.at(i)
		}
		failed := s.failed
		if n == 0 && s.closed && len(s.free) == len(s.slots) && s.syncing.Load() == 0 {
			s.mu.Unlock()
			t.forget(s)
			return progress, false
		}
		s.mu.Unlock()
		ready := 0
		for ready < n && t.read(s, &s.slots[t.batch[ready]], failed) {
			if s.slots[t.batch[ready]].rec.status == statusDeviceError {
				failed = s.failedStatus()
			}
			ready++
		}
		if ready == 0 {
			return progress, n > 0
		}
		progress = true
		if resolved += ready; 4*resolved > len(s.slots) {
			t.pressed = true
		}
		s.mu.Lock()
		for range ready {
			s.pending.pop()
		}
		s.mu.Unlock()
		for i := range ready {
			t.settle(&s.slots[t.batch[i]])
		}
		if ready < n {
			return true, true
		}
	}
}

func (s *Stream) failedStatus() backend.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// read finds out the times of a pending slot; false when the device has not got there.
func (t *poller) read(s *Stream, sl *slot, failed backend.Status) bool {
	r := &sl.rec
	if r.flags&flagHost == 0 && failed != backend.StatusOK {
		r.flags |= flagHost
		r.status = statusDeviceError
	}
	if r.flags&flagHost == 0 {
		end := backend.Event(sl.end.Args[0])
		switch st := s.backend.Query(end); {
		case st == backend.StatusNotReady:
			return false
		case st != backend.StatusOK:
			t.queryFailed(s, r, st)
		default:
			t.place(s.device, r, end)
		}
	}
	t.hostTimes(r)
	return true
}

// queryFailed handles a status other than ready and not ready: asynchronous errors of the application's work show here.
func (t *poller) queryFailed(s *Stream, r *record, st backend.Status) {
	r.flags |= flagHost
	if st.Capture() {
		r.status = statusCaptured
		return
	}
	r.status = statusDeviceError
	t.retire(s, st)
}

// retire ends the use of a stream's events. Sections go on with host times.
func (t *poller) retire(s *Stream, st backend.Status) {
	s.mu.Lock()
	if s.failed == backend.StatusOK {
		s.failed = st
	}
	s.mu.Unlock()
	t.sayRetired(s, st)
}

func (t *poller) sayRetired(s *Stream, st backend.Status) {
	if s.saidFailed {
		return
	}
	s.saidFailed = true
	if st != backend.StatusDeinitialized { // the process is ending
		t.p.errors.report("retired", fmt.Errorf("stream %q is retired, its sections get host times only: %w", s.name, backend.StatusError("event", st)))
	}
}

// place puts a section on the wall clock. The section certainly began after the host asked for its start and
// ended before the end event was seen; both narrow the error.
func (t *poller) place(d *device, r *record, end backend.Event) {
	seen := t.p.clock.now()
	start, endNs, _, half, ok := d.anchorer.PlaceWithin(r.startEvent, end, t.p.clock.time(r.hostStart), t.p.clock.time(seen))
	if !ok {
		r.flags |= flagHost
		r.status = statusDeviceError
		return
	}
	r.startNs, r.endNs, r.gpu, r.errorNs, r.timed = start, endNs, float64(endNs-start), half, true
	r.device, r.rate = d, 1
	if ppm, ok := d.anchorer.Map().Drift(); ok {
		r.rate = 1 + ppm*1e-6
		d.drift.Store(-ppm)
	}
	d.halfNs.Store(half)
	d.hasHalf.Store(true)
}

// hostTimes gives sections without events the host's times.
func (t *poller) hostTimes(r *record) {
	switch {
	case r.timed:
	case r.flags&flagGiven != 0:
		r.endNs = r.startNs + int64(r.gpu)
		r.timed = true
	default:
		r.startNs, r.endNs = t.p.clock.wall(r.hostStart), t.p.clock.wall(r.hostEnd)
	}
}

// settle passes a resolved slot on: a step's boundary to its step, a section to its nest.
func (t *poller) settle(sl *slot) {
	r := &sl.rec
	t.p.statuses[r.status].Add(1)
	if r.flags&flagStep == 0 || !r.step.isCancelled() {
		// Numbered here and not at Start, where a counter that goroutines share would cost them more than all else.
		r.occurrence = r.op.timed.count.Add(1) + r.op.untimedCount()
	}
	if r.work.stated() {
		r.op.timed.add(&r.work, r.op.op.cfg.Direction)
	}
	if e := r.extra; e != nil && e.moved {
		for d := range e.copied {
			r.op.timed.copied[d].Add(e.copied[d])
		}
	}
	t.logOutput(r)
	switch r.status {
	case statusCaptured:
		t.p.drop(dropCaptured)
	case statusDeviceError:
		t.p.drop(dropDeviceError)
		if s := sl.stream; !s.saidFailed {
			if st := s.failedStatus(); st != backend.StatusOK {
				t.sayRetired(s, st)
			}
		}
	case statusTimeout:
		if t.closing {
			t.p.drop(dropShutdown)
		} else {
			t.p.drop(dropTimeout)
		}
	}
	if r.flags&flagStep != 0 {
		t.settleBoundary(sl)
		return
	}
	if r.step != nil {
		t.addToStep(r)
	}
	if r.root == sl {
		t.settleRoot(sl)
	} else {
		t.settleInner(sl)
	}
}

// tooOld reports whether a point of the host's axis is more than d ago.
func tooOld(then, now int64, d time.Duration) bool { return now-then > int64(d) }
