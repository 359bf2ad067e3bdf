// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"math"
	"runtime"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/elapsed"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// end ends a section with work, or with nil. It is a single function, because calls are a significant part of its time.
func (x Section) end(w *work.Work) {
	if w != nil && w.Wrong() {
		x.p.Misuses.InvalidWork.Add(1)
		w.Sanitize()
	}
	sl := x.Slot
	if sl == nil {
		x.endUntimed(w)
		return
	}
	s := sl.Stream
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
		s.RecordEnd(sl)
	}
	annotation := r.Annotation
	wait := r.Flags&(FlagWait|FlagHost) == FlagWait
	if wait {
		s.Syncing.Add(1)
	}
	s.Enqueue(sl)
	crowded := 2*s.Pending.Size >= len(s.Slots) && s.Crowded(now)
	end := backend.Event(sl.End.Args[0])
	s.Mu.Unlock()
	p.RangeEnd(annotation)
	if crowded || p.Polling.Idle.Load() {
		p.Polling.Wake()
	}
	if wait {
		s.wait(end)
	}
}

// Enqueue passes a slot to the polling thread. The stream's mutex must be held.
func (s *Stream) Enqueue(sl *Slot) {
	sl.State = SlotPending
	s.Pending.push(sl)
}

// Crowded reports whether to wake the polling thread although it sleeps only briefly: if it has not polled for
// wakeEvery, and once between two of its passes when half of the slots that the last pass left free have been used
// since, as in a burst shorter than wakeEvery. Waking it more often is useless: behind a device that lags, polling
// frees no slot sooner. The stream's mutex must be held.
func (s *Stream) Crowded(now int64) bool {
	if now-s.Core.Polling.Passed.Load() > int64(wakeEvery) {
		return true
	}
	if s.Pending.Size < s.Crowd {
		return false
	}
	s.Crowd = math.MaxInt
	return true
}

// wakeEvery is the time without polling after which a crowded stream wakes the polling thread.
const wakeEvery = 2 * time.Millisecond

// Looked records that the polling thread has read the stream. It is not worth waking it for less than an eighth of the
// slots. The stream's mutex must be held.
func (s *Stream) Looked() {
	n := len(s.Slots)
	s.Crowd = s.Pending.Size + max((n-s.Pending.Size)/2, n/8)
}

// wait blocks until the device has reached an event.
func (s *EventRecorder) wait(e backend.Event) {
	defer s.Syncing.Add(-1)
	defer s.Core.Guard("a section's end was waited for")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unbind, st := s.Backend.Bind(s.Context); st == backend.StatusOK {
		defer unbind()
		s.Backend.Synchronize(e)
	}
}

// Release frees a slot. The stream's mutex must be held.
func (s *Stream) Release(sl *Slot) {
	e := sl.Rec.Extra
	if e != nil {
		e.reset()
	}
	sl.Rec = Record{Claim: Claim{Extra: e}}
	sl.State = SlotFree
	s.Free = append(s.Free, sl)
}

func (x Occupant) Elapsed() (e *elapsed.Value) {
	x.with(func(extra *Extra) { e = elapsed.Ask(&extra.Elapsed) })
	return e
}
