// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// maxTerms bounds the operands of an equation, as a set of them is a word of bits.
const maxTerms = 32

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
	// Path is the order of contractions of Best.
	Path []Contraction
	// Optimal is false for more than 12 operands, whose path is found by a greedy search.
	Optimal bool
	// Largest is the number of elements of the largest result along the path.
	Largest float64
	// Output is the shape dimensions of the result.
	Output []int
}

// Contraction is one step of a path: two results become one. Operands are numbered from 0; step i
// makes result len(operands) + i. Right is −1 in a step with one operand.
type Contraction struct {
	Left, Right int     // numbers of the two operands
	Indices     string  // of the result
	FLOPs       float64 // (1 + summed) × the product of the sizes of all indices of both
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
	plan.Path, plan.Optimal = d.path()
	flops := 0.0
	plan.Largest = written
	for i := range plan.Path {
		flops += plan.Path[i].FLOPs
		plan.Largest = max(plan.Largest, d.elements(d.results[i]))
	}
	plan.Best = work(flops, read, written, p)
	return plan, nil
}

// dims is an equation with sizes: indices are numbered, and sets of them are bits.
type dims struct {
	names   []string
	size    []float64
	terms   []uint64
	output  uint64
	order   []int    // indices of the output in order
	results []uint64 // of the path's steps
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
				if i = len(d.names); i == 64 {
					return nil, errors.New("more than 64 indices")
				}
				number[name] = i
				d.names, d.size = append(d.names, name), append(d.size, 1)
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
