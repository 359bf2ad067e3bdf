// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package worker runs goroutines that also run functions for others.
package worker

import (
	"context"
	"errors"
	"fmt"
)

// ErrStopped is the error of calls of a worker that has ended.
var ErrStopped = errors.New("the profiler is shut down")

// Worker is a goroutine that runs functions for others.
type Worker struct {
	Calls   chan func()
	Wakeups chan struct{}
	Quit    chan struct{}
	Done    chan struct{}
}

// New returns a Worker that wakes up for what [Wake] sends to the channel.
func New(wakeups chan struct{}) Worker {
	return Worker{Calls: make(chan func()), Wakeups: wakeups, Quit: make(chan struct{}), Done: make(chan struct{})}
}

// Wake wakes the goroutine that waits for the channel, now or next. The channel holds one wake-up.
func Wake(wakeups chan<- struct{}) {
	select {
	case wakeups <- struct{}{}:
	default:
	}
}

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
