// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/timeline"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// ended lets the polling thread look at what has ended, and returns what is passed on of it.
func ended(p *Profiler, s *record.Stream) (out []*record.Nest) {
	p.poller.Pass()
	for i := range s.Unplaced {
		out = append(out, s.Unplaced[i].Nest)
	}
	return out
}

func TestAnOutermostSectionWaitsForThoseInIt(t *testing.T) {
	f := newBench(t, newScripted())
	s, other := f.p.Stream(3, "main"), f.p.Stream(4, "other")
	poller := f.p.poller
	paused(f.p, func() {
		x := testOp.Start(context.Background(), s)
		y, z := x.StartOn(testOp, other), x.Start(testOp)
		z.End()
		x.End()
		require.Empty(t, ended(f.p, s))
		require.Equal(t, []*record.Slot{x.Slot}, poller.Waiting)
		require.Equal(t, 1, poller.HeldNow)
		require.Equal(t, record.SlotHeld, x.Slot.State)
		y.End()
		nests := ended(f.p, s)
		require.Empty(t, ended(f.p, other), "all are where the outermost is")
		require.Len(t, nests, 1)
		require.Equal(t, x.ID, nests[0].Root.ID)
		require.Equal(t, []uint64{z.ID, y.ID}, []uint64{nests[0].Held[0].ID, nests[0].Held[1].ID})
		require.Equal(t, []uint64{x.ID, x.ID}, []uint64{nests[0].Held[0].Parent, nests[0].Held[1].Parent})
		require.Empty(t, poller.Waiting)
		require.Zero(t, poller.HeldNow)
		require.Len(t, s.Free, len(s.Slots))
	})
}

func TestASectionThatIsNotWaitedForComesLate(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "main")
	paused(f.p, func() {
		x := testOp.Start(context.Background(), s)
		y := x.Start(testOp)
		x.End()
		require.Empty(t, ended(f.p, s))
		f.p.poller.CheckWaiting(f.p.Clock.Now()+int64(f.p.Cfg.NestDeadline)-int64(time.Minute), false)
		require.Empty(t, s.Unplaced)
		f.p.poller.CheckWaiting(f.p.Clock.Now()+int64(f.p.Cfg.NestDeadline)+int64(time.Minute), false)
		require.Len(t, s.Unplaced, 1)
		kept := s.Unplaced[0].Nest
		require.True(t, kept.Kept)
		y.End()
		nests := ended(f.p, s)
		require.Len(t, nests, 2)
		require.Same(t, kept, nests[1].Late)
		require.Equal(t, y.ID, nests[1].Root.ID)
		require.Len(t, s.Free, len(s.Slots), "both slots are back")
	})
	f.flush(t)
	spans := f.spans.Ended()
	require.Len(t, spans, 2)
	require.Equal(t, spans[0].SpanContext().SpanID(), spans[1].Parent().SpanID(), "below the span that is there")
}

func TestWhatNestsCannotHoldIsOnlyCounted(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "main")
	paused(f.p, func() {
		x := testOp.Start(context.Background(), s)
		x.Start(testOp).End()
		f.p.poller.HeldNow = timeline.MaxHeld
		nests := ended(f.p, s)
		f.p.poller.HeldNow = 0
		require.Len(t, nests, 1)
		require.Same(t, x.Slot.Rec.Op, nests[0].Around)
		x.End()
	})
	f.flush(t)
	require.EqualValues(t, 1, f.p.Drops[record.DropNestLimit].Load())
	require.Len(t, f.spans.Ended(), 1)
}

// Parents first, whatever order they were read in; what a given-up section was around hangs below the outermost.
func TestTheSpansOfANest(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "main")
	ops := map[uint64]*record.Operation{}
	section := func(id, parent uint64, depth int32, w work.Work) *record.Record {
		ops[id] = record.NewOperation(string(rune('0' + id)))
		r := &record.Record{Claim: record.Claim{ID: id, Parent: parent, Depth: depth, Op: f.p.State(ops[id]), Work: w}}
		r.StartNs, r.EndNs = int64(id), int64(id)+1
		return r
	}
	require.NoError(t, f.p.emitter.Call(context.Background(), func() {
		n := &record.Nest{Stream: s, Root: section(1, 0, 0, work.Work{})}
		n.Held = []*record.Record{
			section(4, 3, 3, work.Work{FLOPs: 7}), section(3, 2, 2, work.Work{}), section(2, 1, 1, work.Work{}),
			section(5, 99, 1, work.Work{FLOPs: 1}),
		}
		f.p.emitter.EmitNest(n)
		require.Equal(t, float64(7), n.Root.ChildFLOPs, "of sections that know their parents")
	}))
	below := map[string]string{}
	names := map[string]string{}
	for _, span := range f.spans.Ended() {
		names[span.SpanContext().SpanID().String()] = span.Name()
		below[span.Name()] = names[span.Parent().SpanID().String()]
	}
	require.Equal(t, map[string]string{"1": "", "2": "1", "3": "2", "4": "3", "5": "1"}, below)
}
