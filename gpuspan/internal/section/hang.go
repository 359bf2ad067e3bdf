// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// expire ends spans of sections that the device does not finish, so that a hang is visible in the
// trace. The slots stay pending.
func (t *Poller) expire(s *Stream, now int64) {
	var late []*Slot
	s.Mu.Lock()
	for i := range s.pending.size {
		if sl := s.pending.At(i); !sl.expired && TooOld(sl.Rec.HostEnd, now, t.p.Cfg.HangDeadline) {
			late = append(late, sl)
		}
	}
	s.Mu.Unlock()
	for _, sl := range late {
		sl.expired = true
		r := takeOut(sl)
		r.onHost(statusTimeout)
		t.hostTimes(r)
		switch root := r.root; {
		case r.Flags&flagStep != 0:
			n := t.newNestOf(s, r)
			n.Expiry = true
			t.queue(s, n)
		case root != sl:
			t.count(sl, r)
			t.settleInner(r, s, root)
			t.unref(root)
		default:
			t.count(sl, r)
			t.part(sl, r)
		}
	}
}

// reclaim abandons open sections that will not be ended: those older than OpenLimit and, on a
// stream without free slots, those whose outermost section ended NestDeadline ago. A forgotten End
// would otherwise occupy a slot forever.
func (t *Poller) reclaim(s *Stream) {
	now := t.p.Clock.Now()
	s.Mu.Lock()
	full := len(s.Free) == 0
	used := len(s.Free) < len(s.Slots)
	closed := s.closed
	s.Mu.Unlock()
	if !used {
		return
	}
	forgotten, oldest, since := 0, "", int64(0) // sections that are open, and the oldest of them
	for _, sl := range s.Slots {
		s.Mu.Lock()
		step := sl.Rec.Flags&flagStep != 0 // a loop ends its steps, however long they take
		give := sl.state == slotOpen && (closed || !step && TooOld(sl.Rec.HostStart, now, t.p.Cfg.OpenLimit) ||
			full && sl.Rec.root != sl && sl.Rec.root.nest != nil)
		if give {
			sl.state = SlotHeld // its End does nothing from now on
		} else if r := &sl.Rec; sl.state == slotOpen && !step {
			if forgotten++; forgotten == 1 || r.HostStart < since {
				oldest, since = r.Op.Cfg.Info.Name, r.HostStart
			}
		}
		s.Mu.Unlock()
		if give {
			t.giveUp(sl, now)
		}
	}
	if full && 2*forgotten > len(s.Slots) && TooOld(since, now, t.p.Cfg.NestDeadline) {
		t.p.Errors.Report("forgotten",
			fmt.Errorf("stream %q: %d of its %d slots are in use by sections that were started and not ended, "+
				"one of `%s` for %s (end them on error paths too, as by defer, or raise `slots`); other sections are only counted",
				s.label, forgotten, len(s.Slots), oldest, time.Duration(now-since).Round(time.Millisecond)))
	}
}

// maxHungLines bounds the lines of one check: a device that hangs stops all of its streams.
const maxHungLines = 8

// Watchdog writes one log line for each stream whose device does not finish a section. It has its
// own goroutine, because a hanging device may block the polling thread in the driver.
type Watchdog struct {
	p    *Core
	quit chan struct{}
	done chan struct{}

	mu        sync.Mutex
	saidSpans bool // the line about the exporter was written
	saidStop  bool // the line about the polling thread was written
}

// StartWatchdog returns nil, which does nothing, if Settings.HangLimit is 0.
func StartWatchdog(p *Core) *Watchdog {
	limit := p.Cfg.HangLimit
	if limit == 0 {
		return nil
	}
	w := &Watchdog{p: p, quit: make(chan struct{}), done: make(chan struct{})}
	go w.run(min(max(limit/4, 10*time.Millisecond), time.Minute))
	return w
}

func (w *Watchdog) run(every time.Duration) {
	defer close(w.done)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.Look()
		case <-w.quit:
			return
		}
	}
}

func (w *Watchdog) Stop() {
	if w == nil {
		return
	}
	close(w.quit)
}

// Wait waits until the watchdog has ended, which a logger may delay.
func (w *Watchdog) Wait(ctx context.Context) {
	if w == nil {
		return
	}
	select {
	case <-w.done:
	case <-ctx.Done():
	}
}

// Look checks the oldest pending section of each stream, and the polling thread.
func (w *Watchdog) Look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { _ = recover() }() // the logger is the application's
	p, limit := w.p, w.p.Cfg.HangLimit
	now, hung := p.Clock.Now(), 0
	for _, s := range p.streamList.all() {
		name, age, id, ok := s.Oldest(now)
		if !ok || age < limit || s.saidHang == id {
			continue
		}
		s.saidHang = id
		if hung++; hung > maxHungLines {
			continue
		}
		p.Cfg.Logger.Warn("gpuspan: the device has not finished a section",
			slog.String("operation", name), slog.String("stream", s.label), slog.Int("stream_id", s.ID),
			slog.Duration("age", age), slog.Duration("limit", limit))
	}
	if more := hung - maxHungLines; more > 0 {
		p.Cfg.Logger.Warn("gpuspan: the device has not finished a section on more streams", slog.Int("streams", more),
			slog.Duration("limit", limit))
	}
	since := p.since.Load()
	w.say(&w.saidSpans, since != 0, now-since, "gpuspan: the code that spans are handed to does not come back")
	idle := p.idle.Load() // before the time of the last pass, which is set before the flag is cleared
	w.say(&w.saidStop, !idle, now-p.passed.Load(),
		"gpuspan: the polling thread does not come back from the driver")
}

// say logs a line once about something busy without progress for ns, which is longer than the
// limit.
func (w *Watchdog) say(said *bool, busy bool, ns int64, text string) {
	age, limit, before := time.Duration(ns), w.p.Cfg.HangLimit, *said
	*said = busy && age >= limit
	if *said && !before {
		w.p.Cfg.Logger.Warn(text, slog.Duration("age", age), slog.Duration("limit", limit))
	}
}
