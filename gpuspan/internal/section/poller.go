// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
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

// Poller owns one goroutine, locked to its OS thread, on which all driver calls run except
// recording. Code of the application never runs on it, except its error handler. It registers
// streams, reads their events, keeps outermost sections until those inside them are resolved, and
// places them on the wall clock.
type Poller struct {
	Worker
	p      *Core
	back   backend.Backend // nil: host times only
	given  []*Device       // named by the application, without a backend
	locked bool            // to its thread

	tidied  time.Time
	sleep   time.Duration
	longest time.Duration // its sleep, unless it is idle
	passes  int           // since sections were placed
	busy    bool          // since the last upkeep a pass, also one of Flush, found an ended section
	pressed bool          // the last pass found a quarter of a stream's slots done
	more    bool          // the last pass left a stream with sections that are done
	closing bool          // sections dropped from now on count as dropped by Shutdown

	batch   [batchSize]*Slot           // the oldest pending slots of a stream
	stamps  [batchSize]clockmap.Stamps // stamps of plain records
	plain   [batchSize]bool
	counted Counted

	spare   *SpareNests
	nests   []*Nest // empty ones
	waiting []*Slot // outermost sections that wait for sections in them
	heldNow int     // records retained by waiting nests

	crowdedAt int64 // hostClock when a crowded stream last took a separate anchor
}

// NewPoller returns a Poller, which does nothing before Run.
func NewPoller(p *Core, spare *SpareNests) *Poller {
	return &Poller{
		Worker: newWorker(p.polling), p: p, back: p.backend, spare: spare, sleep: MinSleep, longest: MaxSleep,
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
	if d, ok := ThreadCPU(); ok && t.locked {
		t.p.cpuNs.Store(int64(d))
	}
	for _, d := range t.p.deviceList.all() {
		if d.Anchorer != nil {
			d.anomalies.Store(d.Anchorer.Map().Anomalies())
		}
	}
	t.p.untimed.Store(true)
	wakeUp(t.p.exporting)
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
