// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import (
	"math"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// Op is an elementwise operation.
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
	RSqrt               // 1/√x, one operation on GPUs
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

// Elementwise returns the work of an operation over n elements: for each, the arithmetic operations
// and elementary functions of its definition. Every operand and the result count n elements, also
// operands that are broadcast.
func Elementwise(op Op, n int, p gpuspan.Precision) gpuspan.Work {
	if invalid(n) || op >= opCount {
		return gpuspan.Work{}
	}
	k, e := kinds[op], float64(n)
	return work(k.ops*e, k.operands*e, e, p)
}

// Reduction is an operation that reduces many values to one.
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

// Reduce returns the work of reducing each of outputs rows of n elements to one value.
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

// Softmax returns the work of eˣ⁻ᵐᵃˣ/Σeˣ⁻ᵐᵃˣ over rows of n elements: n−1 comparisons, n
// differences, n exponentials, n−1 additions and n divisions for each row.
func Softmax(rows, n int, p gpuspan.Precision) gpuspan.Work { return normalize(rows, n, 5, -2, 0, p) }

// LayerNorm returns the work of (x−mean)/√(var+ε)·γ+β over rows of n elements (Ba, Kiros and Hinton
// 2016): n for the mean; n differences, n products, n−1 additions and a division for the variance;
// an addition and a reciprocal root; n products; and with affine n products and n additions.
func LayerNorm(rows, n int, affine bool, p gpuspan.Precision) gpuspan.Work {
	if affine {
		return normalize(rows, n, 7, 2, 2, p)
	}
	return normalize(rows, n, 5, 2, 0, p)
}

// RMSNorm returns the work of x/√(mean(x²)+ε)·γ over rows of n elements (Zhang and Sennrich 2019):
// n products, n−1 additions, a division, an addition, a reciprocal root, n products, and n products
// with γ.
func RMSNorm(rows, n int, p gpuspan.Precision) gpuspan.Work { return normalize(rows, n, 4, 2, 1, p) }

// normalize returns the work of so many operations for each element and each row, with so many
// weights for each element of a row.
func normalize(rows, n int, each, row, weights float64, p gpuspan.Precision) gpuspan.Work {
	if rows <= 0 || n <= 0 {
		return gpuspan.Work{}
	}
	r, e := float64(rows), float64(n)
	return work(r*(each*e+row), r*e+weights*e, r*e, p)
}

// Embedding returns the work of gathering rows of dim elements of a table by indices of indexSize
// bytes (8 for torch's int64): no operation, and only the gathered rows are read.
func Embedding(indices, dim, indexSize int, p gpuspan.Precision) gpuspan.Work {
	if invalid(indices, dim, indexSize) {
		return gpuspan.Work{}
	}
	n := float64(indices) * float64(dim) * ElementSize(p)
	return bytes(0, n+float64(indices)*float64(indexSize), n, p)
}

// EmbeddingBag returns the work of gathering rows as [Embedding] does and adding them within bags,
// each of which has at least one index: (indices − bags)·dim additions.
func EmbeddingBag(indices, bags, dim, indexSize int, p gpuspan.Precision) gpuspan.Work {
	if invalid(indices, bags, dim, indexSize, indices-bags) {
		return gpuspan.Work{}
	}
	s := ElementSize(p)
	i, b, d := float64(indices), float64(bags), float64(dim)
	return bytes((i-b)*d, i*d*s+(i+b)*float64(indexSize), b*d*s, p)
}

// FFT returns the work of batch transforms of complex numbers over the dimensions, N points in all:
// 5·N·log₂N, the operations of the radix-2 algorithm, by which FFTW and the HPC Challenge state
// rates regardless of the algorithm and N. An element is two numbers of the precision.
func FFT(batch int, p gpuspan.Precision, dims ...int) gpuspan.Work {
	return fft(batch, 5, 2, 2, p, dims)
}

// RealFFT returns the work of batch transforms of real numbers: half of FFT's operations,
// 2.5·N·log₂N, as FFTW states them. It reads N numbers and writes the half of the spectrum that is
// not redundant, N/2+1 complex elements along the last dimension.
func RealFFT(batch int, p gpuspan.Precision, dims ...int) gpuspan.Work {
	if len(dims) == 0 || invalid(dims...) || empty(dims...) {
		return gpuspan.Work{}
	}
	last := float64(dims[len(dims)-1])
	return fft(batch, 2.5, 1, 2*(math.Floor(last/2)+1)/last, p, dims)
}

func fft(batch int, factor, read, written float64, p gpuspan.Precision, dims []int) gpuspan.Work {
	if invalid(batch) || len(dims) == 0 || invalid(dims...) || empty(dims...) {
		return gpuspan.Work{}
	}
	n := product(dims)
	total := float64(batch) * n
	return work(factor*total*math.Log2(n), read*total, written*total, p)
}
