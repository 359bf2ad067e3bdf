// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"runtime"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// finish ends an open section.
func (x Section) finish(w *Work) {
	sl := x.slot
	s := sl.stream
	p := s.p
	var memory int64
	var hasMemory bool
	if p.cfg.MemoryUsage && x.readsMemory() {
		memory, hasMemory = s.memoryUsage()
	}
	now := p.clock.now()
	s.mu.Lock()
	if !x.live() {
		s.mu.Unlock()
		return
	}
	r := &sl.rec
	if w != nil {
		r.work.add(w)
	}
	if r.flags&flagMemory != 0 {
		if hasMemory {
			r.memoryEnd = memory
		} else {
			r.flags &^= flagMemory
		}
	}
	r.hostEnd = now
	if r.flags&flagHost == 0 {
		s.recordEnd(sl)
	}
	annotation := r.annotation
	wait := r.flags&(flagWait|flagHost) == flagWait
	if wait {
		s.syncing.Add(1)
	}
	crowded := s.enqueue(sl, now)
	end := backend.Event(sl.end.Args[0])
	s.mu.Unlock()
	p.rangeEnd(annotation)
	if crowded || p.idle.Load() {
		p.wake()
	}
	if wait {
		s.wait(end)
	}
}

// readsMemory reports whether the section is open and has its memory use read.
func (x Section) readsMemory() bool {
	s := x.slot.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	return x.live() && x.slot.rec.flags&flagMemory != 0
}

// enqueue passes a slot to the polling thread at a time. crowded: half of the stream's slots wait for the thread, which
// has not looked for a while, so it is worth waking. The stream's mutex must be held.
func (s *Stream) enqueue(sl *slot, now int64) (crowded bool) {
	sl.state = slotPending
	s.pending.push(int32(sl.index))
	return s.pending.size >= s.crowd && now-s.p.poller.passed.Load() > int64(wakeEvery)
}

// wait blocks until the device has reached an event.
func (s *Stream) wait(e backend.Event) {
	defer s.syncing.Add(-1)
	defer s.p.guard("a section's end was waited for")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unbind, st := s.backend.Bind(s.context); st == backend.StatusOK {
		defer unbind()
		s.backend.Synchronize(e)
	}
}

// release gives a slot back. The stream's mutex must be held.
func (s *Stream) release(sl *slot) {
	e := sl.rec.extra
	if e != nil {
		e.reset()
	}
	sl.rec = record{claim: claim{extra: e}}
	sl.state = slotFree
	s.free = append(s.free, int32(sl.index))
}
