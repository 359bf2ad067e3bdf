// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sharedcomponent

import (
	"context"
	"fmt"
	"sync"
)

// Wait waits for goroutines that were told to stop. It returns an error if ctx ends earlier: the Collector shuts down
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
		return fmt.Errorf("not stopped in time: %w", context.Cause(ctx))
	}
}
