// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/gpuspan/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a worker that runs calls until Quit is closed.
func start() *worker.Worker {
	w := worker.New(make(chan struct{}, 1))
	go w.Keep(func() bool {
		select {
		case f := <-w.Calls:
			f()
			return false
		case <-w.Quit:
			return true
		}
	})
	return &w
}

func TestFunctionsRunOneAfterTheOtherOnTheWorker(t *testing.T) {
	w := start()
	runs := 0
	for range 3 {
		require.NoError(t, w.Call(t.Context(), func() { runs++ }))
	}
	require.Equal(t, 3, runs)
	close(w.Quit)
	<-w.Done
	require.ErrorIs(t, w.Call(t.Context(), func() {}), worker.ErrStopped)
}

func TestAWorkerSurvivesPanicsAndGoexit(t *testing.T) {
	w := start()
	require.ErrorContains(t, w.Call(t.Context(), func() { panic("no device") }), "recovered: no device")
	require.ErrorContains(t, w.Call(t.Context(), runtime.Goexit), "ended by the application's code")
	require.NoError(t, w.Call(t.Context(), func() {}))
	close(w.Quit)
	<-w.Done
}

func TestACallEndsWithItsContext(t *testing.T) {
	cause := errors.New("too late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	idle := worker.New(nil) // nothing takes its calls
	require.ErrorIs(t, idle.Call(ctx, func() {}), cause)
}

func TestWakeUpsAreKeptAndNotCounted(t *testing.T) {
	wakeups := make(chan struct{}, 1)
	worker.Wake(wakeups)
	worker.Wake(wakeups)
	<-wakeups
	require.Empty(t, wakeups)
}
