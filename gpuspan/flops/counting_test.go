// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops_test

import "math"

// machine executes definitions and counts the requested operations.
type machine struct{ ops int }

func (m *machine) add(a, b float64) float64 { m.ops++; return a + b }
func (m *machine) sub(a, b float64) float64 { m.ops++; return a - b }
func (m *machine) mul(a, b float64) float64 { m.ops++; return a * b }
func (m *machine) div(a, b float64) float64 { m.ops++; return a / b }
func (m *machine) max(a, b float64) float64 { m.ops++; return math.Max(a, b) }
func (m *machine) exp(a float64) float64    { m.ops++; return math.Exp(a) }
func (m *machine) log(a float64) float64    { m.ops++; return math.Log(a) }
func (m *machine) tanh(a float64) float64   { m.ops++; return math.Tanh(a) }
func (m *machine) erf(a float64) float64    { m.ops++; return math.Erf(a) }
func (m *machine) sqrt(a float64) float64   { m.ops++; return math.Sqrt(a) }
func (m *machine) rsqrt(a float64) float64  { m.ops++; return 1 / math.Sqrt(a) }
func (m *machine) neg(a float64) float64    { m.ops++; return -a }

func (m *machine) sum(x []float64) float64 {
	s := x[0]
	for _, v := range x[1:] {
		s = m.add(s, v)
	}
	return s
}

func (m *machine) largest(x []float64) float64 {
	s := x[0]
	for _, v := range x[1:] {
		s = m.max(s, v)
	}
	return s
}

func numbers(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(i%7) - 2.5
	}
	return x
}
