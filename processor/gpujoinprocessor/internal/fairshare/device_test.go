// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/cputime"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/fairshare"
)

// cellNS is one cell of the grid in ns.
const cellNS = 1000

// Knots reads the grid's cells as a counter with a sample at every cell border.
func (g *grid) Knots(from, to int64, dst []fairshare.Knot) []fairshare.Knot {
	var k fairshare.Knot
	k.Time = from
	dst = append(dst, k)
	for k.Time < to {
		cell := int(k.Time / cellNS)
		next := min(to, int64(cell+1)*cellNS)
		if cell < len(g.known) && g.known[cell] {
			k.Value += g.flow[cell] * float64(next-k.Time) / cellNS
			k.Covered += next - k.Time
		}
		k.Time = next
		dst = append(dst, k)
	}
	return dst
}

func (g *grid) Covered(from, to int64) int64 {
	k := g.Knots(from, to, nil)
	return k[len(k)-1].Covered
}

func key(id int) fairshare.Key {
	k := fairshare.Key{Trace: [16]byte{1}}
	k.Span = spanID(id)
	return k
}

func spanID(id int) (s [8]byte) {
	if id != 0 {
		binary.BigEndian.PutUint64(s[:], uint64(id))
	}
	return s
}

func span(id, parent, process, start, end int) fairshare.Span {
	return fairshare.Span{
		Key: key(id), Parent: spanID(parent), Process: uint64(process),
		Start: int64(start) * cellNS, End: int64(end) * cellNS,
	}
}

func newDevice() *fairshare.Device {
	return fairshare.New(fairshare.Limits{}, &fairshare.Budget{Max: 1 << 20})
}

func take(d *fairshare.Device, s fairshare.Span, m fairshare.Meter) fairshare.Arrival {
	a, _, _ := d.Arrive(s, 0, m)
	return a
}

// share looks a span up by the place that a second arrival gives, as the second look at a batch does.
func share(d *fairshare.Device, id int, m fairshare.Meter) (fairshare.Share, bool) {
	a, at, _ := d.Arrive(fairshare.Span{Key: key(id), End: 1}, 0, m)
	s, ok := d.Share(key(id), at)
	return s, ok && a == fairshare.Known
}

// timeline makes spans as programs make them: loops of steps with nested sections, several streams, several processes;
// and a few that no program would make.
func timeline(r *rand.Rand, cells int) []gspan {
	var spans []gspan
	id := 0
	var nest func(parent, process, start, end, depth int)
	nest = func(parent, process, start, end, depth int) {
		id++
		me := id
		if me > 1 && r.IntN(8) == 0 { // a parent elsewhere, in another process too
			parent = 1 + r.IntN(me-1)
		}
		if r.IntN(12) == 0 {
			process = 1 + r.IntN(3)
		}
		spans = append(spans, gspan{id: me, parent: parent, process: process, start: start, end: end})
		if depth == 0 || end-start < 3 {
			return
		}
		for range 1 + r.IntN(2) { // streams
			for t := start; t < end-1; {
				a := t + r.IntN(3)
				b := a + 1 + r.IntN(max(1, (end-start)/2))
				if r.IntN(10) > 0 {
					b = min(b, end)
				}
				if b = min(b, cells); b <= a {
					break
				}
				nest(me, process, a, b, depth-1)
				t = b
			}
		}
	}
	for range 1 + r.IntN(4) {
		process := 1 + r.IntN(3)
		a := r.IntN(cells - 2)
		b := min(cells, a+1+r.IntN(cells/2))
		parent := 0
		if r.IntN(3) == 0 {
			parent = 1000 + r.IntN(3) // a host span that never comes
		}
		nest(parent, process, a, b, r.IntN(4))
	}
	return spans
}

func TestShareEqualsBruteForceOnRandomTimelines(t *testing.T) {
	const rounds, cells = 2000, 60
	lateSpans := 0
	late, exact := 0, 0
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 7919))
		g := newGrid(r, cells)
		d := newDevice()
		spans := timeline(r, cells)
		// Spans arrive by their end, as exporters send them, with a delay of their own; some much later.
		type arrival struct {
			at int
			s  gspan
		}
		var todo []arrival
		for _, s := range spans {
			at := s.end + r.IntN(6)
			switch r.IntN(8) {
			case 0:
				at = s.start // the clock of a fast sender
			case 1:
				at += 20
			}
			todo = append(todo, arrival{at, s})
		}
		r.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
		d.Arrive(span(999999, 0, 9, 0, 1), 0, g) // pins the beginning of settled time to 0
		g.arrive(gspan{id: 999999, process: 9, start: 0, end: 1})
		for now := range cells + 30 {
			for _, a := range todo {
				if a.at == now {
					before := g.settled
					g.arrive(a.s)
					require.Equal(t, fairshare.Taken, take(d, span(a.s.id, a.s.parent, a.s.process, a.s.start, a.s.end), g))
					if a.s.start < before {
						lateSpans++
					}
				}
			}
			if r.IntN(3) == 0 {
				to := max(g.settled, min(cells, now-r.IntN(5)))
				if to > 0 {
					g.settle(to)
					d.Settle(int64(to)*cellNS, g)
				}
			}
		}
		g.settle(cells)
		d.Settle(cells*cellNS, g)

		var flow, own float64
		for _, f := range g.flow {
			flow += f
		}
		for _, s := range g.spans {
			got, ok := share(d, s.id, g)
			require.True(t, ok)
			want := g.value(s)
			require.InDelta(t, want, got.Value, 1e-9*(1+flow), "round %d span %d", round, s.id)
			require.InDelta(t, s.own, got.Own, 1e-9*(1+flow), "round %d span %d", round, s.id)
			require.True(t, got.Ended)
			require.LessOrEqual(t, got.Late, int64(s.late)*cellNS, "round %d span %d", round, s.id)
			if s.late > 0 {
				late++
				if got.Late == int64(s.late)*cellNS {
					exact++
				}
			}
			own += got.Own
		}
		tot := d.Totals()
		require.InEpsilon(t, flow+1, tot.Attributed+tot.Unattributed+1, 1e-9, "round %d", round)
		require.InEpsilon(t, own+1, tot.Attributed+tot.Late+1, 1e-9, "round %d", round)
		require.Zero(t, d.Pending())
	}
	assert.Greater(t, lateSpans, rounds/2, "the late branch must be exercised")
	// Where descendants that met through different placeholders overlap, or lie outside of the span, their time counts
	// twice; no program nests like that.
	assert.Greater(t, float64(exact), 0.9*float64(late))
}

func shares(t *testing.T, d *fairshare.Device, ids ...int) []float64 {
	t.Helper()
	out := make([]float64, len(ids))
	for i, id := range ids {
		s, ok := share(d, id, nil)
		require.True(t, ok, "span %d", id)
		out[i] = s.Value
	}
	return out
}

// flat is a device that draws 1 unit in each cell.
func flat() *grid {
	g := &grid{flow: make([]float64, 1000), known: make([]bool, 1000), dealt: make([]bool, 1000)}
	for i := range g.flow {
		g.flow[i], g.known[i] = 1, true
	}
	return g
}

func TestShare(t *testing.T) {
	type op struct {
		settle int
		span   fairshare.Span
	}
	arrive := func(id, parent, process, start, end int) op { return op{span: span(id, parent, process, start, end)} }
	settle := func(to int) op { return op{settle: to} }
	for name, tt := range map[string]struct {
		ops  []op
		want map[int]float64
		late map[int]int64
	}{
		"two processes share equally": {
			ops:  []op{arrive(1, 0, 1, 0, 10), arrive(2, 0, 2, 0, 10), settle(10)},
			want: map[int]float64{1: 5, 2: 5},
		},
		"a process that idles inside an open step takes nothing from a neighbour that works": {
			// Process 1 has a step with one section; process 2 one section. The step itself is innermost in [4, 10).
			ops: []op{
				arrive(1, 0, 1, 0, 10), arrive(2, 1, 1, 0, 4), arrive(3, 0, 2, 0, 10), settle(10),
			},
			want: map[int]float64{1: 5, 2: 2, 3: 5},
		},
		"three streams of one process beside one stream of another": {
			ops: []op{
				arrive(1, 0, 1, 0, 12), arrive(2, 0, 1, 0, 12), arrive(3, 0, 1, 0, 12), arrive(4, 0, 2, 0, 12), settle(12),
			},
			want: map[int]float64{1: 2, 2: 2, 3: 2, 4: 6},
		},
		"a step after its children": {
			ops:  []op{arrive(2, 1, 1, 0, 4), arrive(3, 1, 1, 6, 10), settle(11), arrive(1, 0, 1, 0, 10)},
			want: map[int]float64{1: 10, 2: 4, 3: 4}, late: map[int]int64{1: 2},
		},
		"a step after its children, of which one is still open": {
			ops: []op{
				arrive(2, 1, 1, 0, 4), arrive(3, 1, 1, 6, 10), settle(8), arrive(1, 0, 1, 0, 12), settle(20),
			},
			want: map[int]float64{1: 12, 2: 4, 3: 4}, late: map[int]int64{1: 2},
		},
		"a step whose children came and which takes nothing of a neighbour": {
			ops: []op{
				arrive(2, 1, 1, 0, 4), arrive(9, 0, 2, 0, 10), settle(10), arrive(1, 0, 1, 0, 10),
			},
			want: map[int]float64{1: 2, 2: 2, 9: 8}, late: map[int]int64{1: 6},
		},
		"a long span after the short ones inside it": {
			ops: []op{
				arrive(5, 0, 1, 0, 1), arrive(2, 0, 1, 2, 3), arrive(3, 0, 1, 5, 6), settle(20), arrive(1, 0, 2, 0, 8), arrive(4, 0, 2, 0, 9),
			},
			want: map[int]float64{1: 5, 2: 1, 3: 1, 4: 1}, late: map[int]int64{1: 8, 4: 9},
		},
		"a span before the first one that was seen": {
			ops:  []op{arrive(1, 0, 1, 5, 10), settle(20), arrive(2, 0, 2, 1, 7)},
			want: map[int]float64{1: 5, 2: 4}, late: map[int]int64{2: 6},
		},
		"grandchildren before the middle before the top": {
			ops: []op{
				arrive(3, 2, 1, 0, 4), settle(5), arrive(2, 1, 1, 0, 5), settle(8), arrive(1, 0, 1, 0, 8),
			},
			want: map[int]float64{1: 8, 2: 5, 3: 4}, late: map[int]int64{1: 3, 2: 1},
		},
		"equal timestamps": {
			ops: []op{
				arrive(1, 0, 1, 0, 5), arrive(2, 0, 1, 5, 10), arrive(3, 2, 1, 5, 10), arrive(4, 0, 1, 5, 10), settle(5), settle(10),
			},
			want: map[int]float64{1: 5, 2: 2.5, 3: 2.5, 4: 2.5},
		},
		"a child that outlasts its parent": {
			ops:  []op{arrive(1, 0, 1, 0, 5), arrive(2, 1, 1, 0, 8), settle(10)},
			want: map[int]float64{1: 8, 2: 8},
		},
		"a child of another process": {
			ops:  []op{arrive(1, 0, 1, 0, 10), arrive(2, 1, 2, 2, 8), settle(10)},
			want: map[int]float64{1: 10, 2: 6},
		},
		"a circle of parents": {
			ops:  []op{arrive(1, 2, 1, 0, 10), arrive(2, 1, 1, 0, 10), arrive(3, 3, 1, 0, 10), settle(10)},
			want: map[int]float64{1: 5, 2: 5, 3: 5}, // 1 hangs below 2, the way back is refused
		},
		"the same span twice": {
			ops:  []op{arrive(1, 0, 1, 0, 10), arrive(1, 0, 1, 0, 10), settle(10), arrive(1, 0, 1, 0, 10)},
			want: map[int]float64{1: 10},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, g := newDevice(), flat()
			for _, o := range tt.ops {
				if o.settle > 0 {
					d.Settle(int64(o.settle)*cellNS, g)
				} else {
					require.NotEqual(t, fairshare.Refused, take(d, o.span, g))
				}
			}
			for id, want := range tt.want {
				got, ok := share(d, id, g)
				require.True(t, ok)
				assert.InDelta(t, want, got.Value, 1e-12, "span %d", id)
				assert.Equal(t, tt.late[id]*cellNS, got.Late, "late of span %d", id)
			}
		})
	}
}

func TestChainsOfParentsAreBounded(t *testing.T) {
	d, g := newDevice(), flat()
	for id := 1; id <= 300; id++ { // each the parent of the next
		take(d, span(id, id-1, 1, 0, 9), g)
	}
	d.Settle(9*cellNS, g)
	// 129 spans hang together, then a new chain begins: three innermost spans.
	assert.InDeltaSlice(t, []float64{3, 3, 3, 3, 3}, shares(t, d, 1, 129, 130, 259, 300), 1e-12)
}

func TestParentIsKeptWhileAChildIsPending(t *testing.T) {
	d := fairshare.New(fairshare.Limits{Remember: 10 * cellNS}, &fairshare.Budget{Max: 1 << 20})
	g := flat()
	take(d, span(1, 0, 1, 0, 2), g)
	take(d, span(2, 1, 1, 0, 2), g)
	take(d, span(3, 2, 1, 0, 90), g) // outlasts both by far
	for at := 1; at < 90; at++ {
		take(d, span(1000+at, 0, 1, at, at+1), g) // would take the places of forgotten ones
		d.Settle(int64(at)*cellNS, g)
	}
	d.Settle(91*cellNS, g)
	got := shares(t, d, 1, 2, 3)
	assert.InDeltaSlice(t, []float64{got[2], got[2], 1 + 89./2}, got, 1e-9)
}

func TestPassMovesChildrenThroughAHostSpan(t *testing.T) {
	d, g := newDevice(), flat()
	d.Arrive(span(3, 2, 1, 0, 4), 0, g) // kernel below host span 2 below step 1
	d.Settle(2*cellNS, g)
	d.Pass(key(2), spanID(1))
	d.Arrive(span(1, 0, 1, 0, 6), 0, g)
	d.Settle(6*cellNS, g)
	assert.InDeltaSlice(t, []float64{4, 6}, shares(t, d, 3, 1), 1e-12)
}

func TestMarkedSpansWithoutIDOrLengthAreRefused(t *testing.T) {
	d, g := newDevice(), flat()
	assert.Equal(t, fairshare.Refused, take(d, span(0, 0, 1, 0, 4), g))
	assert.Equal(t, fairshare.Refused, take(d, span(1, 0, 1, 4, 4), g))
	assert.Equal(t, fairshare.Refused, take(d, span(1, 0, 1, 5, 4), g))
	_, ok := d.Share(key(1), fairshare.Place{})
	assert.False(t, ok)
}

func TestUnknownFlowLeavesSpansUncovered(t *testing.T) {
	d, g := newDevice(), flat()
	for i := 4; i < 8; i++ {
		g.flow[i], g.known[i] = 0, false
	}
	d.Arrive(span(1, 0, 1, 4, 8), 0, g)
	d.Arrive(span(2, 0, 2, 2, 6), 0, g)
	d.Settle(10*cellNS, g)
	s, _ := share(d, 1, g)
	assert.Zero(t, s.Covered)
	s, _ = share(d, 2, g)
	assert.EqualValues(t, 2*cellNS, s.Covered)
	assert.InDelta(t, 2, s.Value, 1e-12)
}

func TestBudgetBoundsMemory(t *testing.T) {
	b := &fairshare.Budget{Max: 100}
	d, g := fairshare.New(fairshare.Limits{}, b), flat()
	refused := 0
	for i := 1; i <= 1000; i++ {
		if take(d, span(i, 5000+i, 1, 0, 900), g) == fairshare.Refused {
			refused++
		}
		require.LessOrEqual(t, b.Used(), 100)
	}
	assert.Positive(t, refused, "pending spans are not given up for new ones")
	d.Settle(900*cellNS, g)
	for i := 2001; i <= 3000; i++ {
		require.Equal(t, fairshare.Taken, take(d, span(i, 7000+i, 1, 950, 960), g), "ended spans make room")
		d.Settle(961*cellNS, g)
		require.LessOrEqual(t, b.Used(), 100)
	}
	assert.Positive(t, d.Totals().Orphans)
}

func TestDevicesOfOneBudgetUsePlacesAgain(t *testing.T) {
	b, g := &fairshare.Budget{Max: 3000}, flat()
	held := fairshare.New(fairshare.Limits{}, b)
	_, kept, _ := held.Arrive(span(1, 0, 1, 0, 900), 0, g)
	for round := range 5 {
		d := fairshare.New(fairshare.Limits{}, b)
		places := make([]fairshare.Place, 2999)
		for i := range places {
			a, at, _ := d.Arrive(span(i+2, 0, 1, 10, 20), 0, g)
			require.Equal(t, fairshare.Taken, a, "span %d of round %d", i, round)
			places[i] = at
		}
		require.Equal(t, fairshare.Refused, take(d, span(9000, 0, 1, 10, 20), g))
		d.Settle(30*cellNS, g)
		first, ok := d.Share(span(2, 0, 1, 10, 20).Key, places[0])
		require.True(t, ok)
		require.Positive(t, first.Value)
		for i, at := range places {
			s, ok := d.Share(span(i+2, 0, 1, 10, 20).Key, at)
			require.True(t, ok)
			require.InDelta(t, first.Value, s.Value, 1e-9*first.Value, "equal spans, equal shares")
		}
		require.InEpsilon(t, d.Totals().Attributed, 2999*first.Value, 1e-9)
		d.Close()
		_, ok = d.Share(span(2, 0, 1, 10, 20).Key, places[0])
		require.False(t, ok, "of a closed device")
		require.Equal(t, 1, b.Used())
	}
	held.Settle(1000*cellNS, g)
	s, ok := held.Share(span(1, 0, 1, 0, 900).Key, kept)
	require.True(t, ok)
	assert.True(t, s.Ended)
	assert.InEpsilon(t, held.Totals().Attributed, s.Value, 1e-9)
}

func TestRememberedSpansExpire(t *testing.T) {
	b := &fairshare.Budget{Max: 1 << 20}
	d, g := fairshare.New(fairshare.Limits{Remember: 10 * cellNS}, b), flat()
	d.Arrive(span(2, 1, 1, 0, 4), 0, g)
	d.Arrive(span(3, 2, 1, 1, 2), 0, g)
	d.Settle(5*cellNS, g)
	assert.Equal(t, 3, b.Used())
	d.Settle(30*cellNS, g)
	d.Settle(60*cellNS, g)
	assert.Zero(t, b.Used())
	assert.EqualValues(t, 1, d.Totals().Orphans, "the parent never came")
	d.Close()
}

// line draws 1 unit per ns, known everywhere.
type line struct{}

func (line) Knots(from, to int64, dst []fairshare.Knot) []fairshare.Knot {
	return append(dst, fairshare.Knot{Time: from}, fairshare.Knot{Time: to, Value: float64(to - from), Covered: to - from})
}
func (line) Covered(from, to int64) int64 { return to - from }

func TestSumsHoldOverMonthsWithoutIdleTime(t *testing.T) {
	d := fairshare.New(fairshare.Limits{}, &fairshare.Budget{Max: 1 << 20})
	// 700 W for three months are 5e9 J; with plain additions the last span would be off by 1e-6.
	const step = int64(1e9)
	m := rate{0.7e-6} // per ns
	d.Arrive(fairshare.Span{Key: key(1), Process: 1, End: 1 << 60}, 0, m)
	for at := range int64(1000) {
		d.Settle((at+1)*7776*step, m)
	}
	at := int64(1000) * 7776 * step
	d.Arrive(fairshare.Span{Key: key(2), Process: 1, Start: at, End: at + 1_000_000}, 0, m)
	d.Settle(at+2_000_000, m)
	assert.InEpsilon(t, 0.35, shares(t, d, 2)[0], 1e-12)
}

type rate struct{ perNS float64 }

func (r rate) Knots(from, to int64, dst []fairshare.Knot) []fairshare.Knot {
	return append(dst, fairshare.Knot{Time: from}, fairshare.Knot{Time: to, Value: float64(to-from) * r.perNS, Covered: to - from})
}
func (rate) Covered(from, to int64) int64 { return to - from }

// BenchmarkOverlap is the cost of one span with n others active beside it, arrival to settled. Spans are between half and
// one and a half times as long as n others take to arrive, so that they end in another order than they began.
func BenchmarkOverlap(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := fairshare.New(fairshare.Limits{Remember: time.Millisecond}, &fairshare.Budget{Max: 1 << 22})
			const gap = 1000
			var k fairshare.Key
			k.Trace[0] = 1
			i := int64(0)
			rng := rand.New(rand.NewPCG(1, 2))
			arrive := func() {
				i++
				binary.BigEndian.PutUint64(k.Span[:], uint64(i))
				d.Arrive(fairshare.Span{Key: k, Process: uint64(i % 4), Start: i * gap, End: (i+int64(n)/2+rng.Int64N(int64(n)))*gap + 1}, 0, line{})
				if i%64 == 0 {
					d.Settle((i-10)*gap, line{})
				}
			}
			for range 3 * n {
				arrive()
			}
			b.ReportAllocs()
			from := cputime.Used()
			for b.Loop() {
				arrive()
			}
			b.ReportMetric(float64((cputime.Used()-from).Nanoseconds())/float64(b.N), "cpu-ns/span")
		})
	}
}
