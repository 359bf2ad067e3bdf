// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// op returns an operator of n kernels with FLOPs that took some milliseconds.
func op(name, shapes, precision string, n int64, flops float64, milliseconds float64) Operator {
	t := time.Duration(milliseconds * 1e6)
	o := Operator{Name: name, Shapes: shapes, Kernels: n, Time: t, Rate: Rate{FLOPs: flops, Precision: precision}}
	if flops > 0 {
		o.FLOPRate = flops / t.Seconds()
	}
	return o
}

func changed(t *testing.T, before, after []Operator) Change {
	t.Helper()
	c := Compare([]Report{{Window: 1, Operators: before}}, []Report{{Window: 1, Operators: after}})
	require.Len(t, c.Operators, 1)
	return c.Operators[0]
}

func TestAChangeDistinguishesMoreWorkFromSlowerWork(t *testing.T) {
	one := func(o Operator) []Operator { return []Operator{o} }
	for name, c := range map[string]struct {
		before, after []Operator
		reason, how   string
	}{
		"the same":             {one(op("mm", "f32[8]", "fp32", 4, 1e9, 1)), one(op("mm", "f32[8]", "fp32", 4, 1e9, 1)), "", ""},
		"just below a change":  {one(op("mm", "f32[8]", "fp32", 4, 1e9, 1)), one(op("mm", "f32[8]", "fp32", 4, 1e9, 1.049)), "", ""},
		"just above a change":  {one(op("mm", "f32[8]", "fp32", 4, 1e9, 1)), one(op("mm", "f32[8]", "fp32", 4, 1e9, 1.051)), "slower", "1 → 0.951 TFLOP/s"},
		"a doubled batch":      {one(op("mm", "f32[8,512]", "fp32", 4, 1e9, 1)), one(op("mm", "f32[16,512]", "fp32", 4, 2e9, 2)), "more work", "1 → 2 GFLOP, 1 → 1 TFLOP/s, f32[8,512] → f32[16,512]"},
		"twice as many calls":  {one(op("mm", "f32[8]", "fp32", 12, 1e9, 1)), one(op("mm", "f32[8]", "fp32", 24, 2e9, 2)), "more work", "12 → 24 kernels, 1 → 2 GFLOP, 1 → 1 TFLOP/s"},
		"another type":         {one(op("mm", "f32[8]", "fp32", 4, 1e9, 4)), one(op("mm", "bf16[8]", "bf16", 4, 1e9, 1)), "faster", "fp32 → bf16, 0.25 → 1 TFLOP/s, f32[8] → bf16[8]"},
		"more and slower":      {one(op("mm", "f32[8]", "fp32", 4, 1e9, 1)), one(op("mm", "f32[16]", "fp32", 4, 2e9, 4)), "more work, slower", "1 → 2 GFLOP, 1 → 0.5 TFLOP/s, f32[8] → f32[16]"},
		"less and faster":      {one(op("mm", "f32[16]", "fp32", 4, 2e9, 4)), one(op("mm", "f32[8]", "fp32", 4, 1e9, 1)), "less work, faster", "2 → 1 GFLOP, 0.5 → 1 TFLOP/s, f32[16] → f32[8]"},
		"unknown work, longer": {one(op("custom", "", "", 4, 0, 1)), one(op("custom", "", "", 4, 0, 2)), "each longer", ""},
		"unknown work, more":   {one(op("custom", "", "", 4, 0, 1)), one(op("custom", "", "", 8, 0, 2)), "more kernels", "4 → 8 kernels"},
		"one more shape": {
			one(op("mm", "f32[8]", "fp32", 4, 1e9, 1)),
			[]Operator{op("mm", "f32[8]", "fp32", 4, 1e9, 1), op("mm", "f32[9]", "fp32", 1, 1e9, 1)},
			"more work", "4 → 5 kernels, 1 → 2 GFLOP, 1 → 1 TFLOP/s, also f32[9]",
		},
		"one shape less": {
			[]Operator{op("mm", "f32[8]", "fp32", 4, 1e9, 1), op("mm", "f32[9]", "fp32", 1, 1e9, 1)},
			one(op("mm", "f32[8]", "fp32", 4, 1e9, 1)),
			"less work", "5 → 4 kernels, 2 → 1 GFLOP, 1 → 1 TFLOP/s, no longer f32[9]",
		},
		"new":  {nil, one(op("mm", "f32[8]", "fp32", 4, 1e9, 1)), "only after", "4 kernels, 1 GFLOP fp32, 1 TFLOP/s, f32[8]"},
		"gone": {one(op("mm", "f32[8]", "fp32", 1, 1e9, 1)), nil, "only before", "1 kernel, 1 GFLOP fp32, 1 TFLOP/s, f32[8]"},
		"FLOPs of a small part": {
			[]Operator{op("mm", "f32[8]", "fp32", 1, 1e9, 1), op("mm", "", "", 1, 0, 9)},
			[]Operator{op("mm", "f32[8]", "fp32", 1, 2e9, 1), op("mm", "", "", 1, 0, 19)},
			"each longer", "1 → 2 GFLOP, 1 → 2 TFLOP/s",
		},
	} {
		x := changed(t, c.before, c.after)
		assert.Equal(t, c.reason, x.Reason, name)
		assert.Equal(t, c.how, x.How, name)
	}
}

func TestOfManyShapesAFewAreNamed(t *testing.T) {
	var after []Operator
	for i := range 6 {
		after = append(after, op("mm", fmt.Sprintf("f32[%d]", i), "fp32", 1, 1e9, float64(10-i)))
	}
	c := changed(t, []Operator{op("mm", "f32[99]", "fp32", 1, 1e9, 1)}, after)
	assert.Contains(t, c.How, "f32[99] → f32[0]; f32[1]; and 4 more shapes")
}

// Of an increase of 6 ms, 4 are more work, 1 is slower work, 2 are new, and unknown work takes 1 ms
// less.
func TestTheChangeOfOperatorsIsDividedIntoWorkAndSpeed(t *testing.T) {
	before := []Operator{op("mm", "f32[8]", "fp32", 4, 1e9, 4), op("custom", "", "", 1, 0, 3)}
	after := []Operator{op("mm", "f32[16]", "fp32", 4, 2e9, 9), op("custom", "", "", 1, 0, 2), op("add", "f32[1]", "fp32", 1, 1e6, 2)}
	c := Compare([]Report{{Window: 1, Steps: 1, Operators: before}}, []Report{{Window: 1, Steps: 1, Operators: after}})
	assert.Equal(t, By{
		Work: 4 * time.Millisecond, Rate: time.Millisecond, OneSide: 2 * time.Millisecond, Unknown: -time.Millisecond,
	}, c.ByWork)
	var b bytes.Buffer
	require.NoError(t, c.Write(&b, 0))
	assert.Equal(t, "operators: amount of work +4.000 ms, speed of the same work +1.000 ms, "+
		"operators of only one profile +2.000 ms, operators with unknown work -1.000 ms", strings.Split(b.String(), "\n")[1])
	assert.Contains(t, b.String(), "  mm (more work, slower: 1 → 2 GFLOP, 250 → 222 GFLOP/s, f32[8] → f32[16])\n")
}

// Kernels have counts, and the FLOPs of the operators that launched them.
func TestKernelsStateTheirCounts(t *testing.T) {
	side := func(n int64) []Report {
		return []Report{{Window: 1, Steps: 2, ByKernel: []Kernel{{Name: "gemm", Count: 2 * n, Time: time.Duration(n) * time.Millisecond}}}}
	}
	c := Compare(side(8), side(16))
	assert.Equal(t, "more kernels", c.Kernels[0].Reason)
	assert.Equal(t, "8 → 16 kernels", c.Kernels[0].How)
}

// Two profiles of different programs are compared, and the first line says that they have little in
// common.
func TestTheComparisonOfDifferentProgramsIsDoubted(t *testing.T) {
	profile := func(window time.Duration, names ...string) []Report {
		r := Report{Window: window, Parts: Parts{Computing: window}}
		for _, name := range names {
			r.Operators = append(r.Operators, Operator{Name: name, Time: 10 * time.Millisecond, Kernels: 1})
			r.ByKernel = append(r.ByKernel, Kernel{Name: name, Time: 10 * time.Millisecond, Count: 1})
		}
		return []Report{r}
	}
	for name, c := range map[string]struct {
		after []Report
		want  string
	}{
		"same": {profile(20*time.Millisecond, "a", "b"), "the window is 10ms (100 %) longer: 10ms before, 20ms after; computing +10 ms"},
		"other": {
			profile(150*time.Millisecond, "c", "d"), "the window is 140ms (14 times) longer: 10ms before, 150ms after; computing +140 ms; " +
				"operators and kernels of both take 0 % of their time: are they runs of the same program?",
		},
	} {
		require.Equal(t, c.want, Compare(profile(10*time.Millisecond, "a", "b"), c.after).headline("the window"), name)
	}
}
