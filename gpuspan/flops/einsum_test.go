// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
	"github.com/otelgpu/otelgpu/internal/spanfiles/property"
)

func plan(t require.TestingT, equation string, shapes ...[]int) flops.EinsumPlan {
	e, err := flops.ParseEinsum(equation)
	require.NoError(t, err)
	require.Equal(t, equation, e.String())
	p, err := e.Plan(gpuspan.FP32, shapes...)
	require.NoError(t, err)
	return p
}

// The examples in the documentation of opt_einsum and of its Rust port.
func TestEinsumCountsEqualOptEinsums(t *testing.T) {
	const nao, nocc, nvir = 1024, 128, 896
	p := plan(t, "μi,νa,μνκλ,κj,λb->iajb", []int{nao, nocc}, []int{nao, nvir}, []int{nao, nao, nao, nao}, []int{nao, nocc},
		[]int{nao, nvir})
	require.Equal(t, "7.231e+22", fmt.Sprintf("%.3e", p.Naive.FLOPs))
	require.Equal(t, "3.744e+14", fmt.Sprintf("%.3e", p.Best.FLOPs))
	require.Equal(t, []int{nocc, nvir, nocc, nvir}, p.Output)

	ten := []int{10, 10}
	p = plan(t, "ea,fb,abcd,gc,hd->efgh", ten, ten, []int{10, 10, 10, 10}, ten, ten)
	require.EqualValues(t, 5e8, p.Naive.FLOPs)
	require.EqualValues(t, 8e5, p.Best.FLOPs)
}

func TestEinsumOfKnownOperations(t *testing.T) {
	require.Equal(t, flops.MatMul(3, 5, 4, gpuspan.FP32), plan(t, "ij,jk->ik", []int{3, 4}, []int{4, 5}).Best)
	require.Equal(t, flops.BatchedMatMul(7, 3, 5, 4, gpuspan.FP32),
		plan(t, "...ij,...jk", []int{7, 3, 4}, []int{7, 4, 5}).Best)
	require.EqualValues(t, 6, plan(t, "i,j->ij", []int{2}, []int{3}).Best.FLOPs, "an outer product only multiplies")
	require.Zero(t, plan(t, "ij->ji", []int{2, 3}).Best.FLOPs, "a transposition computes nothing")
	require.EqualValues(t, 3, plan(t, "ii", []int{3, 3}).Best.FLOPs, "a trace adds the diagonal")
	p := plan(t, "...a , ab...", []int{1, 5, 2}, []int{2, 3, 4, 5})
	require.Equal(t, []int{4, 5, 3}, p.Output, "broadcast dimensions align at the right and come first")
	require.Empty(t, plan(t, "i,i->", []int{4}, []int{4}).Output)
}

// An exhaustive search finds the cheapest order.
func TestBestPathIsTheCheapestOfAllOrders(t *testing.T) {
	property.Check(t, func(t *property.T) {
		equation, shapes := drawEinsum(t, 5)
		p := plan(t, equation, shapes...)
		left, out, _ := strings.Cut(equation, "->")
		size := map[rune]float64{}
		terms := strings.Split(left, ",")
		for i, term := range terms {
			for j, r := range []rune(term) {
				size[r] = math.Max(size[r], float64(shapes[i][j]))
			}
		}
		require.InDelta(t, cheapest(terms, out, size), p.Best.FLOPs, 1e-6)
	})
}

func cheapest(terms []string, out string, size map[rune]float64) float64 {
	if len(terms) == 1 {
		return 0
	}
	best := math.Inf(1)
	for i := range terms {
		for j := i + 1; j < len(terms); j++ {
			var rest []string
			for k, t := range terms {
				if k != i && k != j {
					rest = append(rest, t)
				}
			}
			cost, summed, kept := 1., false, ""
			seen := ""
			for _, r := range terms[i] + terms[j] {
				if strings.ContainsRune(seen, r) {
					continue
				}
				seen += string(r)
				cost *= size[r]
				if strings.ContainsRune(out+strings.Join(rest, ""), r) {
					kept += string(r)
				} else {
					summed = true
				}
			}
			if summed {
				cost *= 2
			}
			best = math.Min(best, cost+cheapest(append(slices.Clone(rest), kept), out, size))
		}
	}
	return best
}

func drawEinsum(t *property.T, most int) (string, [][]int) {
	sizes := map[rune]int{}
	var terms []string
	var shapes [][]int
	used := ""
	for i := range property.IntRange(2, most).Draw(t, "operands") {
		term, shape := "", []int{}
		for _, r := range distinct.Draw(t, fmt.Sprint("operand ", i)) {
			if sizes[r] == 0 {
				sizes[r] = property.IntRange(2, 5).Draw(t, "size")
			}
			term += string(r)
			shape = append(shape, sizes[r])
			if !strings.ContainsRune(used, r) {
				used += string(r)
			}
		}
		terms, shapes = append(terms, term), append(shapes, shape)
	}
	out := ""
	for _, r := range used {
		if property.Bool().Draw(t, "in output") {
			out += string(r)
		}
	}
	return strings.Join(terms, ",") + "->" + out, shapes
}

// Compares the naive count with loops that multiply and add.
func TestNaiveCountEqualsANestOfLoops(t *testing.T) {
	property.Check(t, func(t *property.T) {
		equation, shapes := drawEinsum(t, 3)
		left, out, _ := strings.Cut(equation, "->")
		terms := strings.Split(left, ",")
		size, letters := map[rune]int{}, []rune{}
		for i, term := range terms {
			for j, r := range []rune(term) {
				if size[r] == 0 {
					letters = append(letters, r)
				}
				size[r] = shapes[i][j]
			}
		}
		m, result := &machine{}, map[string]float64{}
		index := map[rune]int{}
		var loop func(k int)
		loop = func(k int) {
			if k < len(letters) {
				for i := range size[letters[k]] {
					index[letters[k]] = i
					loop(k + 1)
				}
				return
			}
			v := 1.
			for i := range terms {
				if i > 0 {
					v = m.mul(v, 2)
				}
			}
			key := ""
			for _, r := range out {
				key += fmt.Sprint(index[r], " ")
			}
			if len(out) < len(letters) {
				v = m.add(result[key], v)
			}
			result[key] = v
		}
		loop(0)
		require.EqualValues(t, m.ops, plan(t, equation, shapes...).Naive.FLOPs)
	})
}

func TestTheOrderOfAChainDoesNotMatter(t *testing.T) {
	terms, shapes := []string{}, [][]int{}
	for i := range 12 {
		terms, shapes = append(terms, string([]rune{rune('a' + i), rune('b' + i)})), append(shapes, []int{2, 2})
	}
	p := plan(t, strings.Join(terms, ",")+"->am", shapes...)
	require.EqualValues(t, 11*2*2*2*2, p.Best.FLOPs)
}

func TestInvalidEquationsReportTheReason(t *testing.T) {
	for equation, want := range map[string]string{
		"ij,jk->il":                    "output has 'l', which no operand has",
		"ij->ii":                       "output has 'i' twice",
		"i1":                           "operand 1: '1' is not a letter",
		"i......":                      "operand 1: more than one \"...\"",
		"i->j->k":                      "is not a letter",
		strings.Repeat("i,", 40) + "i": "41 operands (at most 12)",
	} {
		_, err := flops.ParseEinsum(equation)
		require.ErrorContains(t, err, want)
	}
	e, err := flops.ParseEinsum("ij,jk->ik")
	require.NoError(t, err)
	for want, shapes := range map[string][][]int{
		"2 operands, 1 shapes":                       {{1, 2}},
		"operand 1 is \"ij\", its shape [2] has 1":   {{2}, {2, 3}},
		"operand 2 is \"jk\", its shape [2 3 4]":     {{1, 2}, {2, 3, 4}},
		"index \"j\" is 4 in operand 2 and 3 before": {{2, 3}, {4, 5}},
		"operand 1 has a dimension of -1":            {{-1, 2}, {2, 3}},
	} {
		_, err := e.Plan(gpuspan.FP32, shapes...)
		require.ErrorContains(t, err, want)
	}
}

func FuzzParseEinsum(f *testing.F) {
	for _, s := range []string{"ij,jk->ik", "...i", "", "->", ",", "ii->i", "μν"} {
		f.Add(s, 2, 3)
	}
	f.Fuzz(func(t *testing.T, equation string, a, b int) {
		e, err := flops.ParseEinsum(equation)
		if err != nil {
			return
		}
		_, _ = e.Plan(gpuspan.FP32, []int{a, b})
		_, _ = e.Plan(gpuspan.FP32, []int{a}, []int{b, a})
	})
}

// distinct draws one to three different letters.
var distinct property.Gen[[]rune] = func(t *property.T) (some []rune) {
	for _, i := range t.Rand.Perm(6)[:1+t.Rand.IntN(3)] {
		some = append(some, 'a'+rune(i))
	}
	return some
}
