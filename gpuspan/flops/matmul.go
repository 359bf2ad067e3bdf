// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import "github.com/otelgpu/otelgpu/gpuspan"

// MatMul is C = A·B with A of m×k and B of k×n: 2·m·n·k, as in cuBLAS and LAPACK (LAWN 41). That the first product of
// each element needs no addition is ignored there and here.
func MatMul(m, n, k int, p gpuspan.Precision) gpuspan.Work { return BatchedMatMul(1, m, n, k, p) }

// BatchedMatMul is batch independent products of m×k and k×n.
func BatchedMatMul(batch, m, n, k int, p gpuspan.Precision) gpuspan.Work {
	if invalid(batch, m, n, k) {
		return gpuspan.Work{}
	}
	b, x, y, z := float64(batch), float64(m), float64(n), float64(k)
	return work(2*b*x*y*z, b*(x*z+z*y), b*x*y, p)
}

// Linear is a layer Y = X·Wᵀ + bias on rows vectors of in elements, giving out elements each: 2·rows·in·out, and
// rows·out more with a bias.
func Linear(rows, in, out int, bias bool, p gpuspan.Precision) gpuspan.Work {
	w := MatMul(rows, out, in, p)
	if bias && !invalid(rows, in, out) {
		w.FLOPs += float64(rows) * float64(out)
		w.Read += whole(float64(out) * ElementSize(p))
	}
	return w
}
