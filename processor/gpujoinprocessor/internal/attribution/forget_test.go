// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// even consumes 1 unit per ns, known outside of [from, to).
type even struct{ from, to int64 }

func (even) Levels(_ uint64, _, _ int64, dst []Level) []Level { return dst }

func (even) Windows(_, _ int64, dst []Window) []Window { return dst }

func (g even) covered(from, to int64) int64 {
	return to - from - max(0, min(to, g.to)-max(from, g.from))
}

func (g even) Knots(from, to int64, dst []Knot) []Knot {
	dst = append(dst, Knot{Time: from})
	for _, t := range []int64{g.from, g.to, to} {
		if last := dst[len(dst)-1]; t > last.Time && t <= to {
			known := g.covered(from, t)
			dst = append(dst, Knot{Time: t, Value: float64(known), Covered: known})
		}
	}
	return dst
}

func id(n byte) Key { return Key{Trace: [16]byte{1}, Span: [8]byte{n}} }

// A span that arrives late reports for how much of it the counter is known, in the settled part and
// in the rest.
func TestCoveredTimeOfALateSpan(t *testing.T) {
	d, g := New(Limits{}, &Budget{Max: 100}), even{from: 40, to: 70}
	d.Add(Span{Key: id(1), Process: 1, Start: 0, End: 10}, 0, g)
	d.Settle(100, g)
	_, at, _ := d.Add(Span{Key: id(2), Process: 1, Start: 20, End: 90}, 0, g)  // settled
	_, on, _ := d.Add(Span{Key: id(3), Process: 2, Start: 60, End: 130}, 0, g) // in part
	d.Settle(200, g)
	s, ok := d.Share(id(2), at)
	require.True(t, ok)
	assert.EqualValues(t, 40, s.Covered)
	assert.EqualValues(t, 70, s.Late)
	assert.Equal(t, 40.0, s.Value, "free, and known")
	s, ok = d.Share(id(3), on)
	require.True(t, ok)
	assert.EqualValues(t, 60, s.Covered)
	assert.EqualValues(t, 40, s.Late)
	assert.Equal(t, 40.0, s.Value, "10 of the free time that was left, 30 of its own")
}

// Free time is kept exactly as long as Free.
func TestFreeTimeIsKeptForALimit(t *testing.T) {
	x, g := New(Limits{Free: 500, FreeIntervals: 600, Remember: 10}, &Budget{Max: 100}), even{}
	for to := int64(2); to <= 2000; to += 2 { // every second ns is free
		x.Add(Span{
			Key: Key{Trace: [16]byte{2}, Span: [8]byte{byte(to), byte(to >> 8), 1}}, Process: 1, Start: to - 2,
			End: to - 1,
		}, 0, g)
		x.Settle(to, g)
	}
	assert.LessOrEqual(t, x.free.list[0].from, int64(1501))
	assert.Greater(t, x.free.list[0].from, int64(1500-2*600/4-4), "what is too old goes in larger portions")
	d := New(Limits{}, &Budget{Max: 100})
	assert.EqualValues(t, 5*60*1e9, d.limits.Free)
	d.Add(Span{Key: id(1), Process: 1, Start: 1e12, End: 1e12 + 10}, 0, g)
	d.Settle(1e12+10, g)
	d.Settle(1e12+299e9, g)
	_, at, _ := d.Add(Span{Key: id(2), Process: 1, Start: 1e12 + 100, End: 1e12 + 200}, 0, g)
	s, _ := d.Share(id(2), at)
	assert.Equal(t, 100.0, s.Value, "299 s later")
}

// A process is kept while it has unended spans, and a span while it is remembered, so that memory
// stays bounded over a year.
func TestProcessesAndSpansAreForgotten(t *testing.T) {
	d, g := New(Limits{Remember: 5}, &Budget{Max: 1000}), even{}
	for p := range int64(1000) {
		d.Add(Span{
			Key: Key{Trace: [16]byte{3}, Span: [8]byte{byte(p), byte(p >> 8), 1}}, Process: uint64(p),
			Start: 10 * p, End: 10*p + 15,
		}, 0, g)
		d.Settle(10*p, g)
		require.LessOrEqual(t, len(d.procs.byID), 3)
		require.LessOrEqual(t, len(d.procs.all), 4)
		require.LessOrEqual(t, d.nodes.Len(), 4)
		require.LessOrEqual(t, int(d.budget.slab.made), 4)
	}
	d.Settle(1e6, g)
	assert.Empty(t, d.procs.byID)
	assert.Zero(t, d.Pending())
}

// A pinned span outlives Remember, until its share is requested.
func TestPinnedSpansAreNotForgotten(t *testing.T) {
	d, g := New(Limits{Remember: 10}, &Budget{Max: 100}), even{}
	_, at, _ := d.Add(Span{Key: id(1), Process: 1, Start: 0, End: 10}, 0, g)
	d.Pin(id(1), at)
	for to := int64(10); to <= 1000; to += 10 {
		d.Settle(to, g)
	}
	s, ok := d.Share(id(1), at)
	require.True(t, ok)
	assert.Equal(t, 10.0, s.Value)
	d.Unpin(id(1), at)
	for to := int64(1010); to <= 1100; to += 10 {
		d.Settle(to, g)
	}
	_, ok = d.Share(id(1), at)
	assert.False(t, ok)
	assert.False(t, d.Contains(&Span{Key: id(1)}))
}

// The share of an unended span is its share so far.
func TestCoveredTimeOfASpanThatHasNotEnded(t *testing.T) {
	d, g := New(Limits{}, &Budget{Max: 100}), even{from: 40, to: 70}
	d.Add(Span{Key: id(1), Process: 1, Start: 0, End: 10}, 0, g)
	_, at, _ := d.Add(Span{Key: id(2), Process: 1, Start: 20, End: 130}, 0, g)
	for _, x := range []struct{ settled, covered int64 }{{15, 0}, {60, 20}, {100, 50}, {200, 80}} {
		d.Settle(x.settled, g)
		s, ok := d.Share(id(2), at)
		require.True(t, ok)
		assert.Equal(t, x.settled >= 130, s.Ended)
		assert.Equal(t, x.covered, s.Covered, "at %d", x.settled)
	}
}

// If the host span above some descendants later gets a parent, their time counts for that parent.
func TestTimeHeldBelowAHostSpanIsNotLate(t *testing.T) {
	for _, x := range []struct{ end, pass, late int64 }{{100, 50, 0}, {40, 50, 60}} { // still active, and ended
		d, g := New(Limits{}, &Budget{Max: 100}), even{}
		d.Add(Span{Key: id(3), Parent: id(2).Span, Process: 1, Start: 0, End: x.end}, 0, g)
		d.Settle(x.pass, g)
		d.Pass(id(2), id(1).Span)
		d.Settle(100, g)
		_, at, _ := d.Add(Span{Key: id(1), Process: 1, Start: 0, End: 100}, 0, g)
		s, ok := d.Share(id(1), at)
		require.True(t, ok)
		assert.Equal(t, x.late, s.Late)
		assert.Equal(t, 100.0, s.Value)
	}
}

// An evicted node is reused for another device, which may have a span with the same ID.
func TestAForgottenParentIsNotThatOfAnotherDevice(t *testing.T) {
	budget, g := &Budget{Max: 100}, even{}
	a, b := New(Limits{Remember: 10}, budget), New(Limits{}, budget)
	a.Add(Span{Key: id(2), Parent: id(1).Span, Process: 1, Start: 0, End: 10}, 0, g)
	for to := int64(10); to <= 100; to += 10 {
		a.Settle(to, g)
	}
	require.Zero(t, budget.Used())
	_, at, _ := b.Add(Span{Key: id(1), Process: 1, Start: 0, End: 10}, 0, g)
	a.Add(Span{Key: id(3), Parent: id(1).Span, Process: 1, Start: 100, End: 110}, 0, g)
	a.Settle(110, g)
	b.Settle(110, g)
	s, ok := b.Share(id(1), at)
	require.True(t, ok)
	assert.Equal(t, 10.0, s.Value)
	assert.Equal(t, 10.0, a.OnOtherDevices(id(1)))
}
