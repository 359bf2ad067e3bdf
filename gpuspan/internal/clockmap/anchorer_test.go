// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

func newAnchorer(t testing.TB, p *physics) *Anchorer {
	a, st := NewAnchorer(p, 0, Defaults())
	require.Zero(t, st)
	a.rest = p.rest
	return a
}

// drive maintains a for d, as a polling thread would, and returns the number of new anchors.
func drive(t testing.TB, p *physics, a *Anchorer, d time.Duration, busy bool) int {
	from := a.made
	for until := p.now + float64(d); p.now < until; {
		wait, st := a.Maintain(busy)
		require.Zero(t, st)
		if wait == 0 {
			wait = d
		}
		p.sleep(max(min(float64(wait), until-p.now), 1))
	}
	return a.made - from
}

func TestAnchorsAreDenseAtFirstAndThenEverySixtyMilliseconds(t *testing.T) {
	p := newPhysics(1, 5*time.Minute, 25, 1)
	a := newAnchorer(t, p)
	require.Equal(t, 7, drive(t, p, a, 280*time.Millisecond, true)) // 0 10 30 70 130 190 250 ms
	require.InDelta(t, 1000, drive(t, p, a, time.Minute, true), 5)
}

func TestNoAnchorsWhileIdle(t *testing.T) {
	p := newPhysics(1, 3*time.Hour, 25, 1)
	a := newAnchorer(t, p)
	require.Zero(t, drive(t, p, a, time.Minute, false))
	drive(t, p, a, time.Minute, true)
	require.InDelta(t, 167, drive(t, p, a, time.Hour, false), 4)
	require.Equal(t, 7, drive(t, p, a, 280*time.Millisecond, true))
	require.Zero(t, a.Map().Anomalies())
}

func TestPlacementAfterAnIdleHourUsesTheEarlierDrift(t *testing.T) {
	p := newPhysics(1, 3*time.Hour, 100, 0)
	a := newAnchorer(t, p)
	drive(t, p, a, time.Minute, true)
	drive(t, p, a, time.Hour, false)
	drive(t, p, a, time.Millisecond, true)
	start := p.now
	e := p.put(start)
	p.sleep(9e6)
	at, _, _, half, ok := place(a, e, e)
	require.True(t, ok)
	err := math.Abs(float64(at - p.time(start).UnixNano()))
	require.LessOrEqual(t, err, 2000.0)
	require.LessOrEqual(t, err, float64(half))
}

func TestLongSectionIsMeasuredFromAnAnchorNearItsStart(t *testing.T) {
	p := newPhysics(2, 5*time.Minute, 100, 0)
	a := newAnchorer(t, p)
	drive(t, p, a, 30*time.Second, true)
	start := p.now
	s := p.put(start)
	drive(t, p, a, 40*time.Second, true)
	end := p.now
	at, last, duration, half, ok := place(a, s, p.put(end))
	require.True(t, ok)
	require.LessOrEqual(t, math.Abs(float64(at-p.time(start).UnixNano())), float64(half))
	// from an anchor 40 s away float32 alone would be 1950 ns off
	require.Less(t, half, int64(6000))
	require.InDelta(t, end-start, duration, 500+1953+40e9*5e-8) // tick, float32 of 40 s, rate
	require.InDelta(t, float64(last-at), duration, 1)
}

func TestEventFarAheadOfTheLastAnchorMakesAnAnchor(t *testing.T) {
	p := newPhysics(2, 5*time.Minute, 25, 0)
	a := newAnchorer(t, p)
	drive(t, p, a, 30*time.Second, true)
	p.sleep(60e9)
	start := p.now
	e := p.put(start)
	n := a.made
	p.sleep(1e6)
	at, _, _, half, ok := place(a, e, e)
	require.True(t, ok)
	require.Equal(t, n+1, a.made)
	require.LessOrEqual(t, math.Abs(float64(at-p.time(start).UnixNano())), float64(half))
	require.Less(t, half, int64(8000))
}

func TestHostTimesNarrowThePlacement(t *testing.T) {
	p := newPhysics(2, 5*time.Minute, 25, 0)
	a := newAnchorer(t, p)
	drive(t, p, a, 30*time.Second, true)
	p.sleep(0.5e9)
	start := p.now
	s, e := p.put(start), p.put(start+10e3)
	p.sleep(1e6)
	at, _, _, half, ok := placeWithin(a, s, e, p.time(start-100), p.time(start+10e3+100))
	require.True(t, ok)
	require.GreaterOrEqual(t, at, p.time(start-100).UnixNano())
	require.LessOrEqual(t, half, int64(100+100+500+2))
	require.Zero(t, a.Map().Anomalies())
}

func TestSectionOutsideItsHostTimesIsAnAnomalyAndTriggersAnchors(t *testing.T) {
	p := newPhysics(2, 5*time.Minute, 25, 0)
	a := newAnchorer(t, p)
	drive(t, p, a, 30*time.Second, true)
	start := p.now
	s := p.put(start)
	stamps, ok := a.Read(s, s, a.Axis(p.time(start+1e6)), a.Axis(p.time(start+2e6)))
	require.True(t, ok)
	before := p.now
	a.Place(&stamps)
	require.Equal(t, before, p.now, "placing asks no clock: one that panics would do so again and again")
	require.EqualValues(t, 1, a.Map().Anomalies())
	require.GreaterOrEqual(t, drive(t, p, a, 100*time.Millisecond, true), 4)
}

func TestDriverErrorsAreReturnedAndRetried(t *testing.T) {
	p := newPhysics(2, 5*time.Minute, 25, 0)
	a := newAnchorer(t, p)
	p.fail = 709
	_, st := a.Maintain(true)
	require.EqualValues(t, 709, st)
	wait, st := a.Maintain(true)
	require.Zero(t, st)
	require.Positive(t, wait)
	_, _, _, _, ok := place(a, p.put(1), p.put(2))
	require.False(t, ok)
	p.fail = 0
	start := p.now
	e := p.put(start)
	p.sleep(1e6)
	at, _, _, half, ok := place(a, e, e) // immediately, not at the next due time
	require.True(t, ok)
	require.LessOrEqual(t, math.Abs(float64(at-p.time(start).UnixNano())), float64(half))

	p.fail = 2
	_, st = NewAnchorer(p, 0, Defaults())
	require.EqualValues(t, 2, st)
}

func TestHangingDeviceDoesNotHangTheThread(t *testing.T) {
	p := newPhysics(2, 5*time.Minute, 25, 0)
	a := newAnchorer(t, p)
	drive(t, p, a, 10*time.Second, true)
	p.hang = true
	p.sleep(1e9)
	from := p.now
	_, st := a.Maintain(true)
	require.EqualValues(t, backend.StatusNotReady, st)
	require.InDelta(t, 100e6, p.now-from, 2e6)
	p.hang = false
	p.sleep(1e9)
	require.Positive(t, drive(t, p, a, time.Second, true))
	require.Zero(t, a.Map().Anomalies())
}

// stalled is a device whose polling thread loses its CPU after each first response.
type stalled struct {
	*physics
	asked event
}

func (s *stalled) Query(e event) status {
	st := s.physics.Query(e)
	if s.asked != e {
		s.asked = e
		s.sleep(300e6)
	}
	return st
}

func TestADelayedThreadDoesNotReportAHungDevice(t *testing.T) {
	p := newPhysics(2, 5*time.Minute, 25, 0)
	a := newAnchorer(t, p)
	a.dev = &stalled{physics: p}
	require.Zero(t, a.Anchor())
	require.Equal(t, 1, a.made)
}

func TestClockThatStopsDoesNotHangTheThread(t *testing.T) {
	p := newPhysics(2, 5*time.Minute, 25, 0)
	a := newAnchorer(t, p)
	p.hang = true
	rests := 0
	a.rest = func(time.Duration) { p.now = 0; rests++ }
	require.EqualValues(t, backend.StatusNotReady, a.Anchor())
	require.Less(t, rests, 3000)
}

func TestSimulatedClockIsMovedByWaiting(t *testing.T) {
	p := newPhysics(2, 5*time.Minute, 25, 0)
	p.simulated, p.delayed, p.everyOne, p.queue = true, 1, true, 10e6
	a := newAnchorer(t, p)
	a.rest = func(time.Duration) { t.Fatal("slept in real time") }
	require.Zero(t, a.Anchor())
	start := p.now
	p.sleep(1e6)
	at, _, _, half, ok := place(a, p.put(start), p.put(start+1e3))
	require.True(t, ok)
	require.LessOrEqual(t, math.Abs(float64(at-p.time(start).UnixNano())), float64(half))
}

// A destroyed context invalidates stream, events and the chain of anchors. The next anchors
// restart.
func TestEventsThatFailOtherwiseAreFreedAndReplaced(t *testing.T) {
	p := newPhysics(2, 5*time.Minute, 25, 0)
	a := newAnchorer(t, p)
	drive(t, p, a, 5*time.Second, true)
	p.lost, p.lostStatus = p.next, 719
	drive(t, p, a, 5*time.Second, true)
	a.Close()
	require.Empty(t, p.stamps)
}

func TestLostEventsAreReplaced(t *testing.T) {
	p := newPhysics(2, 5*time.Minute, 25, 0)
	a := newAnchorer(t, p)
	drive(t, p, a, 20*time.Second, true)
	before := a.events
	for _, e := range before {
		p.drop(e)
	}
	p.lost, p.lostStatus = p.next, backend.StatusContextDestroyed
	drive(t, p, a, 20*time.Second, true)
	for i := range before {
		require.NotEqual(t, before[i], a.events[i])
	}
	start := p.now
	e := p.put(start)
	p.sleep(1e6)
	at, _, _, half, ok := place(a, e, e)
	require.True(t, ok)
	require.LessOrEqual(t, math.Abs(float64(at-p.time(start).UnixNano())), float64(half))
	require.Less(t, half, int64(10_000))
	a.Close()
	require.Equal(t, 1, len(p.stamps), "only the test's own event is left")
}

// place reads a section and converts its times immediately, without a later anchor.
func place(a *Anchorer, start, end event) (at, last int64, duration float64, half int64,
	ok bool,
) {
	return placeBetween(a, start, end, 0, 0)
}

func placeWithin(a *Anchorer, start, end event, submitted, seen time.Time) (at, last int64,
	duration float64, half int64, ok bool,
) {
	return placeBetween(a, start, end, a.Axis(submitted), a.Axis(seen))
}

func placeBetween(a *Anchorer, start, end event, submitted, seen int64) (at, last int64,
	duration float64, half int64, ok bool,
) {
	s, ok := a.Read(start, end, submitted, seen)
	if !ok {
		return 0, 0, 0, 0, false
	}
	p := a.Place(&s)
	return p.Start, p.End, float64(p.End - p.Start), p.HalfWidth, true
}

// A busy stream is read in batches of some hundred sections. One anchor after the first of a batch
// suffices for all of them.
func TestSectionReadAfterItsAnchorDoesNotWaitForAnother(t *testing.T) {
	p := newPhysics(1, time.Minute, 25, 1)
	a := newAnchorer(t, p)
	drive(t, p, a, time.Second, true)
	s := p.put(p.now + 100)
	e := p.put(p.now + 5000)
	p.now += 10e3
	before, ok := a.Read(s, e, 0, 0)
	require.True(t, ok)
	require.False(t, a.Bracketed(&before))
	require.Zero(t, a.Anchor())
	require.True(t, a.Bracketed(&before))
	after, ok := a.Read(s, e, 0, 0)
	require.True(t, ok)
	require.True(t, a.Bracketed(&after))
	later := p.put(p.now + 100)
	p.now += 1000
	across, ok := a.Read(s, later, 0, 0)
	require.True(t, ok)
	require.False(t, a.Bracketed(&across))
}
