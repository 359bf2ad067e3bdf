// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package flops counts the FLOPs and bytes of common operations, as [gpuspan.Work].
//
// # Conventions
//
// A multiply-add is two operations. Everything else is one operation for each application of an
// arithmetic operator or elementary function in the operation's definition: add, subtract,
// multiply, divide, compare, max, exp, log, tanh, erf, sqrt and rsqrt are one each, copies and type
// conversions none. For sparse operands only stored values count, so that a rate can be compared
// with the dense peak. Operations beyond the definition (padding to a tile, recomputation unless
// requested) are not counted.
//
// Read and Written are the compulsory traffic in bytes: every operand read once and every result
// written once, in elements of the precision's size. Repeated reads after cache misses are not
// counted.
//
// Counts are float64, exact up to 2⁵³ and to one part in 10¹⁵ beyond. A dimension of zero gives no
// work; a negative dimension, which can only be a mistake, gives the zero Work, which a section
// treats as not stated. Functions do not allocate unless documented.
package flops

import (
	"cmp"
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// MatMul returns the work of C = A·B with A of m×k and B of k×n: 2·m·n·k, as in cuBLAS and LAPACK
// (LAWN 41). As there, the missing addition of the first product of each element is ignored.
func MatMul(m, n, k int, p gpuspan.Precision) gpuspan.Work { return BatchedMatMul(1, m, n, k, p) }

// BatchedMatMul returns the work of batch independent products of m×k and k×n.
func BatchedMatMul(batch, m, n, k int, p gpuspan.Precision) gpuspan.Work {
	if invalid(batch, m, n, k) {
		return gpuspan.Work{}
	}
	b, x, y, z := float64(batch), float64(m), float64(n), float64(k)
	return work(2*b*x*y*z, b*(x*z+z*y), b*x*y, p)
}

// Linear returns the work of a layer Y = X·Wᵀ + bias on rows vectors of in elements, with out
// elements in each result: 2·rows·in·out, and rows·out more with a bias.
func Linear(rows, in, out int, bias bool, p gpuspan.Precision) gpuspan.Work {
	w := MatMul(rows, out, in, p)
	if bias && !invalid(rows, in, out) {
		w.FLOPs += float64(rows) * float64(out)
		w.Read += whole(float64(out) * ElementSize(p))
	}
	return w
}

// Format is the storage format of a sparse matrix.
type Format uint8

// Formats.
const (
	CSR Format = iota // column index of each value, and the start of each row
	COO               // row and column index of each value
)

// Sparse is a matrix of which only NonZeros values are stored.
type Sparse struct {
	Rows, Cols int    // of the whole matrix
	NonZeros   int    // stored values (nnz)
	Format     Format // decides how many indices are read
	IndexSize  int    // bytes of an index; 0 means 4
}

// MulVector returns the work of y = A·x: a multiply-add for each stored value, 2·nnz, as SpMV
// benchmarks count (Williams et al., SC 2007). x is read once, up to the number of stored values.
func (s Sparse) MulVector(p gpuspan.Precision) gpuspan.Work { return s.MulMatrix(1, p) }

// MulMatrix returns the work of C = A·B with a dense B of n columns: 2·nnz·n.
func (s Sparse) MulMatrix(n int, p gpuspan.Precision) gpuspan.Work {
	if invalid(s.Rows, s.Cols, s.NonZeros, s.IndexSize, n) || s.Format > COO {
		return gpuspan.Work{}
	}
	size, index := ElementSize(p), float64(cmp.Or(s.IndexSize, 4))
	nnz := float64(s.NonZeros)
	indices := nnz + float64(s.Rows) + 1
	if s.Format == COO {
		indices = 2 * nnz
	}
	columns := float64(min(s.Cols, s.NonZeros))
	return bytes(2*nnz*float64(n), nnz*size+indices*index+columns*float64(n)*size, float64(s.Rows)*float64(n)*size, p)
}

// Structured24 returns the work of C = A·B where A, of m×k, has two values of every four: m·n·k
// operations, half of the dense product. Vendors quote twice the dense peak for it and twice these
// operations; the ratio is the same. Each stored value has a position of two bits. If k is not
// divisible by 4, the zero Work is returned.
func Structured24(m, n, k int, p gpuspan.Precision) gpuspan.Work {
	if invalid(m, n, k) || k%4 != 0 {
		return gpuspan.Work{}
	}
	x, y, z, size := float64(m), float64(n), float64(k), ElementSize(p)
	return bytes(x*y*z, x*z/2*size+x*z/2*2/8+z*y*size, x*y*size, p)
}

// ElementSize returns the size of one element in bytes: 8, 4 (also TF32, which is stored as FP32),
// 2, 1 or, for FP4, 0.5. It is 0 if the precision is not stated; bytes are then not stated either.
func ElementSize(p gpuspan.Precision) float64 {
	switch p {
	case gpuspan.FP64:
		return 8
	case gpuspan.FP32, gpuspan.TF32:
		return 4
	case gpuspan.FP16, gpuspan.BF16:
		return 2
	case gpuspan.FP8, gpuspan.INT8:
		return 1
	case gpuspan.FP4:
		return 0.5
	}
	return 0
}

// work returns the Work of operations and of elements read and written.
func work(ops, read, written float64, p gpuspan.Precision) gpuspan.Work {
	return bytes(ops, read*ElementSize(p), written*ElementSize(p), p)
}

func bytes(ops, read, written float64, p gpuspan.Precision) gpuspan.Work {
	return gpuspan.Work{FLOPs: ops, Read: whole(read), Written: whole(written), Precision: p}
}

// whole rounds bytes up: half an element of FP4 still occupies one.
func whole(v float64) int64 {
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Ceil(v))
}

func invalid(dims ...int) bool { return slices.ContainsFunc(dims, func(d int) bool { return d < 0 }) }

func empty(dims ...int) bool { return slices.Contains(dims, 0) }

// Sum returns the sum of works, such as of the parts of a layer. Bytes are added, too, so a result
// that the next part reads counts twice, as if the parts are separate kernels. Precision is the
// precision of the part with the most operations.
func Sum(works ...gpuspan.Work) gpuspan.Work {
	var s gpuspan.Work
	most := -1.0
	for _, w := range works {
		s.Read += w.Read
		s.Written += w.Written
		s.Bytes += w.Bytes
		s.Items += w.Items
		s.FLOPs += w.FLOPs
		if w.FLOPs > most {
			most, s.Precision = w.FLOPs, w.Precision
		}
	}
	return s
}

// Times returns n times a work, for example of n equal layers.
func Times(n int, w gpuspan.Work) gpuspan.Work {
	if n < 0 {
		return gpuspan.Work{}
	}
	k := int64(n)
	return gpuspan.Work{
		Read: k * w.Read, Written: k * w.Written, Bytes: k * w.Bytes, Items: k * w.Items,
		FLOPs: float64(n) * w.FLOPs, Precision: w.Precision,
	}
}
