// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// watchdog writes one log line for each section that the device does not finish. It has a goroutine of its own, for a
// device that hangs may take the polling thread with it into the driver.
type watchdog struct {
	p    *Profiler
	quit chan struct{}
	done chan struct{}

	mu        sync.Mutex
	saidSpans bool // the line about the emitter was written
	saidStop  bool // the line about the polling thread was written
}

// startWatchdog returns nil, which does nothing, where Settings.HangLimit is 0.
func startWatchdog(p *Profiler) *watchdog {
	limit := p.cfg.HangLimit
	if limit == 0 {
		return nil
	}
	w := &watchdog{p: p, quit: make(chan struct{}), done: make(chan struct{})}
	go w.run(max(limit/4, time.Second))
	return w
}

func (w *watchdog) run(every time.Duration) {
	defer close(w.done)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.look()
		case <-w.quit:
			return
		}
	}
}

func (w *watchdog) stop() {
	if w == nil {
		return
	}
	close(w.quit)
}

// wait is for its end, which a logger may hold up.
func (w *watchdog) wait(ctx context.Context) {
	if w == nil {
		return
	}
	select {
	case <-w.done:
	case <-ctx.Done():
	}
}

// look checks the oldest pending section of each stream, and the polling thread.
func (w *watchdog) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { _ = recover() }() // the logger is the application's
	p, limit := w.p, w.p.cfg.HangLimit
	now := p.clock.now()
	for _, s := range p.streamList.all() {
		name, age, id, ok := s.oldest(now)
		if !ok || age < limit || s.saidHang == id {
			continue
		}
		s.saidHang = id
		p.cfg.Logger.Warn("gpuspan: the device has not finished a section",
			slog.String("operation", name), slog.String("stream", s.name), slog.Int("stream_id", s.id),
			slog.Duration("age", age), slog.Duration("limit", limit))
	}
	since := p.emitter.since.Load()
	w.say(&w.saidSpans, since != 0, now-since, "gpuspan: the code that spans are handed to does not come back")
	idle := p.idle.Load() // before the time of the last pass, which is set before the flag falls
	w.say(&w.saidStop, !idle, now-p.poller.passed.Load(), "gpuspan: the polling thread does not come back from the driver")
}

// say writes a line once of what is busy and has not been heard of for ns, which is longer than the limit.
func (w *watchdog) say(said *bool, busy bool, ns int64, text string) {
	age, limit, before := time.Duration(ns), w.p.cfg.HangLimit, *said
	*said = busy && age >= limit
	if *said && !before {
		w.p.cfg.Logger.Warn(text, slog.Duration("age", age), slog.Duration("limit", limit))
	}
}
