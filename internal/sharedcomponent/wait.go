// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sharedcomponent

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// leeway is the least time that goroutines have to stop: the context of Shutdown may have ended already, and they only
// need to notice that.
const leeway = time.Second

// Wait waits for goroutines that stop. It returns an error if ctx ends earlier: the Collector shuts down
// one component after the other, so that one that waits forever keeps all others from their last data.
func Wait(ctx context.Context, running *sync.WaitGroup) error {
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
		return fmt.Errorf("not stopped in time: %w", context.Cause(ctx))
	}
}
