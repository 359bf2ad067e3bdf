// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
)

var errStopped = errors.New("the profiler is shut down")

// worker is a goroutine that others hand functions to.
type worker struct {
	calls chan func()
	quit  chan struct{}
	done  chan struct{}
}

func newWorker() worker {
	return worker{calls: make(chan func()), quit: make(chan struct{}), done: make(chan struct{})}
}

// call runs f on the worker's goroutine and waits for it, or for ctx. A panic of f is an error, and so is a Goexit.
func (w *worker) call(ctx context.Context, f func()) error {
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
	select {
	case w.calls <- g:
	case <-w.done:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-finished:
		return err
	case <-w.done:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// keep runs f until it reports that it is done, again and again where code of the application ends the goroutine by
// runtime.Goexit, as test helpers do.
func (w *worker) keep(f func() (quit bool)) {
	quit := false
	defer func() {
		if quit {
			close(w.done)
			return
		}
		go w.keep(f)
	}()
	for !quit {
		quit = f()
	}
}
