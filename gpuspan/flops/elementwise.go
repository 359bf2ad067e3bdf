// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import "github.com/otelgpu/otelgpu/gpuspan"

// Op is an operation on each element of its operands.
type Op uint8

// Elementwise operations with their definitions.
const (
	Copy      Op = iota // x: no operation
	Neg                 // −x
	Abs                 // |x|
	Add                 // x + y
	Sub                 // x − y
	Mul                 // x · y
	Div                 // x / y
	Max                 // max(x, y)
	Min                 // min(x, y)
	FMA                 // x · y + z
	Exp                 // eˣ
	Log                 // ln x
	Sqrt                // √x
	RSqrt               // 1/√x, one operation as GPUs have it
	Tanh                // tanh x
	Erf                 // erf x
	ReLU                // max(x, 0)
	LeakyReLU           // max(x, a·x)
	Sigmoid             // 1 / (1 + e⁻ˣ)
	SiLU                // x · sigmoid(x)
	SwiGLU              // silu(x) · y
	GELU                // ½ · x · (1 + erf(x / √2))
	GELUTanh            // ½ · x · (1 + tanh(√(2/π) · (x + 0.044715 · x · x · x)))
	ScaledAdd           // a · x + y, the axpy of BLAS
	opCount
)

// kinds holds operations for each element, and operands.
var kinds = [opCount]struct{ ops, operands float64 }{
	Copy: {0, 1}, Neg: {1, 1}, Abs: {1, 1}, Add: {1, 2}, Sub: {1, 2}, Mul: {1, 2}, Div: {1, 2}, Max: {1, 2}, Min: {1, 2},
	FMA: {2, 3}, Exp: {1, 1}, Log: {1, 1}, Sqrt: {1, 1}, RSqrt: {1, 1}, Tanh: {1, 1}, Erf: {1, 1}, ReLU: {1, 1},
	LeakyReLU: {2, 1}, Sigmoid: {4, 1}, SiLU: {5, 1}, SwiGLU: {6, 2}, GELU: {5, 1}, GELUTanh: {9, 1}, ScaledAdd: {2, 2},
}

// Elementwise is an operation over n elements: as many arithmetic operations and elementary functions for each as its
// definition has. Every operand and the result are n elements; one that is broadcast is read less.
func Elementwise(op Op, n int, p gpuspan.Precision) gpuspan.Work {
	if invalid(n) || op >= opCount {
		return gpuspan.Work{}
	}
	k, e := kinds[op], float64(n)
	return work(k.ops*e, k.operands*e, e, p)
}

// Reduction is an operation that makes one value of many.
type Reduction uint8

// Reductions with their definitions for n values.
const (
	ReduceSum  Reduction = iota // n−1 additions
	ReduceMax                   // n−1 comparisons
	ReduceMean                  // n−1 additions, 1 division
	ReduceNorm                  // √Σx²: n products, n−1 additions, 1 root
	// Σ(x−mean)²/n in two passes: the mean, n differences, n products, n−1 additions, 1 division
	ReduceVar
)

// Reduce reduces each of outputs rows of n elements to one value.
func Reduce(r Reduction, outputs, n int, p gpuspan.Precision) gpuspan.Work {
	if invalid(outputs, n) || r > ReduceVar {
		return gpuspan.Work{}
	}
	rows, e := float64(outputs), float64(n)
	if empty(outputs, n) {
		return work(0, 0, rows, p)
	}
	ops := reductionOps(r, e)
	return work(rows*ops, rows*e, rows, p)
}

func reductionOps(r Reduction, n float64) float64 {
	switch r {
	case ReduceMean:
		return n
	case ReduceNorm:
		return 2 * n
	case ReduceVar:
		return 4 * n
	}
	return n - 1
}
