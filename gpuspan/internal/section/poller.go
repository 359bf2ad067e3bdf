// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/cpu"
	"github.com/otelgpu/otelgpu/gpuspan/internal/worker"
)

// The thread sleeps until the next anchor is due, sixty milliseconds at most: sections wait for an
// anchor anyway, so what a pass reads the same pass places, times do not depend on when they are
// read, waking up costs more than reading a dozen sections, and exporters wait for seconds. The
// only reason to hurry is that slots must come back, so it sleeps for less while a pass finds a
// quarter of a stream's slots done, and is woken by Stream.Crowded.
const (
	MinSleep    = 100 * time.Microsecond
	MaxSleep    = 60 * time.Millisecond
	idleAfter   = 5 // empty passes before the thread sleeps until woken: waking it costs a section microseconds
	tidyEvery   = time.Second
	reclaimTick = 10 * time.Second
	CloseLimit  = time.Second // minimum time that Shutdown waits until everything is freed
)

// NewPoller returns a Poller, which does nothing before Run.
func NewPoller(p *Core, spare *SpareNests) *Poller {
	return &Poller{
		Worker: worker.New(p.polling), p: p, back: p.backend, spare: spare, sleep: MinSleep, longest: MaxSleep,
	}
}

// Run runs until Quit is closed.
func (t *Poller) Run() {
	t.Keep(func() bool {
		if t.back != nil {
			// Never unlocked: the thread's capture mode and context are the library's own, so it
			// must not go back to the runtime.
			runtime.LockOSThread()
			t.locked = true
			t.initThread()
		}
		return t.loop()
	})
}

func (t *Poller) initThread() {
	defer t.p.Guard("the polling thread was prepared")
	if err := t.back.ThreadInit(); err != nil {
		t.p.Errors.Report("thread", fmt.Errorf("cannot prepare the polling thread: %w", err))
	}
}

// loop works until told to quit. A panic ends it early; expected panics are recovered closer to
// their cause.
func (t *Poller) loop() (quit bool) {
	defer func() {
		if r := recover(); r != nil {
			t.p.Errors.Report("panic", fmt.Errorf("recovered on the polling thread: %v", r))
			quit = t.rest()
		}
	}()
	empty := 0
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		t.Pass()
		busy := t.busy
		t.busy = false
		wait := t.upkeep(busy)
		if t.passes++; !t.more || t.passes >= placeTogether {
			t.passes = 0
			t.Place(false)
		}
		if t.pressed {
			t.sleep = max(t.sleep/2, MinSleep)
		} else {
			t.sleep = min(2*t.sleep, t.longest)
		}
		if busy {
			empty = 0
		} else {
			empty++
		}
		sleep := t.sleep
		if wait > 0 { // the first anchors are closer together than passes
			sleep = min(sleep, max(wait, MinSleep))
		}
		if t.more {
			select { // requests from callers are served between two passes
			case f := <-t.Calls:
				f()
			case <-t.Quit:
				return true
			default:
			}
			empty = 0
			continue
		}
		idle := empty > idleAfter
		if idle {
			t.p.idle.Store(true)
			// A section that ended before it saw the flag has not woken this thread.
			if t.anyPending() {
				t.p.idle.Store(false)
				empty = 0
				continue
			}
			sleep = time.Hour
			if wait > 0 {
				sleep = wait
			}
			if t.anyUsed() {
				sleep = min(sleep, reclaimTick)
			}
		}
		timer.Reset(sleep)
		select {
		case <-timer.C:
		case <-t.Wakeups:
			if idle {
				empty = 0
			}
		case f := <-t.Calls:
			f()
			empty = 0
		case <-t.Quit:
			return true
		}
		select {
		case <-t.Quit: // also of a thread that Shutdown abandoned while it hung
			return true
		default:
		}
		if idle {
			t.p.passed.Store(t.p.Clock.Now()) // before the flag: the watchdog must not take the sleep for a hang
			t.p.idle.Store(false)
		}
	}
}

// rest returns the pause after a panic. The thread serves calls and its end during it, because it
// may not reach them before the next panic.
func (t *Poller) rest() (quit bool) {
	select {
	case <-time.After(MaxSleep):
	case f := <-t.Calls:
		f()
	case <-t.Quit:
		return true
	}
	return false
}

func (t *Poller) anyPending() bool {
	return slices.ContainsFunc(t.p.streamList.all(), func(s *Stream) bool {
		_, _, pending := s.Filled()
		return pending > 0 || len(s.Unplaced) > 0
	}) || t.nestsPending()
}

func (t *Poller) anyUsed() bool {
	return slices.ContainsFunc(t.p.streamList.all(), func(s *Stream) bool {
		_, used, _ := s.Filled()
		return used > 0
	})
}

// Pass visits every stream once. Each has a budget, so that none keeps this thread from the others,
// from anchors and from callers.
func (t *Poller) Pass() {
	t.p.passed.Store(t.p.Clock.Now())
	t.p.Clock.Observe()
	t.pressed, t.more = false, false
	for _, s := range t.p.streamList.all() {
		progress, pending := t.Drain(s)
		t.busy = t.busy || progress || pending
		t.grow(s)
	}
	if len(t.waiting) > 0 {
		t.CheckWaiting(t.p.Clock.Now(), false)
	}
	t.busy = t.busy || t.nestsPending()
}

// grow gives a stream more slots if it needs them, and reports the first sections that found none.
func (t *Poller) grow(s *Stream) {
	more, lost := s.moreSlots()
	if more > 0 && !s.fixed && s.InFlight.Load() < MaxInFlight { // behind slow exports more would fill up, too
		t.addSlots(s, more)
	}
	if lost == 0 || s.saidFull {
		return
	}
	s.saidFull = true
	t.p.Errors.Report("slots", fmt.Errorf("stream %q: %d sections were counted and not timed, because all of its slots "+
		"were open or pending; phases that lost one are omitted (it has %d slots now and may have %d: raise `slots`)",
		s.label, lost, len(s.Slots), t.p.Cfg.MostSlots()))
}

func (t *Poller) addSlots(s *Stream, n int) {
	s.fixed = true // unless it works
	defer t.p.Guard("more events were created")
	var events []backend.Event
	if !s.Host && s.failedStatus() == backend.StatusOK {
		events = make([]backend.Event, 2*n)
		if st := s.backend.NewEvents(s.context, events); st != backend.StatusOK {
			t.p.Errors.Report("events", fmt.Errorf("stream %q keeps its %d slots: %w", s.label, len(s.Slots),
				&backend.StatusError{Call: fmt.Sprintf("cannot make %d more events", len(events)), Status: st}))
			return
		}
	}
	s.addSlots(n, events)
	s.fixed = false
}

// upkeep does what is due: anchors, the watchdog, counts of untimed sections. It returns when to
// call it again at the latest; 0: no need.
func (t *Poller) upkeep(busy bool) (wait time.Duration) {
	for _, d := range t.p.deviceList.all() {
		if d.Anchorer == nil {
			continue
		}
		w, st := t.maintain(d, busy || t.p.loops.Load() > 0)
		if st != backend.StatusOK && st != d.failed && st != backend.StatusDeinitialized {
			t.p.Errors.Report("anchor", fmt.Errorf("device %d: %w", d.Info.Ordinal,
				&backend.StatusError{Call: "cannot anchor the clock", Status: st}))
		}
		d.failed = st
		if n := d.Anchorer.Restarts(); n != d.restarts {
			d.restarts = n
			t.p.Errors.Report("clock", fmt.Errorf("device %d: its clock jumped backward, as after a reset or a restored "+
				"checkpoint; sections around the jump are placed between their Start and the time at which their end was seen",
				d.Info.Ordinal))
		}
		if ppm, ok := d.Anchorer.Map().Drift(); ok {
			d.drift.store(-ppm)
		}
		if w > 0 && (wait == 0 || w < wait) {
			wait = w
		}
	}
	now := time.Now()
	if now.Sub(t.tidied) >= tidyEvery {
		t.tidied = now
		t.Tidy()
	}
	return wait
}

// maintain takes an anchor if one is due.
func (t *Poller) maintain(d *Device, busy bool) (wait time.Duration, st backend.Status) {
	st = backend.StatusPanic // in case the backend panics
	defer t.p.Guard("a clock was anchored")
	return d.Anchorer.Maintain(busy)
}

// Tidy does what is due once a second.
func (t *Poller) Tidy() {
	if d, ok := cpu.ThreadTime(); ok && t.locked {
		t.p.cpuNs.Store(int64(d))
	}
	for _, d := range t.p.deviceList.all() {
		if d.Anchorer != nil {
			d.anomalies.Store(d.Anchorer.Map().Anomalies())
		}
	}
	t.p.untimed.Store(true)
	worker.Wake(t.p.exporting)
	now := t.p.Clock.Now()
	for _, s := range t.p.streamList.all() {
		t.expire(s, now)
		t.reclaim(s)
	}
}

// Ended returns how many sections of each stream have ended.
func (t *Poller) Ended() map[*Stream]uint64 {
	out := map[*Stream]uint64{}
	for _, s := range t.p.streamList.all() {
		s.Mu.Lock()
		out[s] = s.read + uint64(s.pending.size)
		s.Mu.Unlock()
	}
	return out
}

// Unread counts records not yet read, except records that the device never finishes.
func (t *Poller) Unread(targets map[*Stream]uint64) (n int) {
	for s, target := range targets {
		s.Mu.Lock()
		for i := range min(s.pending.size, int(max(int64(target-s.read), 0))) {
			if !s.pending.At(i).expired {
				n++
			}
		}
		s.Mu.Unlock()
	}
	return n
}

// GiveUpAll abandons everything that is not resolved and passes it on.
func (t *Poller) GiveUpAll() {
	now := t.p.Clock.Now()
	t.Pass()
	t.closing = true
	for _, s := range t.p.streamList.all() {
		s.Mu.Lock()
		s.closed = true
		var pending []*Slot
		for s.pending.size > 0 {
			pending = append(pending, s.pending.At(0))
			s.pending.pop()
		}
		for _, sl := range s.Slots {
			if sl.state == slotOpen {
				sl.state = SlotHeld
				pending = append(pending, sl)
			}
		}
		s.Mu.Unlock()
		for _, sl := range pending {
			t.giveUp(sl, now)
		}
	}
	t.CheckWaiting(now, true)
	t.AnchorNow()
	t.Place(true)
}

func (t *Poller) Close() {
	for _, s := range t.p.streamList.all() {
		freeEvents(t.p, s)
	}
	for _, d := range t.p.deviceList.all() {
		t.closeDevice(d)
	}
	if t.back != nil {
		closeBackend(t.p, t.back)
	}
}

func (t *Poller) closeDevice(d *Device) {
	defer t.p.Guard("a device's clock was closed")
	if d.Anchorer != nil {
		d.Anchorer.Close()
		d.Anchorer = nil
	}
}
