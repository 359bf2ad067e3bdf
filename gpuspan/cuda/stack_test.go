// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
)

func TestEventsAreWholeAtAnyStackDepth(t *testing.T) {
	stub := ctest.CUDA(t).Manual()
	b := open(t, stub)
	s := appStream(t, b, 0)
	e := make([]backend.Event, 2)
	require.Zero(t, b.NewEvents(0, e))
	require.Zero(t, b.Record(&backend.Call{Args: [2]uintptr{uintptr(e[0]), s}}))
	stub.Advance(3000)
	ctest.AtEachDepth(func(int) {
		require.Zero(t, b.Record(&backend.Call{Args: [2]uintptr{uintptr(e[1]), s}}))
	}, func(int) {
		ns, st := b.Elapsed(e[0], e[1])
		require.True(t, st == 0 && math.Round(ns) == 3000, ns)
	}, func(int) {
		on, st := b.Capturing(s)
		require.True(t, st == 0 && !on, st)
	}, func(int) {
		info, err := b.StreamInfo(s, 0)
		require.True(t, err == nil && info.Context != 0, err)
	}, func(int) {
		var more [1]backend.Event
		st := b.NewEvents(0, more[:])
		require.True(t, st == 0 && more[0] != 0, st)
		b.FreeEvents(0, more[:])
	})
	require.EqualValues(t, len(e), stub.Count("live_events"))
}
