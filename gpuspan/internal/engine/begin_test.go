// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// What Start decides of the events and End does with them.
func TestWhatStartAndEndRecord(t *testing.T) {
	foreign := func(c *StreamConfig) { c.Foreign = true }
	immediate := NewOperation("a", Sync(settings.SyncImmediate))
	deferred := NewOperation("d", Sync(settings.SyncDeferred))
	on := func(m settings.SyncMode) StreamOption { return func(c *StreamConfig) { c.Sync = m } }
	for name, c := range map[string]struct {
		stream  []StreamOption
		op      *Operation
		inner   bool
		flags   recordFlags
		records int64
		syncs   int64
	}{
		"usually":                     {nil, testOp, false, flagStarted, 2, 0},
		"immediate":                   {nil, immediate, false, flagStarted | flagWait, 2, 1},
		"stream":                      {[]StreamOption{on(settings.SyncImmediate)}, testOp, false, flagStarted | flagWait, 2, 1},
		"the operation says more":     {[]StreamOption{on(settings.SyncImmediate)}, deferred, false, flagStarted, 2, 0},
		"group, outermost":            {[]StreamOption{on(settings.SyncGroup)}, testOp, false, flagStarted | flagWait, 2, 1},
		"group, in another":           {[]StreamOption{on(settings.SyncGroup)}, testOp, true, flagStarted, 2, 0},
		"on the host's clock":         {nil, NewOperation("n", Sync(settings.SyncNone)), false, flagHost, 0, 0},
		"foreign code has the stream": {[]StreamOption{foreign}, testOp, false, flagHost, 0, 0},
	} {
		f := newBench(t, newScripted())
		s := f.p.Stream(3, "main", c.stream...)
		start := func() Section { return c.op.Start(context.Background(), s) }
		if c.inner {
			x := testOp.Start(context.Background(), s)
			start = func() Section { return x.Start(c.op) }
		}
		records, syncs := f.b.records.Load(), f.b.syncs.Load()
		y := start()
		require.Equal(t, c.flags, y.slot.rec.flags, name)
		y.End()
		require.Equal(t, c.records, f.b.records.Load()-records, name)
		require.Equal(t, c.syncs, f.b.syncs.Load()-syncs, name)
	}
}

func TestASlotThatCameBackIsTheNextOnesAndAnEndedSectionHasNone(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "main")
	paused(f.p, func() {
		x := testOp.Start(context.Background(), s)
		x.End()
		require.False(t, x.Timed())
		require.Equal(t, slotPending, x.slot.state)
		f.p.poller.pass()
		y := testOp.Start(context.Background(), s)
		require.Same(t, x.slot, y.slot, "it is in the cache")
		require.NotEqual(t, x.id, y.id)
		x.EndWith(Work{Items: 1})
		x.Add(Work{Items: 1})
		require.True(t, y.Timed(), "the end of another is not its own")
		require.Zero(t, y.slot.rec.work)
		y.End()
	})
}

func TestARefusedRecordLeavesTheHostsTimes(t *testing.T) {
	for name, c := range map[string]struct {
		status backend.Status
		want   timingStatus
		failed bool
	}{
		"a graph is captured":   {backend.StatusCapturedEvent, statusCaptured, false},
		"the device has failed": {backend.StatusPanic, statusDeviceError, true},
	} {
		b := newScripted()
		f := newBench(t, b)
		s := f.p.Stream(3, "main")
		b.record.Store(int32(c.status))
		x := testOp.Start(context.Background(), s)
		require.Equal(t, flagHost, x.slot.rec.flags&(flagHost|flagStarted), name)
		require.Equal(t, c.want, x.slot.rec.status, name)
		require.Equal(t, !c.failed, s.DeviceTimed(), name)
		x.End()
	}
}
