// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import "github.com/otelgpu/otelgpu/gpuspan"

// Softmax is eˣ⁻ᵐᵃˣ/Σeˣ⁻ᵐᵃˣ over rows of n elements: n−1 comparisons, n differences, n exponentials, n−1 additions and
// n divisions for each row.
func Softmax(rows, n int, p gpuspan.Precision) gpuspan.Work {
	if invalid(rows, n) || empty(rows, n) {
		return gpuspan.Work{}
	}
	r, e := float64(rows), float64(n)
	return work(r*(5*e-2), r*e, r*e, p)
}

// LayerNorm is (x−mean)/√(var+ε)·γ+β over rows of n elements (Ba, Kiros and Hinton 2016): n for the mean; n
// differences, n products, n−1 additions and a division for the variance; an addition and a reciprocal root; n
// products; and with affine n products and n additions.
func LayerNorm(rows, n int, affine bool, p gpuspan.Precision) gpuspan.Work {
	if invalid(rows, n) || empty(rows, n) {
		return gpuspan.Work{}
	}
	r, e := float64(rows), float64(n)
	w := work(r*(5*e+2), r*e, r*e, p)
	if affine {
		w.FLOPs += 2 * r * e
		w.Read += whole(2 * e * ElementSize(p))
	}
	return w
}

// RMSNorm is x/√(mean(x²)+ε)·γ over rows of n elements (Zhang and Sennrich 2019): n products, n−1 additions, a
// division, an addition, a reciprocal root, n products, and n products with γ.
func RMSNorm(rows, n int, p gpuspan.Precision) gpuspan.Work {
	if invalid(rows, n) || empty(rows, n) {
		return gpuspan.Work{}
	}
	r, e := float64(rows), float64(n)
	return work(r*(4*e+2), r*e+e, r*e, p)
}

// Embedding gathers rows of dim elements of a table by indices of indexSize bytes (8 for torch's int64): no operation,
// and only the rows that are gathered are read.
func Embedding(indices, dim, indexSize int, p gpuspan.Precision) gpuspan.Work {
	if invalid(indices, dim, indexSize) {
		return gpuspan.Work{}
	}
	n := float64(indices) * float64(dim) * ElementSize(p)
	return bytes(0, n+float64(indices)*float64(indexSize), n, p)
}

// EmbeddingBag gathers rows as Embedding and adds them up within bags, each of which has at least one index:
// (indices − bags)·dim additions.
func EmbeddingBag(indices, bags, dim, indexSize int, p gpuspan.Precision) gpuspan.Work {
	if invalid(indices, bags, dim, indexSize, indices-bags) {
		return gpuspan.Work{}
	}
	s := ElementSize(p)
	i, b, d := float64(indices), float64(bags), float64(dim)
	return bytes((i-b)*d, i*d*s+(i+b)*float64(indexSize), b*d*s, p)
}
