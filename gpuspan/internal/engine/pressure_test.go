// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/require"
)

func TestHalfOfTheSlotsWakeThePollingThread(t *testing.T) {
	const slots = 64
	p, err := New(newScripted(), WithSlots(slots))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Shutdown(context.Background())) }()
	s := p.Stream(3, "main")
	awake := func() bool {
		select {
		case <-p.wakeups:
			return true
		default:
			return false
		}
	}
	paused(p, func() {
		p.idle.Store(false) // it is between two passes, and has just looked
		p.poller.passed.Store(p.clock.now() + int64(time.Hour))
		awake()
		for range slots / 2 {
			testOp.Start(context.Background(), s).End()
		}
		require.False(t, awake())
	})
	flush(t, p)
	paused(p, func() {
		p.idle.Store(false)
		p.poller.passed.Store(-int64(time.Hour))
		awake()
		for i := 1; i <= slots; i++ {
			testOp.Start(context.Background(), s).End()
			require.Equal(t, i >= slots/2, awake(), "section %d", i)
		}
	})
}
