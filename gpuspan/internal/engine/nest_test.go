// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ended lets the polling thread look at what has ended, and returns what is passed on of it.
func ended(p *Profiler, s *Stream) (out []*nest) {
	p.poller.pass()
	for i := range s.unplaced {
		out = append(out, s.unplaced[i].nest)
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
		require.Equal(t, []*slot{x.slot}, poller.waiting)
		require.Equal(t, 1, poller.heldNow)
		require.Equal(t, slotHeld, x.slot.state)
		y.End()
		nests := ended(f.p, s)
		require.Empty(t, ended(f.p, other), "all are where the outermost is")
		require.Len(t, nests, 1)
		require.Equal(t, x.id, nests[0].root.id)
		require.Equal(t, []uint64{z.id, y.id}, []uint64{nests[0].held[0].id, nests[0].held[1].id})
		require.Equal(t, []uint64{x.id, x.id}, []uint64{nests[0].held[0].parent, nests[0].held[1].parent})
		require.Empty(t, poller.waiting)
		require.Zero(t, poller.heldNow)
		require.Len(t, s.free, len(s.slots))
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
		f.p.poller.checkWaiting(f.p.clock.now()+int64(f.p.cfg.NestDeadline)-int64(time.Minute), false)
		require.Empty(t, s.unplaced)
		f.p.poller.checkWaiting(f.p.clock.now()+int64(f.p.cfg.NestDeadline)+int64(time.Minute), false)
		require.Len(t, s.unplaced, 1)
		kept := s.unplaced[0].nest
		require.True(t, kept.kept)
		y.End()
		nests := ended(f.p, s)
		require.Len(t, nests, 2)
		require.Same(t, kept, nests[1].late)
		require.Equal(t, y.id, nests[1].root.id)
		require.Len(t, s.free, len(s.slots), "both slots are back")
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
		f.p.poller.heldNow = maxHeld
		nests := ended(f.p, s)
		f.p.poller.heldNow = 0
		require.Len(t, nests, 1)
		require.Same(t, x.slot.rec.op, nests[0].around)
		x.End()
	})
	f.flush(t)
	require.EqualValues(t, 1, f.p.drops[dropNestLimit].Load())
	require.Len(t, f.spans.Ended(), 1)
}

// Parents first, whatever order they were read in; what a given-up section was around hangs below the outermost.
func TestTheSpansOfANest(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "main")
	ops := map[uint64]*Operation{}
	section := func(id, parent uint64, depth int32, w Work) *record {
		ops[id] = NewOperation(string(rune('0' + id)))
		r := &record{claim: claim{id: id, parent: parent, depth: depth, op: f.p.state(ops[id]), work: w}}
		r.startNs, r.endNs = int64(id), int64(id)+1
		return r
	}
	require.NoError(t, f.p.emitter.call(context.Background(), func() {
		n := &nest{stream: s, root: section(1, 0, 0, Work{})}
		n.held = []*record{
			section(4, 3, 3, Work{FLOPs: 7}), section(3, 2, 2, Work{}), section(2, 1, 1, Work{}),
			section(5, 99, 1, Work{FLOPs: 1}),
		}
		f.p.emitter.emitNest(n)
		require.Equal(t, float64(7), n.root.childFLOPs, "of those that know their parents")
	}))
	below := map[string]string{}
	names := map[string]string{}
	for _, span := range f.spans.Ended() {
		names[span.SpanContext().SpanID().String()] = span.Name()
		below[span.Name()] = names[span.Parent().SpanID().String()]
	}
	require.Equal(t, map[string]string{"1": "", "2": "1", "3": "2", "4": "3", "5": "1"}, below)
}
