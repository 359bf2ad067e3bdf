// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"errors"
	"fmt"
	"sort"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
)

// Drain reads what has completed on a stream, up to batchSize sections.
func (t *Poller) Drain(s *Stream) (progress, pending bool) {
	defer func() {
		if r := recover(); r != nil { // of the backend
			t.p.Errors.Report("panic", fmt.Errorf("recovered while stream %q was read: %v", s.label, r))
			t.retire(s, backend.StatusPanic)
			pending = true
		}
	}()
	s.Mu.Lock()
	n := min(s.pending.size, batchSize)
	for i := range n {
		t.batch[i] = s.pending.At(i)
	}
	failed, all := s.failed, s.pending.size
	s.Looked()
	back := s.back
	s.back = nil
	if n == 0 && s.closed && len(s.Free) == len(s.Slots) && s.syncing.Load() == 0 && s.InFlight.Load() == 0 {
		s.Mu.Unlock()
		removeStream(t.p, s)
		freeEvents(t.p, s)
		return false, false
	}
	s.Mu.Unlock()
	for _, sl := range back {
		t.giveUp(sl, t.p.Clock.Now())
	}
	if s.InFlight.Load() >= MaxInFlight {
		return false, true // its spans are not needed that fast
	}
	known := 0
	if failed == backend.StatusOK {
		known = t.completed(s, n)
	}
	seen := t.p.Clock.Now()
	ready := 0
	for ready < n {
		sl := t.batch[ready]
		t.plain[ready] = false
		if ready < known {
			var ok bool
			if t.stamps[ready], ok = t.stampsOf(s, sl, seen); ok && plainSlot(sl) && t.stamps[ready].Fits() {
				t.plain[ready] = true
			} else {
				t.storeTimes(s, sl, t.stamps[ready], ok)
			}
		} else if !t.readSlot(s, sl, failed) {
			break
		}
		if sl.Rec.Status == StatusDeviceError {
			failed, known = s.failedStatus(), 0
		}
		ready++
	}
	if ready == 0 {
		return false, n > 0
	}
	t.pressed = t.pressed || 4*ready > len(s.Slots)
	t.more = t.more || ready == batchSize && all > ready
	s.Mu.Lock()
	for range ready {
		s.pending.pop()
	}
	s.read += uint64(ready)
	s.Looked()
	s.Mu.Unlock()
	free := t.batch[:0]
	for i := range ready {
		sl := t.batch[i]
		if t.plain[i] {
			t.queuePlain(s, sl, &t.stamps[i])
			free = append(free, t.batch[i])
		} else {
			t.counted.Add()
			t.settle(sl)
		}
	}
	t.counted.Add()
	t.p.statuses[StatusTimed].Add(int64(len(free)))
	releasePlain(s, free)
	return true, ready < all
}

// completed returns how many of the batch the device has finished. A stream completes in order, so
// the newest one's event suffices if it has completed; otherwise a binary search takes a few
// queries. 0 if the order is unknown, as of events that foreign code records: then each is queried.
func (t *Poller) completed(s *Stream, n int) int {
	for i := range n {
		sl := t.batch[i]
		if sl.Rec.Flags&(FlagHost|flagLent) != 0 || sl.expired {
			n = i
			break
		}
	}
	done := func(i int) bool {
		return s.backend.Query(backend.Event(t.batch[i].end.Args[0])) == backend.StatusOK
	}
	if n == 0 || !done(0) {
		return 0
	}
	if n == 1 || done(n-1) {
		return n
	}
	return 1 + sort.Search(n-2, func(i int) bool { return !done(i + 1) })
}

// readSlot reads the times of a pending slot; false if the device has not completed it.
func (t *Poller) readSlot(s *Stream, sl *Slot, failed backend.Status) bool {
	r := &sl.Rec
	if sl.expired { // its span exists
		return failed != backend.StatusOK || s.backend.Query(backend.Event(sl.end.Args[0])) != backend.StatusNotReady
	}
	if r.Flags&FlagHost == 0 && failed != backend.StatusOK {
		r.onHost(StatusDeviceError)
	}
	if r.Flags&FlagHost == 0 {
		end := backend.Event(sl.end.Args[0])
		switch st := s.backend.Query(end); {
		case st == backend.StatusNotReady:
			return false
		case st != backend.StatusOK:
			t.queryFailed(s, r, st)
		default:
			stamps, ok := t.stampsOf(s, sl, t.p.Clock.Now())
			t.storeTimes(s, sl, stamps, ok)
			return true
		}
	}
	t.hostTimes(r)
	return true
}

// queryFailed handles a status other than ready and not ready: asynchronous errors of the
// application's work are reported here.
func (t *Poller) queryFailed(s *Stream, r *Record, st backend.Status) {
	if r.fail(st) {
		t.retire(s, st)
	}
}

// retire ends the use of a stream's events. Sections continue with host times.
func (t *Poller) retire(s *Stream, st backend.Status) {
	s.Mu.Lock()
	if s.failed == backend.StatusOK {
		s.failed = st
	}
	s.Mu.Unlock()
	t.sayRetired(s, st)
}

func (t *Poller) sayRetired(s *Stream, st backend.Status) {
	if s.saidFailed {
		return
	}
	s.saidFailed = true
	if st != backend.StatusDeinitialized { // the process is ending
		t.p.Errors.Report("retired", fmt.Errorf("stream %q is retired, its sections get host times only: %w", s.label,
			&backend.StatusError{Call: "event", Status: st}))
	}
}

// stampsOf queries a section's GPU times. The section certainly started after the host requested
// its start and ended before the end event was observed; both narrow the error.
func (t *Poller) stampsOf(s *Stream, sl *Slot, seen int64) (clockmap.Stamps, bool) {
	d := s.Device
	return d.Anchorer.Read(sl.Rec.startEvent, backend.Event(sl.end.Args[0]), d.axis+sl.Rec.HostStart, d.axis+seen)
}

var errForeign = errors.New(
	"foreign code swapped the events of the section, or did not record them before the call of Recorded")

// storeTimes stores them. If the driver rejects it, the event has the reason.
func (t *Poller) storeTimes(s *Stream, sl *Slot, stamps clockmap.Stamps, ok bool) {
	r := &sl.Rec
	st := backend.StatusOK
	if !ok {
		st = s.backend.Query(backend.Event(sl.end.Args[0]))
	}
	switch {
	case ok && stamps.Fits():
		r.Stamps, r.Device, r.Timed = stamps, s.Device, true
	case st != backend.StatusOK && st != backend.StatusNotReady:
		t.queryFailed(s, r, st)
	case r.Flags&flagLent != 0:
		r.onHost(StatusDeviceError)
		r.more().Error = errForeign.Error()
		t.p.Errors.Report("foreign", fmt.Errorf("stream %q: %w", s.label, errForeign))
	case ok:
		r.onHost(statusClockJump)
	default:
		r.onHost(StatusDeviceError)
	}
	t.hostTimes(r)
}

// hostTimes gives sections without events host times.
func (t *Poller) hostTimes(r *Record) {
	r.Offset = t.p.Clock.Offset.Load()
	switch {
	case r.Timed:
	case r.Flags&FlagGiven != 0:
		if r.StartNs == justEnded {
			r.StartNs = t.p.Clock.At(r.HostStart, r.Offset) - int64(r.GPU)
		}
		r.EndNs = r.StartNs + int64(r.GPU)
		r.Timed = true
	default:
		r.StartNs, r.EndNs = t.p.Clock.At(r.HostStart, r.Offset), t.p.Clock.At(r.HostEnd, r.Offset)
	}
}

// settle passes on a slot whose section is resolved: a step's boundary to its step, a section to
// its nest.
func (t *Poller) settle(sl *Slot) {
	r := &sl.Rec
	step := r.Flags&flagStep != 0
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
		free(sl)
	default:
		root := r.root
		inner := takeOut(sl)
		free(sl)
		t.settleInner(inner, sl.stream, root)
		t.unref(root)
	}
}

// count numbers a resolved section and adds its declared work.
func (t *Poller) count(sl *Slot, r *Record) {
	t.p.statuses[r.Status].Add(1)
	if r.Flags&flagStep == 0 || !r.Step.Cancelled.Load() {
		// Numbered here and not at Start, where a counter shared by goroutines would cost them more
		// than everything else.
		r.Occurrence = r.Op.Timed.Count.Add(1) + r.Op.untimedCount()
	}
	if r.Work.Stated() {
		r.Work.Once(r.Op.Cfg.Direction)
		r.Op.Timed.Add(&r.Work, r.Op.Cfg.Direction)
	}
	if e := r.Extra; e != nil && e.Moved {
		for d := range e.Copied {
			r.Op.Timed.Copied[d].Add(e.Copied[d])
		}
	}
	switch r.Status {
	case StatusCaptured:
		t.p.drop(dropCaptured)
	case StatusDeviceError:
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

// giveUp settles a section that is no longer open and in no FIFO, with host times and status
// timeout.
func (t *Poller) giveUp(sl *Slot, now int64) {
	r := &sl.Rec
	r.onHost(statusTimeout)
	if r.HostEnd == 0 { // still open
		r.HostEnd = now
		t.p.rangeEnd(r.annotation)
		if r.Flags&flagStep == 0 {
			t.p.CountMisuse(Unended)
			if r.Step != nil {
				r.Step.Running.Add(-1)
			}
		}
	}
	t.hostTimes(r)
	t.settle(sl)
}
