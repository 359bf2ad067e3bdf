// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// maxTerms bounds the operands of an equation, as the search for the cheapest order takes 3ⁿ steps.
const maxTerms = 12

// Einsum is a parsed equation in Einstein's summation convention. It is immutable and may be
// shared.
type Einsum struct {
	equation string
	terms    [][]rune // with ellipsis standing for the dimensions of "..."
	output   []rune
}

// ellipsis represents "..." in terms; it is not a letter.
const ellipsis = '…'

// ParseEinsum parses an equation as numpy.einsum and torch.einsum do: letters of any script name
// dimensions, "..." are broadcast dimensions, a letter twice in an operand is its diagonal, spaces
// are ignored. Without "->" the output is the broadcast dimensions and then the letters that occur
// once, in alphabetical order. It returns an error that names the operand if the syntax is invalid.
func ParseEinsum(equation string) (*Einsum, error) {
	fail := func(format string, args ...any) (*Einsum, error) {
		return nil, fmt.Errorf("einsum equation %q: %s", equation, fmt.Sprintf(format, args...))
	}
	left, right, explicit := strings.Cut(equation, "->")
	e := &Einsum{equation: equation}
	count := map[rune]int{}
	dots := false
	for i, part := range strings.Split(left, ",") {
		term, err := parseTerm(part)
		if err != nil {
			return fail("operand %d: %v", i+1, err)
		}
		for _, r := range term {
			count[r]++
		}
		dots = dots || slices.Contains(term, ellipsis)
		e.terms = append(e.terms, term)
	}
	if len(e.terms) > maxTerms {
		return fail("%d operands (at most %d)", len(e.terms), maxTerms)
	}
	if !explicit {
		if dots {
			e.output = append(e.output, ellipsis)
		}
		var once []rune
		for r, n := range count {
			if n == 1 && r != ellipsis {
				once = append(once, r)
			}
		}
		slices.Sort(once)
		e.output = append(e.output, once...)
		return e, nil
	}
	out, err := parseTerm(right)
	if err != nil {
		return fail("output: %v", err)
	}
	for i, r := range out {
		if count[r] == 0 && r != ellipsis {
			return fail("output has %q, which no operand has", r)
		}
		if slices.Contains(out[:i], r) {
			return fail("output has %q twice", r)
		}
	}
	e.output = out
	return e, nil
}

func parseTerm(s string) ([]rune, error) {
	s = strings.ReplaceAll(s, "...", string(ellipsis))
	var term []rune
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
		case r == ellipsis && slices.Contains(term, ellipsis):
			return nil, errors.New("more than one \"...\"")
		case r == ellipsis || unicode.IsLetter(r):
			term = append(term, r)
		default:
			return nil, fmt.Errorf("%q is not a letter", r)
		}
	}
	return term, nil
}

// String returns the equation as it was given to [ParseEinsum].
func (e *Einsum) String() string { return e.equation }

// EinsumPlan is the cost of an equation for given shapes, computed once. Its fields are values:
// reading them in a hot path costs nothing.
type EinsumPlan struct {
	// Naive is the work of one loop nest over all dimensions: a multiplication for each operand but
	// the first, and an addition if any dimension is summed, (operands − 1 + summed) × the product
	// of all sizes.
	Naive gpuspan.Work
	// Best is the work of the cheapest order of pairwise contractions. Both read the operands and
	// write the result; intermediate results are not counted, because a fused kernel never writes
	// them.
	Best gpuspan.Work
	// Output is the shape dimensions of the result.
	Output []int
}

// Plan computes the cost for operands of the given shapes. As in NumPy a size of 1 is broadcast. It
// returns an error that names the operand if shapes do not fit the equation, and for more than 64
// dimensions.
func (e *Einsum) Plan(p gpuspan.Precision, shapes ...[]int) (EinsumPlan, error) {
	d, err := e.dimensions(shapes)
	if err != nil {
		return EinsumPlan{}, fmt.Errorf("einsum %q: %w", e.equation, err)
	}
	read, written := 0.0, d.elements(d.output)
	for _, s := range shapes {
		read += product(s)
	}
	plan := EinsumPlan{Naive: work(d.naive(), read, written, p)}
	for _, i := range d.order {
		plan.Output = append(plan.Output, int(d.size[i]))
	}
	plan.Best = work(d.cheapest(), read, written, p)
	return plan, nil
}

// dims is an equation with sizes: indices are numbered, and sets of them are bits.
type dims struct {
	size   []float64
	terms  []uint64
	output uint64
	order  []int // indices of the output in order
}

func (e *Einsum) dimensions(shapes [][]int) (*dims, error) {
	if len(shapes) != len(e.terms) {
		return nil, fmt.Errorf("%d operands, %d shapes", len(e.terms), len(shapes))
	}
	d := &dims{}
	number := map[string]int{}
	broadcast := 0
	for k, term := range e.terms {
		extra := len(shapes[k]) - len(term)
		if slices.Contains(term, ellipsis) {
			extra++
			broadcast = max(broadcast, extra)
		} else if extra > 0 {
			extra = -1
		}
		if extra < 0 {
			return nil, fmt.Errorf("operand %d is %q, its shape %v has %d dimensions", k+1, string(term), shapes[k],
				len(shapes[k]))
		}
		var set uint64
		for at, name := range names(term, extra) {
			i, ok := number[name]
			if !ok {
				if i = len(d.size); i == 64 {
					return nil, errors.New("more than 64 indices")
				}
				number[name] = i
				d.size = append(d.size, 1)
			}
			n := shapes[k][at]
			switch {
			case n < 0:
				return nil, fmt.Errorf("operand %d has a dimension of %d", k+1, n)
			case d.size[i] == 1:
				d.size[i] = float64(n)
			case n != 1 && float64(n) != d.size[i]:
				return nil, fmt.Errorf("index %q is %d in operand %d and %v before", name, n, k+1, d.size[i])
			}
			set |= 1 << i
		}
		d.terms = append(d.terms, set)
	}
	for _, name := range names(e.output, broadcast) {
		d.order = append(d.order, number[name])
		d.output |= 1 << number[name]
	}
	return d, nil
}

// names returns the indices of a term, in which "..." represents so many.
func names(term []rune, broadcast int) (list []string) {
	for _, r := range term {
		if r != ellipsis {
			list = append(list, string(r))
			continue
		}
		for i := broadcast; i > 0; i-- { // aligned at the right, as broadcasting is
			list = append(list, fmt.Sprintf("…%d", i))
		}
	}
	return list
}

// elements returns the product of the sizes of a set of indices.
func (d *dims) elements(set uint64) float64 {
	n := 1.0
	for i, s := range d.size {
		if set>>i&1 == 1 {
			n *= s
		}
	}
	return n
}

func (d *dims) naive() float64 {
	var all uint64
	for _, t := range d.terms {
		all |= t
	}
	factor := float64(len(d.terms) - 1)
	if all&^d.output != 0 {
		factor++
	}
	return factor * d.elements(all)
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

// cheapest returns the cost of the best order, by dynamic programming over the subsets of operands:
// the best way to contract a subset is the best of all its divisions in two, outer products
// included. The indices of a subset's result do not depend on how it was made.
func (d *dims) cheapest() float64 {
	if len(d.terms) == 1 {
		return d.naive()
	}
	full := 1<<len(d.terms) - 1
	union, cost := make([]uint64, full+1), make([]float64, full+1)
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
	for s := 1; s <= full; s++ {
		low := s & -s
		if s == low {
			continue
		}
		cost[s] = math.Inf(1)
		for a := (s - 1) & s; a > 0; a = (a - 1) & s {
			if b := s &^ a; a&low != 0 { // each division once
				cost[s] = min(cost[s], cost[a]+cost[b]+d.contract(keep(a), keep(b), keep(s)))
			}
		}
	}
	return cost[full]
}
