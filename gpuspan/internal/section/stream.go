// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"math"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/semconv"
)

func (s *Stream) Name() string {
	if s == nil {
		return ""
	}
	return s.label
}

func (s *Stream) DeviceTimed() bool {
	if s.Host {
		return false
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.failed == backend.StatusOK && !s.closed
}

// failedStatus returns the status with which the device failed on the stream, else StatusOK.
func (s *Stream) failedStatus() backend.Status {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.failed
}

func (s *Stream) isClosed() bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.closed
}

// Filled returns how many slots there are, how many of them are in use, and how many of those wait
// to be read back.
func (s *Stream) Filled() (all, used, pending int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return len(s.Slots), len(s.Slots) - len(s.Free), s.pending.size
}

// Oldest returns the oldest section of the stream that has ended and is not read back.
func (s *Stream) Oldest(now int64) (name string, age time.Duration, id uint64, ok bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.pending.size == 0 {
		return "", 0, 0, false
	}
	r := &s.pending.At(0).Rec
	return r.Op.Cfg.Info.Name, time.Duration(now - r.HostEnd), r.ID, true
}

func (s *Stream) Close() {
	if s == nil {
		return
	}
	s.Mu.Lock()
	s.closed = true
	s.Mu.Unlock()
	s.Core.wake()
}

// Scope returns the instrumentation scope of the spans of a stream. If timed is set, their times
// are the device's.
func (s *Stream) Scope(timed bool) *Scope {
	switch {
	case s.Device == nil:
		return s.Core.scope
	case timed:
		return s.Device.timed
	}
	return s.Device.untimed
}

// MaxScopeStream bounds the scopes that differ only in a stream's number: an SDK keeps the tracer
// of each forever, and a program may create one profiler after another.
const MaxScopeStream = 64

// describe sets the attributes of the stream's spans. The scope states the first stream of a
// device, often the only one; spans of other streams state theirs themselves.
func (s *Stream) describe() {
	d := s.Device
	if d != nil && d.stream == 0 {
		if d.stream = -1; s.ID <= MaxScopeStream {
			d.stream = s.ID
		}
	}
	if d == nil || d.stream != s.ID {
		s.Attrs = append(s.Attrs, semconv.GPUStreamIDKey.Int(s.ID))
	}
	if d != nil {
		s.Attrs = append(s.Attrs, d.repeated...)
	}
}

// prepare creates the first slots. events has two for each, or is nil.
func prepare(s *Stream, events []backend.Event) {
	s.addSlots(s.Core.Cfg.Slots, events)
	s.describe()
}

// moreSlots returns how many slots the stream needs in addition to those it has: as many again, up
// to Settings.MostSlots, if half of them are pending after they have been read, or none is free.
// lost is how many sections found none so far.
func (s *Stream) moreSlots() (more int, lost int64) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	n := len(s.Slots)
	if !s.closed && (2*s.pending.size >= n || len(s.Free) == 0) {
		more = min(n, s.Core.Cfg.MostSlots()-n)
	}
	return more, s.lost
}

// addSlots adds n slots. events has two for each, or is nil.
func (s *Stream) addSlots(n int, events []backend.Event) {
	slots := make([]Slot, n)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for i := range slots {
		sl := &slots[n-1-i]
		sl.stream = s
		sl.refs.Store(1)
		if events != nil {
			sl.start.Args = [2]uintptr{uintptr(events[2*i]), s.handle}
			sl.end.Args = [2]uintptr{uintptr(events[2*i+1]), s.handle}
		}
		s.Slots = append(s.Slots, sl)
		s.Free = append(s.Free, sl)
	}
	s.Free = slices.Grow(s.Free, len(s.Slots)-len(s.Free)) // Release must not allocate
	s.pending.grow(len(s.Slots))
	s.Looked()
}

// take takes a free slot for a section of an operation; nil if there is none. It can be inlined.
// The stream's mutex must be held.
func (s *Stream) take(st *OpState) *Slot {
	last := len(s.Free) - 1
	if last < 0 || s.closed {
		return nil
	}
	sl := s.Free[last]
	s.Free = s.Free[:last]
	s.lastID++
	r := &sl.Rec
	r.ID, r.Op, sl.state = s.lastID, st, slotOpen
	r.HostEnd, r.annotation, r.Work = 0, 0, work.Work{} // of a plain section before
	return sl
}

// noSlot counts that Take found none, and returns why. The stream's mutex must be held.
func (s *Stream) noSlot() dropReason {
	if s.closed {
		return dropShutdown
	}
	s.lost++
	return dropPoolFull
}

// release frees a slot. The stream's mutex must be held.
func (s *Stream) release(sl *Slot) {
	e := sl.Rec.Extra
	if e != nil {
		e.reset()
	}
	sl.Rec = Record{Extra: e}
	sl.state = slotFree
	s.Free = append(s.Free, sl)
}

// enqueue passes a slot to the polling thread, and wakes it if necessary. It unlocks the stream's
// mutex, which must be held.
func (s *Stream) enqueue(sl *Slot, now int64) {
	p, annotation := s.Core, sl.Rec.annotation
	sl.state = SlotPending
	s.pending.push(sl)
	crowded := 2*s.pending.size >= len(s.Slots) && s.crowded(now)
	s.Mu.Unlock()
	p.rangeEnd(annotation)
	if crowded || p.idle.Load() {
		p.wake()
	}
}

// crowded reports whether to wake the polling thread although it sleeps only briefly: if it has not
// polled for wakeEvery, and once between two of its passes when half of the slots that the last
// pass left free have been used since, as in a burst shorter than wakeEvery. Waking it more often
// is useless: behind a device that lags, polling frees no slot sooner. The stream's mutex must be
// held.
func (s *Stream) crowded(now int64) bool {
	if now-s.Core.passed.Load() > int64(wakeEvery) {
		return true
	}
	if s.pending.size < s.crowd {
		return false
	}
	s.crowd = math.MaxInt
	return true
}

// wakeEvery is the time without polling after which a crowded stream wakes the polling thread.
const wakeEvery = 2 * time.Millisecond

// Looked records that the polling thread has read the stream. It is not worth waking it for less
// than an eighth of the slots. The stream's mutex must be held.
func (s *Stream) Looked() {
	n := len(s.Slots)
	s.crowd = s.pending.size + max((n-s.pending.size)/2, n/8)
}

// Next returns the next placed section that was read by then, for the exporter; nil: there is none.
func (s *Stream) Next(until int64) *Stamped {
	if s.emitted == len(s.Emitting) {
		s.emitMu.Lock()
		s.Emitting, s.Emits, s.emitted = s.Emits, s.Emitting[:0], 0
		s.emitMu.Unlock()
	}
	if s.emitted == len(s.Emitting) || s.Emitting[s.emitted].Read > until {
		return nil
	}
	s.emitted++
	return &s.Emitting[s.emitted-1]
}

// Exported states that n records of the stream have become spans.
func (s *Stream) Exported(n int) {
	if n > 0 && s.InFlight.Add(-int32(n)) == 0 && s.isClosed() {
		s.Core.wake() // it can be dropped
	}
}

func (r *ring) push(sl *Slot) {
	r.buf[r.index(r.size)] = sl
	r.size++
}

// grow allocates n slots.
func (r *ring) grow(n int) {
	buf := make([]*Slot, n)
	for i := range r.size {
		buf[i] = r.At(i)
	}
	r.buf, r.head = buf, 0
}

func (r *ring) pop() {
	r.head = r.index(1)
	r.size--
}

func (r *ring) At(i int) *Slot { return r.buf[r.index(i)] }

// index returns the position of the i-th element. It compares instead of dividing, because a
// division would cost more than the rest of push.
func (r *ring) index(i int) int {
	if i += r.head; i >= len(r.buf) {
		i -= len(r.buf)
	}
	return i
}

func (sl *Slot) unchain() {
	if sl.refs.Add(-1) > 0 {
		return
	}
	sl.refs.Store(1) // as in free slots
	s := sl.stream
	s.Mu.Lock()
	s.release(sl)
	s.Mu.Unlock()
}

func (sl *Slot) hold() {
	sl.stream.Mu.Lock()
	sl.state = SlotHeld
	sl.stream.Mu.Unlock()
}

// take copies a slot's record. The record keeps the slot's extra, the slot gets the record's empty
// one. The stream's mutex must be held, unless the section is outermost and contains no other.
func (r *Record) take(sl *Slot) {
	spare := r.Extra
	*r = sl.Rec
	sl.Rec.Extra = spare
}

// more returns the record's extra for modification. The stream's mutex must be held.
func (r *Record) more() *Extra {
	if r.Extra == nil {
		r.Extra = &Extra{}
	}
	r.Flags |= flagExtra
	return r.Extra
}

// Quiet reports whether the section only kept events warm: it counts, but its times are discarded.
func (r *Record) Quiet() bool { return r.Step != nil && !r.Step.Recorded }

// onHost switches a section to host times.
func (r *Record) onHost(status TimingStatus) {
	r.Flags |= FlagHost
	r.Status = status
}

// fail switches a section to host times after a status of the driver; it reports whether the
// device failed, as opposed to a graph capture.
func (r *Record) fail(st backend.Status) bool {
	if st.Capture() {
		r.onHost(StatusCaptured)
		return false
	}
	r.onHost(StatusDeviceError)
	return true
}
