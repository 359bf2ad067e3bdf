// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func readsOf(list []section.Stamped) (out []int64) {
	for i := range list {
		out = append(out, list[i].Read)
	}
	return out
}

func TestPlacedSectionsArePassedOnInOrder(t *testing.T) {
	s := &section.Stream{
		Unplaced: []section.Stamped{{Read: 1}, {Read: 2}, {Read: 3}},
		Stamps:   make([]clockmap.Stamps, 3),
	}
	section.HandOver(s, 2)
	require.Len(t, s.Stamps, 1)
	require.Equal(t, []int64{1, 2}, readsOf(s.Emits))
	require.Equal(t, []int64{3}, readsOf(s.Unplaced))
	require.Equal(t, []int64{3, 0, 0}, readsOf(s.Unplaced[:3]), "nothing that was removed is kept")
	section.HandOver(s, 1)
	require.Equal(t, []int64{1, 2, 3}, readsOf(s.Emits))
	require.Empty(t, s.Unplaced)

	s.Emits = s.Emits[:0]
	s.Unplaced, s.Stamps = append(make([]section.Stamped, 0, 8), section.Stamped{Read: 4}, section.Stamped{Read: 5}), make([]clockmap.Stamps, 2)
	section.HandOver(s, 2)
	require.Equal(t, []int64{4, 5}, readsOf(s.Emits))
	require.Equal(t, 8, cap(s.Emits), "the lists change places")

	s.Emits, s.Unplaced = make([]section.Stamped, 0, section.UsualQueue+1), append(s.Unplaced[:0], section.Stamped{Read: 6})
	s.Stamps = make([]clockmap.Stamps, 1)
	section.HandOver(s, 1)
	require.Nil(t, s.Unplaced, "the memory of a burst is freed")
}

// queue reads n sections back and returns how many await conversion.
func queue(f *enginetest.Rig, s *section.Stream, n int) int {
	for range n {
		enginetest.Op.Start(context.Background(), s).End()
	}
	for (*(*s.Pending()).Size()) > 0 {
		f.P.Poller.Pass()
	}
	return len(s.Unplaced)
}

func TestASectionIsPlacedWhenAnAnchorHasBeenMadeAfterIt(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSlots(2*section.Crowded))
	s := f.P.Stream(3, "main")
	d := s.Device
	enginetest.Paused(f.P, func() {
		old := 0 // the number of old unplaced sections; the others have just been read
		place := func() int {
			now := f.P.Clock.Now()
			for i := range s.Unplaced {
				s.Unplaced[i].Read = now
				if i < old {
					s.Unplaced[i].Read -= int64(section.PlaceLimit) + int64(time.Second)
				}
			}
			f.P.Poller.Place(false)
			return len(s.Unplaced)
		}
		require.Equal(t, 3, queue(f, s, 3))
		require.Equal(t, 3, place())
		f.P.Poller.AnchorNow()
		require.Zero(t, place())

		require.Equal(t, 2, queue(f, s, 2))
		old = 1
		require.Equal(t, 1, place(), "the other one is not waited for as long")
		old = 0
		f.P.Poller.Place(true)
		require.Empty(t, s.Unplaced)

		require.Equal(t, section.Crowded, queue(f, s, section.Crowded))
		made := d.Anchorer.Made()
		(*f.P.Poller.CrowdedAt()) = -int64(time.Hour)
		require.Equal(t, section.Crowded, place())
		require.Equal(t, made, d.Anchorer.Made())
		queue(f, s, 1)
		place()
		require.Equal(t, made+1, d.Anchorer.Made(), "a crowd has a separate anchor")
		require.Zero(t, place())
		queue(f, s, section.Crowded+1)
		(*f.P.Poller.CrowdedAt()) = f.P.Clock.Now() + int64(time.Hour)
		require.Equal(t, section.Crowded+1, place())
		require.Equal(t, made+1, d.Anchorer.Made(), "and the next crowd none so soon")
	})
	f.Flush(t)
	require.Len(t, f.Spans.Ended(), 3+2+2*(section.Crowded+1))
}

// A section may be nested in one of a stream on another device, but its times are converted with
// its own device's anchors.
func TestWhichDevicesAnchorASectionWaitsFor(t *testing.T) {
	d, other := &section.Device{Anchorer: &clockmap.Anchorer{}}, &section.Device{Anchorer: &clockmap.Anchorer{}}
	s := &section.Stream{Device: d}
	var n section.Nest
	n.Root = n.Own()
	(*n.Own()).Timed, (*n.Own()).Device = true, other
	s.Unplaced, s.Stamps = []section.Stamped{{}, {Nest: &n}}, make([]clockmap.Stamps, 2)
	const one, nested = 0, 1
	for _, c := range []struct {
		at   int
		of   *section.Device
		want bool
	}{
		{one, nil, true},
		{one, d, true},
		{one, other, false},
		{nested, nil, true},
		{nested, other, true},
		{nested, d, false},
	} {
		require.Equal(t, c.want, section.Awaits(s, c.at, c.of))
	}
	n.Held = []*section.Record{{Timed: true, Device: d}}
	require.True(t, section.Awaits(s, nested, d), "for the section within")
	(*n.Own()).Timed, n.Held = false, nil
	require.False(t, section.Awaits(s, nested, nil), "the host's times wait for nothing")
}

func TestUsualHalfWidthCoversDifferencesBetweenSections(t *testing.T) {
	require.EqualValues(t, 3700, section.UsualHalf(3440)) // docs/clock.md: 3.44 in the median, 3.71 at p99
	require.EqualValues(t, 800, section.UsualHalf(550))
	require.EqualValues(t, 900, section.UsualHalf(551))
}

func TestAStepOfTheWallClockKeepsDurations(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s := f.P.Stream(3, "main")
	f.Flush(t)
	f.P.Clock.Offset.Store(int64(10 * time.Minute)) // as after the wall clock was set back while idle
	enginetest.Op.Record(context.Background(), s, time.Time{}, time.Microsecond, work.Work{})
	host := section.NewOperation("host", enginetest.Sync(settings.SyncNone))
	host.Start(context.Background(), s).End()
	enginetest.Op.Start(context.Background(), s).End()
	f.Flush(t)
	for _, span := range f.Spans.Ended() {
		require.WithinDuration(t, time.Now(), span.EndTime(), time.Minute, span.Name())
	}
}
