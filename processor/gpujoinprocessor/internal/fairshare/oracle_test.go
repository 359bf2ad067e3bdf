// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare_test

import "math/rand/v2"

// grid is the rule by brute force: time is a row of cells, each with its own flow; settling a cell asks every span
// whether it covers the cell, and every pair whether one descends from the other.
type grid struct {
	flow    []float64 // per cell
	known   []bool    // per cell: the counter is known
	settled int
	spans   []*gspan
	dealt   []bool // per cell: settled with somebody active, or taken
}

type gspan struct {
	id, parent, process, start, end int
	from                            int          // first cell in which it takes part in the sweep
	took                            map[int]bool // cells that were free when it came late
	own                             float64
	late                            int
}

func newGrid(r *rand.Rand, cells int) *grid {
	g := &grid{flow: make([]float64, cells), known: make([]bool, cells), dealt: make([]bool, cells)}
	// The flow is constant between samples, which lie anywhere.
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

// above is whether a is an ancestor of b by the spans that have arrived.
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
