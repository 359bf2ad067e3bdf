// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// grid implements the rule by brute force: time is a row of cells, each with its own flow. Settling
// a cell tests for every span whether it covers the cell, and for every pair whether one descends
// from the other.
type grid struct {
	flow    []float64 // per cell
	known   []bool    // per cell: the counter is known
	settled int
	spans   []*gspan
	dealt   []bool // per cell: settled with an active span, or taken
}

type gspan struct {
	id, parent, process, start, end int
	from                            int          // first cell in which it takes part in the sweep
	took                            map[int]bool // cells that were free when it arrived late
	own                             float64
	late                            int
}

func newGrid(r *rand.Rand, cells int) *grid {
	g := &grid{flow: make([]float64, cells), known: make([]bool, cells), dealt: make([]bool, cells)}
	// The flow is constant between samples at arbitrary times.
	for i := 0; i < cells; {
		n := 1 + r.IntN(9)
		f, known := r.Float64()*700, r.IntN(12) > 0
		for ; n > 0 && i < cells; n, i = n-1, i+1 {
			if known {
				g.flow[i] = f
			}
			g.known[i] = known
		}
	}
	return g
}

// above reports whether a is an ancestor of b among the spans that have arrived.
func (g *grid) above(a, b *gspan) bool {
	for range g.spans {
		p := g.find(b.parent)
		if p == nil {
			return false
		}
		if p == a {
			return true
		}
		b = p
	}
	return false
}

func (g *grid) find(id int) *gspan {
	for _, s := range g.spans {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (g *grid) arrive(s gspan) {
	n := &s
	n.from = max(s.start, g.settled)
	n.took = map[int]bool{}
	g.spans = append(g.spans, n)
	held := map[int]bool{}
	for _, d := range g.spans {
		if d != n && g.above(n, d) {
			for c := d.start; c < d.end; c++ {
				if c >= d.from && c < g.settled || d.took[c] {
					held[c] = true
				}
			}
		}
	}
	for c := s.start; c < min(s.end, g.settled); c++ {
		if !held[c] {
			n.late++
		}
		if !g.dealt[c] {
			g.dealt[c] = true
			n.took[c] = true
			n.own += g.flow[c]
		}
	}
}

func (g *grid) settle(to int) {
	for ; g.settled < to; g.settled++ {
		c := g.settled
		byProcess := map[int][]*gspan{}
		for _, s := range g.spans {
			if c < s.from || c >= s.end {
				continue
			}
			inner := true
			for _, o := range g.spans {
				if o != s && c >= o.from && c < o.end && g.above(s, o) {
					inner = false
				}
			}
			if inner {
				byProcess[s.process] = append(byProcess[s.process], s)
			}
		}
		for _, spans := range byProcess {
			g.dealt[c] = true
			for _, s := range spans {
				s.own += g.flow[c] / float64(len(byProcess)) / float64(len(spans))
			}
		}
	}
}

func (g *grid) value(s *gspan) float64 {
	v := s.own
	for _, o := range g.spans {
		if o != s && g.above(s, o) {
			v += o.own
		}
	}
	return v
}

// timeline creates spans as programs do: loops of steps with nested sections, several streams and
// processes; and a few that no program would create.
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
			parent = 1000 + r.IntN(3) // a host span that never arrives
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
		// Spans arrive in end order, as exporters send them, with individual delays; some much
		// later.
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
		d.Add(span(999999, 0, 9, 0, 1), 0, g) // pins the start of settled time to 0
		g.arrive(gspan{id: 999999, process: 9, start: 0, end: 1})
		for now := range cells + 30 {
			for _, a := range todo {
				if a.at == now {
					before := g.settled
					g.arrive(a.s)
					require.Equal(t, attribution.Taken, take(d, span(a.s.id, a.s.parent, a.s.process, a.s.start, a.s.end), g))
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
			got, ok := share(d, s.id)
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
	// If descendants that were connected through different placeholders overlap, or are outside of
	// the span, their time counts twice; no program nests like that.
	assert.Greater(t, float64(exact), 0.9*float64(late))
}

// cellNS is one cell of the grid in ns.
const cellNS = 1000

// Knots returns the grid's cells as a counter with a sample at every cell border.
func (g *grid) Knots(from, to int64, dst []attribution.Knot) []attribution.Knot {
	var k attribution.Knot
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

func (*grid) Levels(_ uint64, _, _ int64, dst []attribution.Level) []attribution.Level { return dst }

func (*grid) Windows(_, _ int64, dst []attribution.Window) []attribution.Window { return dst }
