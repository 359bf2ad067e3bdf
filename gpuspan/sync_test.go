// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestSyncModes(t *testing.T) {
	for _, tt := range []struct {
		mode         settings.SyncMode
		inner, outer time.Duration // how far the clock advances in End
		source       string
	}{
		{settings.SyncDeferred, 0, 0, "simulated"},
		{settings.SyncGroup, 0, 2 * time.Millisecond, "simulated"},
		{settings.SyncImmediate, 2 * time.Millisecond, 0, "simulated"},
		{settings.SyncNone, 0, 0, "host"},
	} {
		t.Run(tt.mode.String(), func(t *testing.T) {
			r := newRig(t, syncMode(tt.mode))
			s, h := r.stream()
			op := gpuspan.NewOperation("op")
			x := op.Start(context.Background(), s)
			y := x.Start(op)
			r.busy(h, 2*time.Millisecond)
			t0 := r.clock.Now()
			y.End()
			t1 := r.clock.Now()
			x.End()
			t2 := r.clock.Now()
			require.InDelta(t, tt.inner, t1.Sub(t0), float64(20*time.Microsecond))
			require.InDelta(t, tt.outer, t2.Sub(t1), float64(20*time.Microsecond))
			r.clock.Advance(5 * time.Millisecond)
			r.flush()
			for _, s := range r.named("op") {
				require.Equal(t, tt.source, attrs(s)["gpu.timing.source"].AsString())
			}
		})
	}
}

func TestTheNarrowestSyncModeWins(t *testing.T) {
	r := newRig(t, syncMode(settings.SyncImmediate))
	s, h := r.stream(gpuspan.Sync(settings.SyncDeferred))
	source := func(op *gpuspan.Operation) (time.Duration, string) {
		x := op.Start(context.Background(), s)
		r.busy(h, time.Millisecond)
		before := r.clock.Now()
		x.End()
		waited := r.clock.Now().Sub(before)
		r.clock.Advance(5 * time.Millisecond)
		r.flush()
		return waited, attrs(r.named(op.Name())[0])["gpu.timing.source"].AsString()
	}
	waited, from := source(gpuspan.NewOperation("as the stream"))
	require.Less(t, waited, 100*time.Microsecond)
	require.Equal(t, "simulated", from)
	waited, _ = source(gpuspan.NewOperation("waits", gpuspan.Sync(settings.SyncImmediate)))
	require.Greater(t, waited, 900*time.Microsecond)
	_, from = source(gpuspan.NewOperation("host", gpuspan.Sync(settings.SyncNone)))
	require.Equal(t, "host", from)
}
