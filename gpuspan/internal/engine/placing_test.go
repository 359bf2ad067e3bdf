// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/timeline"
)

func readsOf(list []record.Stamped) (out []int64) {
	for i := range list {
		out = append(out, list[i].Read)
	}
	return out
}

func TestWhatIsPlacedIsHandedOverInOrder(t *testing.T) {
	s := &record.Stream{
		Unplaced: []record.Stamped{{Read: 1}, {Read: 2}, {Read: 3}},
		Stamps:   make([]clockmap.Stamps, 3),
	}
	timeline.HandOver(s, 2)
	require.Len(t, s.Stamps, 1)
	require.Equal(t, []int64{1, 2}, readsOf(s.Emits))
	require.Equal(t, []int64{3}, readsOf(s.Unplaced))
	require.Equal(t, []int64{3, 0, 0}, readsOf(s.Unplaced[:3]), "nothing that was removed is kept")
	timeline.HandOver(s, 1)
	require.Equal(t, []int64{1, 2, 3}, readsOf(s.Emits))
	require.Empty(t, s.Unplaced)

	s.Emits = s.Emits[:0]
	s.Unplaced, s.Stamps = append(make([]record.Stamped, 0, 8), record.Stamped{Read: 4}, record.Stamped{Read: 5}), make([]clockmap.Stamps, 2)
	timeline.HandOver(s, 2)
	require.Equal(t, []int64{4, 5}, readsOf(s.Emits))
	require.Equal(t, 8, cap(s.Emits), "the lists change places")

	s.Emits, s.Unplaced = make([]record.Stamped, 0, timeline.UsualQueue+1), append(s.Unplaced[:0], record.Stamped{Read: 6})
	s.Stamps = make([]clockmap.Stamps, 1)
	timeline.HandOver(s, 1)
	require.Nil(t, s.Unplaced, "the memory of a burst is freed")
}

// queue reads n sections back and returns how many are not placed yet.
func (f *bench) queue(s *record.Stream, n int) int {
	for range n {
		testOp.Start(context.Background(), s).End()
	}
	for s.Pending.Size > 0 {
		f.p.poller.Pass()
	}
	return len(s.Unplaced)
}

func TestASectionIsPlacedWhenAnAnchorHasBeenMadeAfterIt(t *testing.T) {
	f := newBench(t, newScripted(), WithSlots(2*timeline.Crowded))
	s := f.p.Stream(3, "main")
	d := s.Device
	paused(f.p, func() {
		old := 0 // of what is unplaced, so many; the others are just read, however long that took
		place := func() int {
			now := f.p.Clock.Now()
			for i := range s.Unplaced {
				s.Unplaced[i].Read = now
				if i < old {
					s.Unplaced[i].Read -= int64(timeline.PlaceLimit) + int64(time.Second)
				}
			}
			f.p.poller.Place(false)
			return len(s.Unplaced)
		}
		require.Equal(t, 3, f.queue(s, 3))
		require.Equal(t, 3, place())
		f.p.poller.AnchorNow()
		require.Zero(t, place())

		require.Equal(t, 2, f.queue(s, 2))
		old = 1
		require.Equal(t, 1, place(), "the other one is not waited for as long")
		old = 0
		f.p.poller.Place(true)
		require.Empty(t, s.Unplaced)

		require.Equal(t, timeline.Crowded, f.queue(s, timeline.Crowded))
		made := d.Anchorer.Made()
		f.p.poller.CrowdedAt = -int64(time.Hour)
		require.Equal(t, timeline.Crowded, place())
		require.Equal(t, made, d.Anchorer.Made())
		f.queue(s, 1)
		place()
		require.Equal(t, made+1, d.Anchorer.Made(), "a crowd has an anchor of its own")
		require.Zero(t, place())
		f.queue(s, timeline.Crowded+1)
		f.p.poller.CrowdedAt = f.p.Clock.Now() + int64(time.Hour)
		require.Equal(t, timeline.Crowded+1, place())
		require.Equal(t, made+1, d.Anchorer.Made(), "and the next crowd none so soon")
	})
	f.flush(t)
	require.Len(t, f.spans.Ended(), 3+2+2*(timeline.Crowded+1))
}

// A stream's section may be inside one of a stream on another device, and is placed by its own.
func TestWhichDevicesAnchorASectionWaitsFor(t *testing.T) {
	d, other := &record.Device{Anchorer: &clockmap.Anchorer{}}, &record.Device{Anchorer: &clockmap.Anchorer{}}
	s := &record.Stream{EventRecorder: record.EventRecorder{Device: d}}
	var n record.Nest
	n.Root = &n.Own
	n.Own.Timed, n.Own.Device = true, other
	s.Unplaced, s.Stamps = []record.Stamped{{}, {Nest: &n}}, make([]clockmap.Stamps, 2)
	const one, nested = 0, 1
	for _, c := range []struct {
		at   int
		of   *record.Device
		want bool
	}{
		{one, nil, true},
		{one, d, true},
		{one, other, false},
		{nested, nil, true},
		{nested, other, true},
		{nested, d, false},
	} {
		require.Equal(t, c.want, timeline.Awaits(s, c.at, c.of))
	}
	n.Held = []*record.Record{{Result: record.Result{Timed: true, Device: d}}}
	require.True(t, timeline.Awaits(s, nested, d), "for the section within")
	n.Own.Timed, n.Held = false, nil
	require.False(t, timeline.Awaits(s, nested, nil), "the host's times wait for nothing")
}
