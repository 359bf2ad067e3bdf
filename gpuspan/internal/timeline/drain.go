// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"fmt"
	"sort"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
)

// batchSize is how many sections of a stream one pass reads, at most.
const batchSize = 256

// reader reads events, a batch of each stream in a pass, and counts resolved sections.
type reader struct {
	nester
	batch   [batchSize]*record.Slot    // the oldest pending slots of a stream
	stamps  [batchSize]clockmap.Stamps // stamps of plain records
	plain   [batchSize]bool
	counted Counted
	closing bool // sections dropped from now on count as dropped by Shutdown
	pressed bool // the last pass found a quarter of a stream's slots done
	more    bool // the last pass left a stream with sections that are done
}

// Drain reads what has completed on a stream, up to batchSize sections.
func (t *reader) Drain(s *record.Stream) (progress, pending bool) {
	defer func() {
		if r := recover(); r != nil { // of the backend
			t.p.Errors.Report("panic", fmt.Errorf("recovered while stream %q was read: %v", s.Label, r))
			t.retire(s, backend.StatusPanic)
			pending = true
		}
	}()
	s.Mu.Lock()
	n := min(s.Pending.Size, batchSize)
	for i := range n {
		t.batch[i] = s.Pending.At(i)
	}
	failed, all := s.Failed, s.Pending.Size
	s.Looked()
	back := s.Back
	s.Back = nil
	if n == 0 && s.Closed && len(s.Free) == len(s.Slots) && s.Syncing.Load() == 0 && s.InFlight.Load() == 0 {
		s.Mu.Unlock()
		removeStream(t.p, s)
		freeEvents(t.p, s)
		return false, false
	}
	s.Mu.Unlock()
	for _, sl := range back {
		t.giveUp(sl, t.p.Clock.Now())
	}
	if s.InFlight.Load() >= record.MaxInFlight {
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
				t.timed(s, sl, t.stamps[ready], ok)
			}
		} else if !t.read(s, sl, failed) {
			break
		}
		if sl.Rec.Status == record.StatusDeviceError {
			failed, known = s.FailedStatus(), 0
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
		s.Pending.Pop()
	}
	s.Read += uint64(ready)
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
	t.p.Statuses[record.StatusTimed].Add(int64(len(free)))
	releasePlain(s, free)
	return true, ready < all
}

// completed returns how many of the batch the device has finished. A stream completes in order, so the newest one's
// event suffices if it has completed; otherwise a binary search takes a few queries. 0 if the order is unknown, as of
// events that foreign code records: then each is queried.
func (t *reader) completed(s *record.Stream, n int) int {
	for i := range n {
		sl := t.batch[i]
		if sl.Rec.Flags&(record.FlagHost|record.FlagLent) != 0 || sl.Expired {
			n = i
			break
		}
	}
	done := func(i int) bool {
		return s.Backend.Query(backend.Event(t.batch[i].End.Args[0])) == backend.StatusOK
	}
	if n == 0 || !done(0) {
		return 0
	}
	if n == 1 || done(n-1) {
		return n
	}
	return 1 + sort.Search(n-2, func(i int) bool { return !done(i + 1) })
}

// read reads the times of a pending slot; false if the device has not completed it.
func (t *reader) read(s *record.Stream, sl *record.Slot, failed backend.Status) bool {
	r := &sl.Rec
	if sl.Expired { // its span exists
		return failed != backend.StatusOK || s.Backend.Query(backend.Event(sl.End.Args[0])) != backend.StatusNotReady
	}
	if r.Flags&record.FlagHost == 0 && failed != backend.StatusOK {
		r.OnHost(record.StatusDeviceError)
	}
	if r.Flags&record.FlagHost == 0 {
		end := backend.Event(sl.End.Args[0])
		switch st := s.Backend.Query(end); {
		case st == backend.StatusNotReady:
			return false
		case st != backend.StatusOK:
			t.queryFailed(s, r, st)
		default:
			stamps, ok := t.stampsOf(s, sl, t.p.Clock.Now())
			t.timed(s, sl, stamps, ok)
			return true
		}
	}
	t.hostTimes(r)
	return true
}

// queryFailed handles a status other than ready and not ready: asynchronous errors of the application's work are
// reported here.
func (t *reader) queryFailed(s *record.Stream, r *record.Record, st backend.Status) {
	if r.Failed(st) {
		t.retire(s, st)
	}
}

// retire ends the use of a stream's events. Sections continue with host times.
func (t *reader) retire(s *record.Stream, st backend.Status) {
	s.Mu.Lock()
	if s.Failed == backend.StatusOK {
		s.Failed = st
	}
	s.Mu.Unlock()
	t.sayRetired(s, st)
}

func (t *reader) sayRetired(s *record.Stream, st backend.Status) {
	if s.SaidFailed {
		return
	}
	s.SaidFailed = true
	if st != backend.StatusDeinitialized { // the process is ending
		t.p.Errors.Report("retired", fmt.Errorf("stream %q is retired, its sections get host times only: %w", s.Label,
			&backend.StatusError{Call: "event", Status: st}))
	}
}

// stampsOf queries a section's GPU times. The section certainly started after the host requested its start and ended
// before the end event was observed; both narrow the error.
func (t *reader) stampsOf(s *record.Stream, sl *record.Slot, seen int64) (clockmap.Stamps, bool) {
	d := s.Device
	return d.Anchorer.Read(sl.Rec.StartEvent, backend.Event(sl.End.Args[0]), d.Axis+sl.Rec.HostStart, d.Axis+seen)
}

// timed stores them. If the driver rejects it, the event has the reason.
func (t *reader) timed(s *record.Stream, sl *record.Slot, stamps clockmap.Stamps, ok bool) {
	r := &sl.Rec
	if ok && stamps.Fits() {
		r.Stamps, r.Device, r.Timed = stamps, s.Device, true
	} else if ok {
		r.OnHost(record.StatusClockJump)
	} else if st := s.Backend.Query(backend.Event(sl.End.Args[0])); st != backend.StatusOK &&
		st != backend.StatusNotReady {
		t.queryFailed(s, r, st)
	} else {
		r.OnHost(record.StatusDeviceError)
	}
	t.hostTimes(r)
}

// hostTimes gives sections without events host times.
func (t *reader) hostTimes(r *record.Record) {
	r.Offset = t.p.Clock.Offset.Load()
	switch {
	case r.Timed:
	case r.Flags&record.FlagGiven != 0:
		if r.StartNs == record.JustEnded {
			r.StartNs = t.p.Clock.At(r.HostStart, r.Offset) - int64(r.GPU)
		}
		r.EndNs = r.StartNs + int64(r.GPU)
		r.Timed = true
	default:
		r.StartNs, r.EndNs = t.p.Clock.At(r.HostStart, r.Offset), t.p.Clock.At(r.HostEnd, r.Offset)
	}
}

// settle passes on a slot whose section is resolved: a step's boundary to its step, a section to its nest.
func (t *reader) settle(sl *record.Slot) {
	r := &sl.Rec
	step := r.Flags&record.FlagStep != 0
	spanned := sl.Expired && !step // its span exists
	sl.Expired = false
	if !spanned {
		t.count(sl, r)
	}
	switch {
	case step:
		t.settleBoundary(sl)
	case r.Root == sl:
		t.settleRoot(sl)
	case spanned:
		free(sl)
	default:
		root := r.Root
		inner := takeOut(sl)
		free(sl)
		t.settleInner(inner, sl.Stream, root)
		t.unref(root)
	}
}

// count numbers a resolved section and adds its declared work.
func (t *reader) count(sl *record.Slot, r *record.Record) {
	t.p.Statuses[r.Status].Add(1)
	if r.Flags&record.FlagStep == 0 || !r.Step.Cancelled.Load() {
		// Numbered here and not at Start, where a counter shared by goroutines would cost them more than everything else.
		r.Occurrence = r.Op.Timed.Count.Add(1) + r.Op.UntimedCount()
	}
	if r.Work.Stated() {
		r.Work.Once(r.Op.Op.Cfg.Direction)
		r.Op.Timed.Add(&r.Work, r.Op.Op.Cfg.Direction)
	}
	if e := r.Extra; e != nil && e.Moved {
		for d := range e.Copied {
			r.Op.Timed.Copied[d].Add(e.Copied[d])
		}
	}
	switch r.Status {
	case record.StatusCaptured:
		t.p.Drop(record.DropCaptured)
	case record.StatusDeviceError:
		t.p.Drop(record.DropDeviceError)
		if s := sl.Stream; !s.SaidFailed {
			if st := s.FailedStatus(); st != backend.StatusOK {
				t.sayRetired(s, st)
			}
		}
	case record.StatusTimeout:
		if t.closing {
			t.p.Drop(record.DropShutdown)
		} else {
			t.p.Drop(record.DropTimeout)
		}
	}
}

// takeOut copies a record out of its slot, which does not change.
func takeOut(sl *record.Slot) *record.Record {
	r := record.RecordPool.Get().(*record.Record)
	sl.Stream.Mu.Lock()
	r.Take(sl)
	sl.Stream.Mu.Unlock()
	return r
}

// free releases a slot whose record is not needed.
func free(sl *record.Slot) {
	sl.Stream.Mu.Lock()
	sl.Stream.Release(sl)
	sl.Stream.Mu.Unlock()
}
