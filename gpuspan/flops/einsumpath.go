// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import (
	"math/bits"
	"strings"
)

// maxExact bounds the search over all paths, 3ⁿ steps for n operands.
const maxExact = 12

// path orders the contractions and fills d.results.
func (d *dims) path() ([]Contraction, bool) {
	switch n := len(d.terms); {
	case n == 1:
		d.results = []uint64{d.output}
		return []Contraction{{Left: 0, Right: -1, Indices: d.label(d.output), FLOPs: d.naive()}}, true
	case n <= maxExact:
		return d.exact(), true
	default:
		return d.greedy(), false
	}
}

// contract returns the cost of contracting two results to one with these indices: a product for
// each combination, and an addition if an index is summed.
func (d *dims) contract(a, b, out uint64) float64 {
	n := d.elements(a | b)
	if (a|b)&^out != 0 {
		return 2 * n
	}
	return n
}

// exact uses dynamic programming over the subsets of operands: the best way to contract a subset is
// the best of all its divisions in two, outer products included. The indices of a subset's result
// do not depend on how it was made.
func (d *dims) exact() []Contraction {
	n := len(d.terms)
	full := 1<<n - 1
	union := make([]uint64, full+1)
	for s := 1; s <= full; s++ {
		low := s & -s
		union[s] = union[s&^low] | d.terms[bits.TrailingZeros(uint(low))]
	}
	keep := func(s int) uint64 { // what later steps or the output need
		if s&(s-1) == 0 {
			return union[s]
		}
		return union[s] & (d.output | union[full&^s])
	}
	cost, split := make([]float64, full+1), make([]int, full+1)
	for s := 1; s <= full; s++ {
		if s&(s-1) == 0 {
			continue
		}
		best := -1.0
		low := s & -s
		for a := (s - 1) & s; a > 0; a = (a - 1) & s {
			if a&low == 0 {
				continue // each division once
			}
			b := s &^ a
			if c := cost[a] + cost[b] + d.contract(keep(a), keep(b), keep(s)); best < 0 || c < best {
				best, split[s] = c, a
			}
		}
		cost[s] = best
	}
	var steps []Contraction
	var walk func(s int) int
	walk = func(s int) int {
		if s&(s-1) == 0 {
			return bits.TrailingZeros(uint(s))
		}
		a, b := split[s], s&^split[s]
		l, r := walk(a), walk(b)
		d.results = append(d.results, keep(s))
		steps = append(steps, Contraction{
			Left: l, Right: r, Indices: d.label(keep(s)),
			FLOPs: d.contract(keep(a), keep(b), keep(s)),
		})
		return n + len(steps) - 1
	}
	walk(full)
	return steps
}

// greedy contracts the pair whose result is smallest against its operands, as opt_einsum's greedy
// path does.
func (d *dims) greedy() []Contraction {
	type result struct {
		id  int
		set uint64
	}
	left := make([]result, len(d.terms))
	for i, t := range d.terms {
		left[i] = result{i, t}
	}
	var steps []Contraction
	for len(left) > 1 {
		bi, bj, best, bestSet := -1, -1, 0.0, uint64(0)
		for i := range left {
			for j := i + 1; j < len(left); j++ {
				needed := d.output
				for k := range left {
					if k != i && k != j {
						needed |= left[k].set
					}
				}
				out := (left[i].set | left[j].set) & needed
				score := d.elements(out) - d.elements(left[i].set) - d.elements(left[j].set)
				if bi < 0 || score < best {
					bi, bj, best, bestSet = i, j, score, out
				}
			}
		}
		a, b := left[bi], left[bj]
		steps = append(steps, Contraction{
			Left: a.id, Right: b.id, Indices: d.label(bestSet),
			FLOPs: d.contract(a.set, b.set, bestSet),
		})
		d.results = append(d.results, bestSet)
		left = append(left[:bj], left[bj+1:]...)
		left[bi] = result{len(d.terms) + len(steps) - 1, bestSet}
	}
	return steps
}

func (d *dims) label(set uint64) string {
	var s strings.Builder
	for i, name := range d.names {
		if set>>i&1 == 1 {
			s.WriteString(name)
		}
	}
	return s.String()
}
