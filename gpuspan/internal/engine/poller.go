// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
)

// The thread sleeps until the next anchor is due, sixty milliseconds at most: sections wait for an anchor anyway, so
// what a pass reads the same pass places, times do not depend on when they are read, waking up costs more than reading
// a dozen sections, and exporters wait for seconds. The only reason to hurry is that slots must come back, so it sleeps
// for less while a pass finds a quarter of a stream's slots done, and is woken by Stream.crowded.
const (
	minSleep    = 100 * time.Microsecond
	maxSleep    = 60 * time.Millisecond
	wakeEvery   = 2 * time.Millisecond
	idleAfter   = 5 // empty passes before the thread sleeps until woken: waking it costs a section microseconds
	tidyEvery   = time.Second
	reclaimTick = 10 * time.Second
	batchSize   = 256
	closeLimit  = time.Second // what Shutdown waits for everything to be freed, at least
)

// poller reads events back. It owns one goroutine, locked to its OS thread, on which all driver calls happen that are
// not records. Code of the application never runs on it, but for its error handler.
type poller struct {
	worker
	given   []*device // that the application named, without a backend
	p       *Profiler
	back    backend.Backend // nil: host times only
	closed  bool            // back is
	left    atomic.Bool     // New went on without this thread, which then closes the backend by itself
	closing bool            // what is given up from now on is so because of Shutdown
	locked  bool
	cpuNs   atomic.Int64 // processor time of the thread as of the last second
	passed  atomic.Int64 // hostClock when the last pass began

	batch     [batchSize]int32           // the oldest pending slots of a stream
	stamps    [batchSize]clockmap.Stamps // of those that are plain
	plain     [batchSize]bool
	counted   counted
	nests     []*nest // empty ones
	waiting   []*slot // outermost sections that wait for sections in them
	heldNow   int     // records held by waiting nests
	tidied    time.Time
	sleep     time.Duration
	longest   time.Duration // that it sleeps, unless it is idle
	pressed   bool          // the last pass found a quarter of a stream's slots done
	more      bool          // the last pass left a stream with sections that are done
	crowdedAt int64         // hostClock when a crowded stream last had an anchor of its own
	passes    int           // since sections were placed
	busy      bool          // since the last upkeep a pass, also one of Flush, found a section that has ended
}

func newPoller(p *Profiler, b backend.Backend) *poller {
	return &poller{worker: newWorker(), p: p, back: b, sleep: minSleep, longest: maxSleep}
}

func (t *poller) run() {
	t.keep(func() bool {
		if t.back != nil {
			// Never unlocked: the thread's capture mode and context are the library's own, so it must not go back to
			// the runtime.
			runtime.LockOSThread()
			if t.locked { // a thread before this one was lost
				defer t.p.guard("a new polling thread was prepared")
				_ = t.back.ThreadInit()
			}
			t.locked = true
		}
		quit := t.loop()
		if quit && t.left.Load() {
			t.p.devices.set(nil)
			t.closeBackend()
		}
		return quit
	})
}

// loop works until told to quit. A panic ends it early; those that are foreseen are recovered closer to their cause.
func (t *poller) loop() (quit bool) {
	defer func() {
		if r := recover(); r != nil {
			t.p.errors.report("panic", fmt.Errorf("recovered on the polling thread: %v", r))
			quit = t.rest()
		}
	}()
	empty := 0
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		t.pass()
		busy := t.busy
		t.busy = false
		wait := t.upkeep(busy)
		if t.passes++; !t.more || t.passes >= placeTogether {
			t.passes = 0
			t.place(false)
		}
		if t.pressed {
			t.sleep = max(t.sleep/2, minSleep)
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
			sleep = min(sleep, max(wait, minSleep))
		}
		if t.more {
			select { // those who call have their turn between two passes
			case f := <-t.calls:
				f()
			case <-t.quit:
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
		case <-t.wakeups:
			if idle {
				empty = 0
			}
		case f := <-t.calls:
			f()
			empty = 0
		case <-t.quit:
			return true
		}
		select {
		case <-t.quit: // also of a thread that was given up while it hung
			return true
		default:
		}
		if idle {
			t.passed.Store(t.p.clock.now()) // before the flag: the watchdog must not take the sleep for a hang
			t.p.idle.Store(false)
		}
	}
}

// rest is the pause after a panic. The thread hears calls and its end in it, for it may not get to them before the next
// panic, and the next.
func (t *poller) rest() (quit bool) {
	select {
	case <-time.After(maxSleep):
	case f := <-t.calls:
		f()
	case <-t.quit:
		return true
	}
	return false
}

func (t *poller) anyPending() bool {
	return slices.ContainsFunc(t.p.streamList.all(), func(s *Stream) bool {
		_, pending := s.filled()
		return pending > 0 || len(s.unplaced) > 0
	}) || t.nestsPending()
}

// nestsPending reports whether a nest waits for its deadline. Those that have had theirs need no look: an inner section
// wakes the thread when it ends after all.
func (t *poller) nestsPending() bool {
	return slices.ContainsFunc(t.waiting, func(sl *slot) bool { return sl.nest == nil })
}

func (t *poller) anyUsed() bool {
	return slices.ContainsFunc(t.p.streamList.all(), func(s *Stream) bool {
		used, _ := s.filled()
		return used > 0
	})
}

// pass looks at every stream once. Each may use up its budget and no more, so that none keeps this thread from the
// others, from anchors and from those who call.
func (t *poller) pass() {
	t.passed.Store(t.p.clock.now())
	t.p.clock.observe()
	t.pressed, t.more = false, false
	for _, s := range t.p.streamList.all() {
		progress, pending := t.drain(s)
		t.busy = t.busy || progress || pending
	}
	if len(t.waiting) > 0 {
		t.checkWaiting(t.p.clock.now(), false)
	}
	t.busy = t.busy || t.nestsPending()
}

// upkeep does what is due: anchors, the watchdog, counts of untimed sections. It returns how soon it wants to be called
// again though nothing happens; 0: not at all.
func (t *poller) upkeep(busy bool) (wait time.Duration) {
	for _, d := range t.p.devices.all() {
		if d.anchorer == nil {
			continue
		}
		w, st := t.maintain(d, busy || t.p.loops.Load() > 0)
		if st != backend.StatusOK && st != d.failed && st != backend.StatusDeinitialized {
			t.p.errors.report("anchor", fmt.Errorf("device %d: %w", d.info.Ordinal,
				&backend.StatusError{Call: "cannot anchor the clock", Status: st}))
		}
		d.failed = st
		if ppm, ok := d.anchorer.Map().Drift(); ok {
			d.drift.Store(-ppm)
		}
		if w > 0 && (wait == 0 || w < wait) {
			wait = w
		}
	}
	now := time.Now()
	if now.Sub(t.tidied) >= tidyEvery {
		t.tidied = now
		t.tidy()
	}
	return wait
}

// maintain makes an anchor if one is due.
func (t *poller) maintain(d *device, busy bool) (wait time.Duration, st backend.Status) {
	st = backend.StatusPanic // should the backend panic
	defer t.p.guard("a clock was anchored")
	return d.anchorer.Maintain(busy)
}

// tidy does what is due once a second.
func (t *poller) tidy() {
	if d, ok := threadCPU(); ok && t.locked {
		t.cpuNs.Store(int64(d))
	}
	for _, d := range t.p.devices.all() {
		if d.anchorer != nil {
			d.anomalies.Store(d.anchorer.Map().Anomalies())
		}
	}
	t.p.emitter.asked.Store(true)
	t.p.emitter.wake()
	now := t.p.clock.now()
	for _, s := range t.p.streamList.all() {
		t.expire(s, now)
		t.reclaim(s)
	}
}

// flush waits until what had ended at the call is read back and its spans have ended. What ends later does not hold it
// up.
func (t *poller) flush(ctx context.Context) error {
	var targets map[*Stream]uint64
	var until int64
	left := -1 // not known
	for {
		n := 0
		err := t.call(ctx, func() {
			if targets == nil {
				targets = t.ended()
			}
			t.pass()
			t.anchorNow()
			t.place(false)
			if n = t.unread(targets); n == 0 && until == 0 {
				until = t.p.clock.now()
			}
			n += t.unplaced(until)
		})
		if err == nil && until != 0 {
			waiting := 0
			err = t.p.emitter.call(ctx, func() {
				waiting = t.p.emitter.drainUntil(until)
				t.p.emitter.reportUntimed()
			})
			if err == nil {
				n += waiting
			}
		}
		switch {
		case err == nil && n == 0, errors.Is(err, errStopped):
			return nil
		case err == nil:
			left = n
			select {
			case <-time.After(minSleep):
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		if left < 0 {
			return fmt.Errorf("flush: the polling thread did not answer: %w", err)
		}
		return fmt.Errorf("flush: %d sections are not read back: %w", left, err)
	}
}

// ended is how many sections of each stream have ended.
func (t *poller) ended() map[*Stream]uint64 {
	out := map[*Stream]uint64{}
	for _, s := range t.p.streamList.all() {
		s.mu.Lock()
		out[s] = s.read + uint64(s.pending.size)
		s.mu.Unlock()
	}
	return out
}

// unread counts those that are not read back, but for what the device does not finish.
func (t *poller) unread(targets map[*Stream]uint64) (n int) {
	for s, target := range targets {
		s.mu.Lock()
		for i := range min(s.pending.size, int(max(int64(target-s.read), 0))) {
			if !s.slots[s.pending.at(i)].expired {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}

// unplaced counts what was read by then and waits for an anchor.
func (t *poller) unplaced(until int64) (n int) {
	for _, s := range t.p.streamList.all() {
		for i := range s.unplaced {
			if s.unplaced[i].read <= until {
				n++
			}
		}
	}
	return n
}

// stop flushes, gives up what is left, and frees everything. Where the driver hangs, or the application's code that
// spans are handed to, what is held is left to the process's end.
func (t *poller) stop(ctx context.Context) error {
	e := t.p.emitter
	err := t.flush(ctx)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit) // also where flushing has used up ctx
	defer cancel()
	if until, ok := ctx.Deadline(); ok && time.Until(until) > closeLimit && ctx.Err() == nil {
		limit = ctx
	}
	hangs := t.call(limit, t.giveUpAll)
	close(e.quit)
	select {
	case <-e.done:
	case <-limit.Done():
		err = errors.Join(err, errors.New("shutdown: the code that spans are handed to hangs, and some are left behind"))
	}
	if hangs == nil {
		hangs = t.call(limit, t.close)
	}
	close(t.quit)
	if hangs != nil && !errors.Is(hangs, errStopped) {
		return errors.Join(err, errors.New("shutdown: the polling thread hangs in the driver and was left behind"))
	}
	<-t.done
	return err
}
