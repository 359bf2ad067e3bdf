// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

func (x Occupant) finish(w *work.Work) {
	sl := x.Slot
	s := sl.Stream
	p := s.Core
	var memory int64
	var hasMemory bool
	if p.Cfg.MemoryUsage && x.Timed() { // else there may be no context to ask in
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
	if r.Flags&FlagHost == 0 {
		s.RecordEnd(sl)
	}
	annotation := r.Annotation
	wait := r.Flags&(FlagWait|FlagHost) == FlagWait
	if wait {
		s.Syncing.Add(1)
	}
	crowded := s.Enqueue(sl, now)
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

// Enqueue passes a slot to the polling thread at a time. crowded: it is worth waking. The stream's mutex must be held.
func (s *Stream) Enqueue(sl *Slot, now int64) (crowded bool) {
	sl.State = SlotPending
	s.Pending.push(int32(sl.Index))
	return 2*s.Pending.Size >= len(s.Slots) && s.crowded(now)
}

// crowded reports whether to wake the polling thread although it sleeps only briefly: if it has not polled for
// wakeEvery, and once between two of its passes when half of the slots that the last pass left free have been used
// since, as in a burst shorter than wakeEvery. Waking it more often is useless: behind a device that lags, polling
// frees no slot sooner. The stream's mutex must be held.
func (s *Stream) crowded(now int64) bool {
	if now-s.Core.Polling.Passed.Load() > int64(wakeEvery) {
		return true
	}
	if s.Pending.Size < s.Crowd {
		return false
	}
	s.Crowd = math.MaxInt
	return true
}

// wakeEvery is for how long the polling thread may not have looked at a stream before a crowded one wakes it.
const wakeEvery = 2 * time.Millisecond

// Looked notes that the polling thread has looked at the stream. An eighth of the slots is the least that is worth
// waking it for. The stream's mutex must be held.
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

// Release gives a slot back. The stream's mutex must be held.
func (s *Stream) Release(sl *Slot) {
	e := sl.Rec.Extra
	if e != nil {
		e.reset()
	}
	sl.Rec = Record{Claim: Claim{Extra: e}}
	sl.State = SlotFree
	s.Free = append(s.Free, int32(sl.Index))
}

// Elapsed is the measured time of a section or step. Package gpuspan allocates it within the value that callers hold.
type Elapsed struct {
	Public any // the *gpuspan.Elapsed that contains it
	done   chan struct{}
	settle sync.Once
	d      time.Duration
	known  bool
}

// NewElapsed allocates an Elapsed. Package gpuspan replaces it, so that what callers hold costs no further allocation.
var NewElapsed = func() *Elapsed { return &Elapsed{} }

// AskElapsed returns the Elapsed stored in *at and creates it on the first call.
func AskElapsed(at **Elapsed) *Elapsed {
	if *at == nil {
		*at = NewElapsed()
		(*at).done = make(chan struct{})
	}
	return *at
}

// Set stores the measurement; only the first call has an effect. A nil Elapsed was not requested.
func (e *Elapsed) Set(d time.Duration, known bool) {
	if e != nil {
		e.settle.Do(func() { e.d, e.known = d, known; close(e.done) })
	}
}

func (e *Elapsed) Done() <-chan struct{} {
	if e == nil {
		return Closed
	}
	return e.done
}

var Closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

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

func (x Occupant) Elapsed() (e *Elapsed) {
	x.with(func(extra *Extra) { e = AskElapsed(&extra.Elapsed) })
	return e
}
