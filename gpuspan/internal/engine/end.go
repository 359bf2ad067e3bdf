// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

func (x Section) finish(w *Work) {
	sl := x.slot
	s := sl.stream
	p := s.p
	var memory int64
	var hasMemory bool
	if p.cfg.MemoryUsage && x.Timed() { // else there may be no context to ask in
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
		p.poller.wake()
	}
	if wait {
		s.wait(end)
	}
}

// enqueue passes a slot to the polling thread at a time. crowded: it is worth waking. The stream's mutex must be held.
func (s *Stream) enqueue(sl *slot, now int64) (crowded bool) {
	sl.state = slotPending
	s.pending.push(int32(sl.index))
	return 2*s.pending.size >= len(s.slots) && s.crowded(now)
}

// crowded reports whether the polling thread is to be woken though it sleeps for a while only: where it has not looked
// for wakeEvery, and once between two of its passes where half of the slots that the last one left free have been used
// up since, as a burst does that is over before wakeEvery. More would be for nothing: behind a device that lags no slot
// comes back sooner because somebody asks. The stream's mutex must be held.
func (s *Stream) crowded(now int64) bool {
	if now-s.p.poller.passed.Load() > int64(wakeEvery) {
		return true
	}
	if s.pending.size < s.crowd {
		return false
	}
	s.crowd = math.MaxInt
	return true
}

// looked notes that the polling thread has looked at the stream. An eighth of the slots is the least that is worth
// waking it for. The stream's mutex must be held.
func (s *Stream) looked() {
	n := len(s.slots)
	s.crowd = s.pending.size + max((n-s.pending.size)/2, n/8)
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

type Elapsed struct {
	done   chan struct{}
	settle sync.Once
	d      time.Duration
	known  bool
}

// asked is the Elapsed that stands at a place, from the first time on that somebody asks.
func asked(at **Elapsed) *Elapsed {
	if *at == nil {
		*at = &Elapsed{done: make(chan struct{})}
	}
	return *at
}

// set says what was measured; the first call counts. A nil Elapsed was not asked for.
func (e *Elapsed) set(d time.Duration, known bool) {
	if e != nil {
		e.settle.Do(func() { e.d, e.known = d, known; close(e.done) })
	}
}

func (e *Elapsed) Done() <-chan struct{} {
	if e == nil {
		return closed
	}
	return e.done
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (e *Elapsed) Get() (d time.Duration, ok bool) {
	if e == nil {
		return 0, false
	}
	select {
	case <-e.done:
		return e.d, e.known
	default:
		return 0, false
	}
}

func (x Section) Elapsed() (e *Elapsed) {
	x.with(func(extra *extra) { e = asked(&extra.elapsed) })
	return e
}

func (st *Step) Elapsed() (e *Elapsed) {
	st.change(true, func() {
		if st.timed {
			e = asked(&st.elapsed)
		}
	})
	return e
}
