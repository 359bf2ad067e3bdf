// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
)

// maxInFlight bounds what of a stream is read and not yet a span, about 0.5 KiB each. Beyond it sections stay in their
// slots, and what finds no slot is counted as dropped.
const maxInFlight = 4096

// drain reads back what has completed on a stream, up to batchSize sections.
func (t *poller) drain(s *Stream) (progress, pending bool) {
	defer func() {
		if r := recover(); r != nil { // of the backend
			t.p.errors.report("panic", fmt.Errorf("recovered while stream %q was read: %v", s.name, r))
			t.retire(s, backend.StatusPanic)
			pending = true
		}
	}()
	s.mu.Lock()
	n := min(s.pending.size, batchSize)
	for i := range n {
		t.batch[i] = s.pending.at(i)
	}
	failed, all := s.failed, s.pending.size
	s.looked()
	back := s.back
	s.back = nil
	if n == 0 && s.closed && len(s.free) == len(s.slots) && s.syncing.Load() == 0 && s.inFlight.Load() == 0 {
		s.mu.Unlock()
		t.p.removeStream(s)
		t.freeEvents(s)
		return false, false
	}
	s.mu.Unlock()
	for _, i := range back {
		t.giveUp(&s.slots[i], t.p.clock.now())
	}
	if s.inFlight.Load() >= maxInFlight {
		return false, true // its spans are not wanted that fast
	}
	known := 0
	if failed == backend.StatusOK {
		known = t.completed(s, n)
	}
	seen := t.p.clock.now()
	ready := 0
	for ready < n {
		sl := &s.slots[t.batch[ready]]
		t.plain[ready] = false
		if ready < known {
			var ok bool
			if t.stamps[ready], ok = t.stampsOf(s, sl, seen); ok && sl.plain() {
				t.plain[ready] = true
			} else {
				t.timed(s, sl, t.stamps[ready], ok)
			}
		} else if !t.read(s, sl, failed) {
			break
		}
		if sl.rec.status == statusDeviceError {
			failed, known = s.failedStatus(), 0
		}
		ready++
	}
	if ready == 0 {
		return false, n > 0
	}
	t.pressed = t.pressed || 4*ready > len(s.slots)
	t.more = t.more || ready == batchSize && all > ready
	s.mu.Lock()
	for range ready {
		s.pending.pop()
	}
	s.read += uint64(ready)
	s.looked()
	s.mu.Unlock()
	free := t.batch[:0]
	for i := range ready {
		sl := &s.slots[t.batch[i]]
		if t.plain[i] {
			t.queuePlain(s, sl, &t.stamps[i])
			free = append(free, t.batch[i])
		} else {
			t.counted.add()
			t.settle(sl)
		}
	}
	t.counted.add()
	t.p.statuses[statusTimed].Add(int64(len(free)))
	s.releasePlain(free)
	return true, ready < all
}

// completed is how many of the batch the device has finished. A stream completes in order, so the newest one's event
// answers for all, and if that is not there a binary search takes a few questions. 0 where the order is not known, as
// of events that foreign code records: then each is asked for.
func (t *poller) completed(s *Stream, n int) int {
	for i := range n {
		sl := &s.slots[t.batch[i]]
		if sl.rec.flags&(flagHost|flagLent) != 0 || sl.expired {
			n = i
			break
		}
	}
	done := func(i int) bool {
		return s.backend.Query(backend.Event(s.slots[t.batch[i]].end.Args[0])) == backend.StatusOK
	}
	if n == 0 || !done(0) {
		return 0
	}
	if n == 1 || done(n-1) {
		return n
	}
	return 1 + sort.Search(n-2, func(i int) bool { return !done(i + 1) })
}

// read finds out the times of a pending slot; false when the device has not got there.
func (t *poller) read(s *Stream, sl *slot, failed backend.Status) bool {
	r := &sl.rec
	if sl.expired { // its span exists
		return failed != backend.StatusOK || s.backend.Query(backend.Event(sl.end.Args[0])) != backend.StatusNotReady
	}
	if r.flags&flagHost == 0 && failed != backend.StatusOK {
		r.onHost(statusDeviceError)
	}
	if r.flags&flagHost == 0 {
		end := backend.Event(sl.end.Args[0])
		switch st := s.backend.Query(end); {
		case st == backend.StatusNotReady:
			return false
		case st != backend.StatusOK:
			t.queryFailed(s, r, st)
		default:
			stamps, ok := t.stampsOf(s, sl, t.p.clock.now())
			t.timed(s, sl, stamps, ok)
			return true
		}
	}
	t.hostTimes(r)
	return true
}

// queryFailed handles a status other than ready and not ready: asynchronous errors of the application's work show here.
func (t *poller) queryFailed(s *Stream, r *record, st backend.Status) {
	if r.failed(st) {
		t.retire(s, st)
	}
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
		t.p.errors.report("retired", fmt.Errorf("stream %q is retired, its sections get host times only: %w", s.name,
			&backend.StatusError{Call: "event", Status: st}))
	}
}

// stampsOf asks for a section's GPU times. The section certainly began after the host asked for its start and ended
// before the end event was seen; both narrow the error of its place.
func (t *poller) stampsOf(s *Stream, sl *slot, seen int64) (clockmap.Stamps, bool) {
	d := s.device
	return d.anchorer.Read(sl.rec.startEvent, backend.Event(sl.end.Args[0]), d.axis+sl.rec.hostStart, d.axis+seen)
}

// timed takes them down. Where the driver refuses to tell them, the event says why.
func (t *poller) timed(s *Stream, sl *slot, stamps clockmap.Stamps, ok bool) {
	r := &sl.rec
	if ok {
		r.stamps, r.device, r.timed = stamps, s.device, true
	} else if st := s.backend.Query(backend.Event(sl.end.Args[0])); st != backend.StatusOK &&
		st != backend.StatusNotReady {
		t.queryFailed(s, r, st)
	} else {
		r.onHost(statusDeviceError)
	}
	t.hostTimes(r)
}

// justEnded stands for the start of a section of Record that ended when it was told.
const justEnded = math.MinInt64

// hostTimes gives sections without events the host's times.
func (t *poller) hostTimes(r *record) {
	r.offset = t.p.clock.offset.Load()
	switch {
	case r.timed:
	case r.flags&flagGiven != 0:
		if r.startNs == justEnded {
			r.startNs = t.p.clock.at(r.hostStart, r.offset) - int64(r.gpu)
		}
		r.endNs = r.startNs + int64(r.gpu)
		r.timed = true
	default:
		r.startNs, r.endNs = t.p.clock.at(r.hostStart, r.offset), t.p.clock.at(r.hostEnd, r.offset)
	}
}

// settle passes a slot on whose section is resolved: a step's boundary to its step, a section to its nest.
func (t *poller) settle(sl *slot) {
	r := &sl.rec
	step := r.flags&flagStep != 0
	spanned := sl.expired && !step // its span exists
	sl.expired = false
	if !spanned {
		t.count(sl, r)
	}
	switch {
	case step:
		t.settleBoundary(sl)
	case r.root == sl:
		t.settleRoot(sl)
	case spanned:
		t.free(sl)
	default:
		root := r.root
		inner := t.takeOut(sl)
		t.free(sl)
		t.settleInner(inner, sl.stream, root)
		t.unref(root)
	}
}

// count numbers a resolved section and adds up what it declared.
func (t *poller) count(sl *slot, r *record) {
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
}

// takeOut takes a record out of its slot, which stays what it is.
func (t *poller) takeOut(sl *slot) *record {
	r := recordPool.Get().(*record)
	sl.stream.mu.Lock()
	r.take(sl)
	sl.stream.mu.Unlock()
	return r
}

// take copies a slot's record. The record keeps the slot's extra, the slot gets the record's empty one. The stream's
// mutex must be held, unless the section is outermost and no other lies in it.
func (r *record) take(sl *slot) {
	spare := r.extra
	*r = sl.rec
	sl.rec.extra = spare
}

// free gives a slot back whose record is not wanted.
func (t *poller) free(sl *slot) {
	sl.stream.mu.Lock()
	sl.stream.release(sl)
	sl.stream.mu.Unlock()
}

// tooOld reports whether a point of the host's axis is more than d ago.
func tooOld(then, now int64, d time.Duration) bool { return now-then > int64(d) }
