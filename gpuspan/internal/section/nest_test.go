// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
)

// ended runs the polling thread over ended sections, and returns the nests that it passes on.
func ended(p *engine.Profiler, s *section.Stream) (out []*section.Nest) {
	p.Poller.Pass()
	for i := range s.Unplaced {
		out = append(out, s.Unplaced[i].Nest)
	}
	return out
}

func TestOutermostSectionWaitsForInnerSections(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s, other := f.P.Stream(3, "main"), f.P.Stream(4, "other")
	poller := f.P.Poller
	enginetest.Paused(f.P, func() {
		x := enginetest.Op.Start(context.Background(), s)
		y, z := x.StartOn(enginetest.Op, other), x.Start(enginetest.Op)
		z.End()
		x.End()
		require.Empty(t, ended(f.P, s))
		require.Equal(t, []*section.Slot{x.Slot}, (*poller.Waiting()))
		require.Equal(t, 1, (*poller.HeldNow()))
		require.Equal(t, section.SlotHeld, (*x.Slot.State()))
		y.End()
		nests := ended(f.P, s)
		require.Empty(t, ended(f.P, other), "all are where the outermost is")
		require.Len(t, nests, 1)
		require.Equal(t, (*x.ID()), nests[0].Root.ID)
		require.Equal(t, []uint64{(*z.ID()), (*y.ID())}, []uint64{nests[0].Held[0].ID, nests[0].Held[1].ID})
		require.Equal(t, []uint64{(*x.ID()), (*x.ID())}, []uint64{nests[0].Held[0].Parent, nests[0].Held[1].Parent})
		require.Empty(t, (*poller.Waiting()))
		require.Zero(t, (*poller.HeldNow()))
		require.Len(t, s.Free, len(s.Slots))
	})
}

func TestSectionPastItsDeadlineIsExportedLate(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s := f.P.Stream(3, "main")
	enginetest.Paused(f.P, func() {
		x := enginetest.Op.Start(context.Background(), s)
		y := x.Start(enginetest.Op)
		x.End()
		require.Empty(t, ended(f.P, s))
		f.P.Poller.CheckWaiting(f.P.Clock.Now()+int64(f.P.Cfg.NestDeadline)-int64(time.Minute), false)
		require.Empty(t, s.Unplaced)
		f.P.Poller.CheckWaiting(f.P.Clock.Now()+int64(f.P.Cfg.NestDeadline)+int64(time.Minute), false)
		require.Len(t, s.Unplaced, 1)
		kept := s.Unplaced[0].Nest
		require.True(t, kept.Kept)
		y.End()
		nests := ended(f.P, s)
		require.Len(t, nests, 2)
		require.Same(t, kept, nests[1].Late)
		require.Equal(t, (*y.ID()), nests[1].Root.ID)
		require.Len(t, s.Free, len(s.Slots), "both slots are back")
	})
	f.Flush(t)
	spans := f.Spans.Ended()
	require.Len(t, spans, 2)
	require.Equal(t, spans[0].SpanContext().SpanID(), spans[1].Parent().SpanID(), "below the span that is there")
}

func TestSectionsBeyondNestLimitsAreCounted(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s := f.P.Stream(3, "main")
	enginetest.Paused(f.P, func() {
		x := enginetest.Op.Start(context.Background(), s)
		x.Start(enginetest.Op).End()
		(*f.P.Poller.HeldNow()) = section.MaxHeld
		nests := ended(f.P, s)
		(*f.P.Poller.HeldNow()) = 0
		require.Len(t, nests, 1)
		require.Same(t, x.Slot.Rec.Op, nests[0].Around)
		x.End()
	})
	f.Flush(t)
	require.EqualValues(t, 1, f.P.Drops()["nest_limit"])
	require.Len(t, f.Spans.Ended(), 1)
}

// A nest is bounded: further sections are measured and counted in their operations, but have no
// span.
func TestANestThatIsTooLargeOnlyCounts(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s := f.P.Stream(3, "main")
	inner := section.NewOperation("inner")
	x := enginetest.Op.Start(context.Background(), s)
	const n = section.MaxHeld + 100
	for range n {
		for !timedEnd(x.Start(inner)) {
			f.Flush(t)
		}
	}
	x.End()
	f.Flush(t)
	require.Len(t, f.Spans.Ended(), section.MaxHeld+1)
	summary := f.P.Snapshot()
	require.EqualValues(t, 100, summary.Dropped["nest_limit"])
	fig, ok := summary.ByName("inner")
	require.True(t, ok)
	require.EqualValues(t, n, fig.Duration.Count)
	for _, o := range summary.Operations {
		require.Equal(t, "op", o.Path[0])
	}
}

// timedEnd ends a section and reports whether it was timed.
func timedEnd(x section.Section) bool {
	timed := x.Timed()
	x.End()
	return timed
}
