// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestStartAndEndDoNotAllocate(t *testing.T) {
	p, err := engine.New(enginetest.NewBackend(), enginetest.WithSlots(1<<12), enginetest.WithTracerProvider(tracenoop.NewTracerProvider()),
		enginetest.WithMeterProvider(metricnoop.NewMeterProvider()))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Shutdown(context.Background())) }()
	s := p.Stream(3, "main")
	op := section.NewOperation("op")
	flags := func(f trace.TraceFlags) context.Context {
		return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(
			trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: f}))
	}
	sampled, unsampled := flags(trace.FlagsSampled), flags(0)
	w := work.Work{Read: 1, Written: 2, Items: 3, FLOPs: 4, Precision: work.BF16}
	s.StartNamed(sampled, "known")
	s.EndNamed("known", w)
	for _, tt := range []struct {
		name string
		f    func()
	}{
		{"sampled", func() { op.Start(sampled, s).EndWith(w) }},
		{"root", func() { op.Start(context.Background(), s).EndWith(w) }},
		{"unsampled", func() { op.Start(unsampled, s).EndWith(w) }},
		{"unsampled, nested", func() {
			x := op.Start(unsampled, s)
			x.Start(op).EndWith(w)
			x.End()
		}},
		{"nested", func() {
			x := op.Start(sampled, s)
			y := x.Start(op)
			y.Add(w)
			y.Chunk(1, 2)
			y.EndWith(w)
			x.End()
		}},
		{"named", func() { s.StartNamed(sampled, "known"); s.EndNamed("known", w) }},
		{"nil", func() { op.Start(sampled, nil).EndWith(w) }},
	} {
		enginetest.Paused(p, func() { // excludes what the polling thread allocates for spans
			require.Zero(t, testing.AllocsPerRun(100, tt.f), tt.name)
		})
		enginetest.Flush(t, p)
	}
	require.Zero(t, p.Drops()["pool_full"])
}

// Tests which events Start plans and End records.
func TestEventsRecordedByStartAndEnd(t *testing.T) {
	foreign := func(c *section.StreamConfig) { c.Foreign = true }
	immediate := section.NewOperation("a", enginetest.Sync(settings.SyncImmediate))
	deferred := section.NewOperation("d", enginetest.Sync(settings.SyncDeferred))
	on := func(m settings.SyncMode) enginetest.StreamOption {
		return func(c *section.StreamConfig) { c.Sync = m }
	}
	for name, c := range map[string]struct {
		stream  []enginetest.StreamOption
		op      *section.Operation
		inner   bool
		flags   section.Flags
		records int64
		syncs   int64
	}{
		"usually":                     {nil, enginetest.Op, false, section.FlagStarted, 2, 0},
		"immediate":                   {nil, immediate, false, section.FlagStarted | section.FlagWait, 2, 1},
		"stream":                      {[]enginetest.StreamOption{on(settings.SyncImmediate)}, enginetest.Op, false, section.FlagStarted | section.FlagWait, 2, 1},
		"the operation says more":     {[]enginetest.StreamOption{on(settings.SyncImmediate)}, deferred, false, section.FlagStarted, 2, 0},
		"group, outermost":            {[]enginetest.StreamOption{on(settings.SyncGroup)}, enginetest.Op, false, section.FlagStarted | section.FlagWait, 2, 1},
		"group, in another":           {[]enginetest.StreamOption{on(settings.SyncGroup)}, enginetest.Op, true, section.FlagStarted, 2, 0},
		"on the host's clock":         {nil, section.NewOperation("n", enginetest.Sync(settings.SyncNone)), false, section.FlagHost, 0, 0},
		"foreign code has the stream": {[]enginetest.StreamOption{foreign}, enginetest.Op, false, section.FlagHost, 0, 0},
	} {
		f := enginetest.New(t, enginetest.NewBackend())
		s := f.P.Stream(3, "main", c.stream...)
		start := func() section.Section { return c.op.Start(context.Background(), s) }
		if c.inner {
			x := enginetest.Op.Start(context.Background(), s)
			start = func() section.Section { return x.Start(c.op) }
		}
		records, syncs := f.B.Records.Load(), f.B.Syncs.Load()
		y := start()
		require.Equal(t, c.flags, y.Slot.Rec.Flags, name)
		y.End()
		require.Equal(t, c.records, f.B.Records.Load()-records, name)
		require.Equal(t, c.syncs, f.B.Syncs.Load()-syncs, name)
	}
}

func TestReleasedSlotBelongsToTheNextSection(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s := f.P.Stream(3, "main")
	enginetest.Paused(f.P, func() {
		x := enginetest.Op.Start(context.Background(), s)
		x.End()
		require.False(t, x.Timed())
		require.Equal(t, section.SlotPending, (*x.Slot.State()))
		f.P.Poller.Pass()
		y := enginetest.Op.Start(context.Background(), s)
		require.Same(t, x.Slot, y.Slot, "it is in the cache")
		require.NotEqual(t, (*x.ID()), (*y.ID()))
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
		want   section.TimingStatus
		failed bool
	}{
		"a graph is captured":   {backend.StatusCapturedEvent, section.StatusCaptured, false},
		"the device has failed": {backend.StatusPanic, section.StatusDeviceError, true},
	} {
		b := enginetest.NewBackend()
		f := enginetest.New(t, b)
		s := f.P.Stream(3, "main")
		b.RecordStatus.Store(int32(c.status))
		x := enginetest.Op.Start(context.Background(), s)
		require.Equal(t, section.FlagHost, x.Slot.Rec.Flags&(section.FlagHost|section.FlagStarted), name)
		require.Equal(t, c.want, x.Slot.Rec.Status, name)
		require.Equal(t, !c.failed, s.DeviceTimed(), name)
		x.End()
	}
}
