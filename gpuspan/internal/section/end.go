// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"math"
	"runtime"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/elapsed"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// end ends a section with work, or with nil. It is a single function, because calls are a
// significant part of its time.
func (x Section) end(w *work.Work) {
	if w != nil && w.Wrong() {
		x.p.CountMisuse(InvalidWork)
		w.Sanitize()
	}
	sl := x.Slot
	if sl == nil {
		x.endUntimed(w)
		return
	}
	s := sl.stream
	p := s.Core
	var memory int64
	var hasMemory bool
	if p.Cfg.MemoryUsage && x.Timed() { // otherwise there may be no context for the query
		memory, hasMemory = s.memoryUsage()
	}
	now := p.Clock.Now()
	s.Mu.Lock()
	if !x.live() {
		s.Mu.Unlock()
		return
	}
	r := &sl.Rec
	if w != nil {
		r.Work.Add(w)
	}
	if r.Flags&FlagMemory != 0 {
		if hasMemory {
			r.MemoryEnd = memory
		} else {
			r.Flags &^= FlagMemory
		}
	}
	r.HostEnd = now
	if r.Step != nil {
		r.Step.Running.Add(-1)
	}
	if r.Flags&FlagHost == 0 {
		s.recordEnd(sl)
	}
	wait := r.Flags&(FlagWait|FlagHost) == FlagWait
	if wait {
		s.syncing.Add(1)
	}
	end := backend.Event(sl.end.Args[0])
	s.enqueue(sl, now)
	if wait {
		s.wait(end)
	}
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

func (x Section) Elapsed() (e *elapsed.Value) {
	x.with(func(extra *Extra) { e = elapsed.Ask(&extra.Elapsed) })
	return e
}
