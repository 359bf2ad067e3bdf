// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sharedcomponent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// leeway is the least time that goroutines have to stop: the context of Shutdown may have ended
// already, and they only need to notice that.
const leeway = time.Second

// longest is how long a component may take to stop if the context has no deadline. The Collector
// sets none.
const longest = 30 * time.Second

// ErrRunning is the error of goroutines that have not stopped in time. What they use must not be
// closed.
var ErrRunning = errors.New("not stopped in time")

// Wait waits for goroutines that stop. It returns an error if ctx ends earlier: the Collector shuts
// down one component after the other, so that one that waits forever keeps all others from their
// last data.
func Wait(ctx context.Context, running *sync.WaitGroup) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longest)
		defer cancel()
	}
	stopped := make(chan struct{})
	go func() {
		running.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-stopped:
		return nil
	case <-time.After(leeway):
		return fmt.Errorf("%w: %w", ErrRunning, context.Cause(ctx))
	}
}

// Within calls f, and returns its error, or an error if ctx ends earlier. What f calls may not
// respect a context, such as the end of a file on a file system that does not respond.
func Within(ctx context.Context, f func() error) error {
	var running sync.WaitGroup
	result := make(chan error, 1)
	running.Go(func() { result <- f() })
	if err := Wait(ctx, &running); err != nil {
		return err
	}
	return <-result
}
