// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/timeline"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// What Start decides of the events and End does with them.
func TestWhatStartAndEndRecord(t *testing.T) {
	foreign := func(c *timeline.StreamConfig) { c.Foreign = true }
	immediate := record.NewOperation("a", Sync(settings.SyncImmediate))
	deferred := record.NewOperation("d", Sync(settings.SyncDeferred))
	on := func(m settings.SyncMode) StreamOption { return func(c *timeline.StreamConfig) { c.Sync = m } }
	for name, c := range map[string]struct {
		stream  []StreamOption
		op      *record.Operation
		inner   bool
		flags   record.Flags
		records int64
		syncs   int64
	}{
		"usually":                     {nil, testOp, false, record.FlagStarted, 2, 0},
		"immediate":                   {nil, immediate, false, record.FlagStarted | record.FlagWait, 2, 1},
		"stream":                      {[]StreamOption{on(settings.SyncImmediate)}, testOp, false, record.FlagStarted | record.FlagWait, 2, 1},
		"the operation says more":     {[]StreamOption{on(settings.SyncImmediate)}, deferred, false, record.FlagStarted, 2, 0},
		"group, outermost":            {[]StreamOption{on(settings.SyncGroup)}, testOp, false, record.FlagStarted | record.FlagWait, 2, 1},
		"group, in another":           {[]StreamOption{on(settings.SyncGroup)}, testOp, true, record.FlagStarted, 2, 0},
		"on the host's clock":         {nil, record.NewOperation("n", Sync(settings.SyncNone)), false, record.FlagHost, 0, 0},
		"foreign code has the stream": {[]StreamOption{foreign}, testOp, false, record.FlagHost, 0, 0},
	} {
		f := newBench(t, newScripted())
		s := f.p.Stream(3, "main", c.stream...)
		start := func() record.Section { return c.op.Start(context.Background(), s) }
		if c.inner {
			x := testOp.Start(context.Background(), s)
			start = func() record.Section { return x.Start(c.op) }
		}
		records, syncs := f.b.records.Load(), f.b.syncs.Load()
		y := start()
		require.Equal(t, c.flags, y.Slot.Rec.Flags, name)
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
		require.Equal(t, record.SlotPending, x.Slot.State)
		f.p.poller.Pass()
		y := testOp.Start(context.Background(), s)
		require.Same(t, x.Slot, y.Slot, "it is in the cache")
		require.NotEqual(t, x.ID, y.ID)
		x.EndWith(work.Work{Items: 1})
		x.Add(work.Work{Items: 1})
		require.True(t, y.Timed(), "the end of another is not its own")
		require.Zero(t, y.Slot.Rec.Work)
		y.End()
	})
}

func TestARefusedRecordLeavesTheHostsTimes(t *testing.T) {
	for name, c := range map[string]struct {
		status backend.Status
		want   record.TimingStatus
		failed bool
	}{
		"a graph is captured":   {backend.StatusCapturedEvent, record.StatusCaptured, false},
		"the device has failed": {backend.StatusPanic, record.StatusDeviceError, true},
	} {
		b := newScripted()
		f := newBench(t, b)
		s := f.p.Stream(3, "main")
		b.record.Store(int32(c.status))
		x := testOp.Start(context.Background(), s)
		require.Equal(t, record.FlagHost, x.Slot.Rec.Flags&(record.FlagHost|record.FlagStarted), name)
		require.Equal(t, c.want, x.Slot.Rec.Status, name)
		require.Equal(t, !c.failed, s.DeviceTimed(), name)
		x.End()
	}
}
