// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
)

func readsOf(list []queued) (out []int64) {
	for i := range list {
		out = append(out, list[i].read)
	}
	return out
}

func TestWhatIsPlacedIsHandedOverInOrder(t *testing.T) {
	s := &Stream{
		unplaced: []queued{{read: 1}, {read: 2}, {read: 3}},
		stamps:   make([]clockmap.Stamps, 3),
	}
	s.handOver(2)
	require.Len(t, s.stamps, 1)
	require.Equal(t, []int64{1, 2}, readsOf(s.emits))
	require.Equal(t, []int64{3}, readsOf(s.unplaced))
	require.Equal(t, []int64{3, 0, 0}, readsOf(s.unplaced[:3]), "nothing of what went is kept")
	s.handOver(1)
	require.Equal(t, []int64{1, 2, 3}, readsOf(s.emits))
	require.Empty(t, s.unplaced)

	s.emits = s.emits[:0]
	s.unplaced, s.stamps = append(make([]queued, 0, 8), queued{read: 4}, queued{read: 5}), make([]clockmap.Stamps, 2)
	s.handOver(2)
	require.Equal(t, []int64{4, 5}, readsOf(s.emits))
	require.Equal(t, 8, cap(s.emits), "the lists change places")

	s.emits, s.unplaced = make([]queued, 0, usualQueue+1), append(s.unplaced[:0], queued{read: 6})
	s.stamps = make([]clockmap.Stamps, 1)
	s.handOver(1)
	require.Nil(t, s.unplaced, "the room of a burst is given up")
}

// queue reads n sections back and returns how many are not placed yet.
func (f *bench) queue(s *Stream, n int) int {
	for range n {
		testOp.Start(context.Background(), s).End()
	}
	for s.pending.size > 0 {
		f.p.poller.pass()
	}
	return len(s.unplaced)
}

func TestASectionIsPlacedWhenAnAnchorHasBeenMadeAfterIt(t *testing.T) {
	f := newBench(t, newScripted(), WithSlots(2*crowded))
	s := f.p.Stream(3, "main")
	d := s.device
	paused(f.p, func() {
		old := 0 // of what is unplaced, so many; the others are just read, however long that took
		place := func() int {
			now := f.p.clock.now()
			for i := range s.unplaced {
				s.unplaced[i].read = now
				if i < old {
					s.unplaced[i].read -= int64(placeLimit) + int64(time.Second)
				}
			}
			f.p.poller.place(false)
			return len(s.unplaced)
		}
		require.Equal(t, 3, f.queue(s, 3))
		require.Equal(t, 3, place())
		f.p.poller.anchorNow()
		require.Zero(t, place())

		require.Equal(t, 2, f.queue(s, 2))
		old = 1
		require.Equal(t, 1, place(), "the other one is not waited for as long")
		old = 0
		f.p.poller.place(true)
		require.Empty(t, s.unplaced)

		require.Equal(t, crowded, f.queue(s, crowded))
		made := d.anchorer.Made()
		f.p.poller.crowdedAt = -int64(time.Hour)
		require.Equal(t, crowded, place())
		require.Equal(t, made, d.anchorer.Made())
		f.queue(s, 1)
		place()
		require.Equal(t, made+1, d.anchorer.Made(), "a crowd has an anchor of its own")
		require.Zero(t, place())
		f.queue(s, crowded+1)
		f.p.poller.crowdedAt = f.p.clock.now() + int64(time.Hour)
		require.Equal(t, crowded+1, place())
		require.Equal(t, made+1, d.anchorer.Made(), "and the next crowd none so soon")
	})
	f.flush(t)
	require.Len(t, f.spans.Ended(), 3+2+2*(crowded+1))
}

// A stream's section may lie in one of a stream on another device, and is placed by its own.
func TestWhichDevicesAnchorASectionWaitsFor(t *testing.T) {
	d, other := &device{anchorer: &clockmap.Anchorer{}}, &device{anchorer: &clockmap.Anchorer{}}
	s := &Stream{device: d}
	var n nest
	n.root = &n.own
	n.own.timed, n.own.device = true, other
	s.unplaced, s.stamps = []queued{{}, {nest: &n}}, make([]clockmap.Stamps, 2)
	const one, nested = 0, 1
	for _, c := range []struct {
		at   int
		of   *device
		want bool
	}{
		{one, nil, true},
		{one, d, true},
		{one, other, false},
		{nested, nil, true},
		{nested, other, true},
		{nested, d, false},
	} {
		require.Equal(t, c.want, s.awaits(c.at, c.of))
	}
	n.held = []*record{{result: result{timed: true, device: d}}}
	require.True(t, s.awaits(nested, d), "for the section within")
	n.own.timed, n.held = false, nil
	require.False(t, s.awaits(nested, nil), "the host's times wait for nothing")
}
