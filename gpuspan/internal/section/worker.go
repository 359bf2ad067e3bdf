// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

var ErrStopped = errors.New("the profiler is shut down")

// Worker is a goroutine that runs functions for others.
type Worker struct {
	Calls   chan func()
	Wakeups chan struct{}
	Quit    chan struct{}
	Done    chan struct{}
}

func newWorker(wakeups chan struct{}) Worker {
	return Worker{Calls: make(chan func()), Wakeups: wakeups, Quit: make(chan struct{}), Done: make(chan struct{})}
}

// NewExportWorker returns the worker of the exporter's goroutine.
func NewExportWorker(p *Core) Worker { return newWorker(p.exporting) }

// Call runs f on the worker's goroutine and waits for it, or for ctx. A panic of f is an error, and
// so is a Goexit.
func (w *Worker) Call(ctx context.Context, f func()) error {
	finished := make(chan error, 1)
	g := func() {
		err := errors.New("the goroutine was ended by the application's code")
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("recovered: %v", r)
			}
			finished <- err
		}()
		f()
		err = nil
	}
	for calls := w.Calls; ; {
		select {
		case calls <- g:
			calls = nil
		case err := <-finished:
			return err
		case <-w.Done:
			return ErrStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Keep runs f until it reports that it is done, and restarts it if the application's code ends the
// goroutine by runtime.Goexit, as test helpers do.
func (w *Worker) Keep(f func() (quit bool)) {
	quit := false
	defer func() {
		if quit {
			close(w.Done)
			return
		}
		go w.Keep(f)
	}()
	for !quit {
		quit = f()
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
