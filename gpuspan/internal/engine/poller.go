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

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// The thread sleeps for ten milliseconds between passes: times do not depend on when they are read, waking up costs more than reading a
// section, and exporters wait for seconds anyway. The only reason to hurry is that slots must come back, so it sleeps for less while a
// pass finds a quarter of a stream's slots done, and sections wake it when half of them wait. More would be for nothing: behind a device that
// lags no slot comes back sooner because somebody asks.
const (
	minSleep    = 100 * time.Microsecond
	maxSleep    = 10 * time.Millisecond
	wakeEvery   = 2 * time.Millisecond
	idleAfter   = 20 // empty passes before the thread sleeps until woken: waking it costs a section microseconds
	tidyEvery   = time.Second
	reclaimTick = 10 * time.Second
	batchSize   = 64
	closeLimit  = time.Second // what Shutdown waits for everything to be freed, at least
)

var errStopped = errors.New("the profiler is shut down")

// poller reads events back. It owns one goroutine, locked to its OS thread, on which all driver calls happen that are not
// records.
type poller struct {
	given   []*device // that the application named, without a backend
	p       *Profiler
	calls   chan func() // to be run on the thread
	quit    chan struct{}
	done    chan struct{}
	closing bool // what is given up from now on is so because of Shutdown
	locked  bool
	cpuNs   atomic.Int64
	passed  atomic.Int64 // hostClock when the last pass began

	batch   [batchSize]int32
	waiting []*slot // outermost sections that wait for sections in them
	sealed  []*Step // ended steps that wait for their sections
	spare   []*record
	heldNow int // records held by waiting nests
	tidied  time.Time
	sleep   time.Duration
	pressed bool // the last pass found a quarter of a stream's slots done
	busy    bool // since the last upkeep a pass, also one of Flush, found a section that has ended

	line          []byte // of the log of outputs
	outputsFailed bool

	attrs []attribute.KeyValue // reused for each span
	start []trace.SpanStartOption
	end   []trace.SpanEndOption
	order []*record
	byID  map[uint64]*record
}

func newPoller(p *Profiler) *poller {
	return &poller{p: p, calls: make(chan func()), quit: make(chan struct{}), done: make(chan struct{}), sleep: minSleep, byID: map[uint64]*record{}}
}

// call runs f on the polling thread and waits for it, or for ctx. A panic of f is an error.
func (t *poller) call(ctx context.Context, f func()) error {
	finished := make(chan struct{})
	var panicked error
	g := func() {
		defer close(finished)
		defer func() {
			if r := recover(); r != nil {
				panicked = fmt.Errorf("recovered on the polling thread: %v", r)
			}
		}()
		f()
	}
	select {
	case t.calls <- g:
	case <-t.done:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-finished:
		return panicked
	case <-t.done:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *poller) run() {
	defer close(t.done)
	if t.p.backend != nil {
		// Never unlocked: the thread's capture mode and context are the library's own, so it must not go back to the runtime.
		runtime.LockOSThread()
		t.locked = true
	}
	for !t.loop() {
	}
}

// loop works until told to quit. A panic ends it early; those that are foreseen are recovered closer to their cause.
func (t *poller) loop() (quit bool) {
	defer func() {
		if r := recover(); r != nil {
			t.p.errors.report("panic", fmt.Errorf("recovered on the polling thread: %v", r))
			time.Sleep(maxSleep)
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
		if t.pressed {
			t.sleep = max(t.sleep/2, minSleep)
		} else {
			t.sleep = min(2*t.sleep, maxSleep)
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
		case <-t.p.wakeups:
			if idle {
				empty = 0
			}
		case f := <-t.calls:
			f()
			empty = 0
		case <-t.quit:
			return true
		}
		if idle {
			t.passed.Store(t.p.clock.now()) // before the flag: the watchdog must not take the sleep for a hang
			t.p.idle.Store(false)
		}
	}
}

func (t *poller) anyPending() bool {
	for _, s := range *t.p.streamList.Load() {
		s.mu.Lock()
		n := s.pending.size
		s.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return t.nestsPending() || len(t.sealed) > 0
}

// nestsPending reports whether a nest waits for its deadline. Those that have had theirs need no look: an inner section wakes the
// thread when it ends after all.
func (t *poller) nestsPending() bool {
	return slices.ContainsFunc(t.waiting, func(sl *slot) bool { return !sl.emitted })
}

func (t *poller) anyUsed() bool {
	for _, s := range *t.p.streamList.Load() {
		s.mu.Lock()
		n := len(s.slots) - len(s.free)
		s.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}

// pass looks at every stream once.
func (t *poller) pass() {
	t.passed.Store(t.p.clock.now())
	t.pressed = false
	for _, s := range *t.p.streamList.Load() {
		progress, pending := t.drain(s)
		t.busy = t.busy || progress || pending
	}
	if len(t.waiting) > 0 {
		t.checkWaiting(t.p.clock.now(), false)
	}
	if len(t.sealed) > 0 {
		t.checkSealed(t.p.clock.now(), false)
	}
	t.busy = t.busy || t.nestsPending() || len(t.sealed) > 0
}

// upkeep does what is due: anchors, the watchdog, counts of untimed sections. It returns how soon it wants to be called
// again though nothing happens; 0: not at all.
func (t *poller) upkeep(busy bool) (wait time.Duration) {
	for _, d := range *t.p.devices.Load() {
		if d.anchorer == nil {
			continue
		}
		w, st := t.maintain(d, busy || t.p.loops.Load() > 0)
		if st != backend.StatusOK && st != d.failed && st != backend.StatusDeinitialized {
			t.p.errors.report("anchor", fmt.Errorf("device %d: %w", d.info.Ordinal, backend.StatusError("cannot anchor the clock", st)))
		}
		d.failed = st
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

// cpu is the processor time of the polling thread as of the last second.
func (t *poller) cpu() (time.Duration, bool) {
	ns := t.cpuNs.Load()
	return time.Duration(ns), ns > 0
}

// tidy does what is due once a second.
func (t *poller) tidy() {
	if d, ok := threadCPU(); ok && t.locked {
		t.cpuNs.Store(int64(d))
	}
	t.p.clock.observe()
	for _, d := range *t.p.devices.Load() {
		if d.anchorer != nil {
			d.anomalies.Store(d.anchorer.Map().Anomalies())
		}
	}
	t.reportUntimed()
	now := t.p.clock.now()
	for _, s := range *t.p.streamList.Load() {
		t.expireSteps(s, now)
		t.reclaim(s)
	}
}

// flush waits until what had ended at the call is read back.
func (t *poller) flush(ctx context.Context) error {
	left := -1 // not known
	for {
		var n int
		err := t.call(ctx, func() {
			t.pass()
			n = t.unread()
			t.reportUntimed()
		})
		switch {
		case errors.Is(err, errStopped):
			return nil
		case err == nil && n == 0:
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

// unread counts sections that have ended and are not read back.
func (t *poller) unread() int {
	n := len(t.sealed)
	for _, s := range *t.p.streamList.Load() {
		s.mu.Lock()
		n += s.pending.size
		s.mu.Unlock()
	}
	return n
}

// stop flushes, gives up what is left, and frees everything.
func (t *poller) stop(ctx context.Context) error {
	err := t.flush(ctx)
	closed := make(chan error, 1)
	go func() {
		closed <- t.call(context.Background(), t.close)
	}()
	var closeErr error
	select {
	case closeErr = <-closed:
	case <-time.After(closeLimit): // also where flushing has used up ctx
		select {
		case closeErr = <-closed:
		case <-ctx.Done():
			// The driver hangs. Its thread cannot be ended; what it holds is left to the process's end.
			close(t.quit)
			return errors.Join(err, errors.New("shutdown: the polling thread hangs in the driver and was left behind"))
		}
	}
	close(t.quit)
	<-t.done
	if errors.Is(closeErr, errStopped) {
		closeErr = nil
	}
	return errors.Join(err, closeErr)
}
