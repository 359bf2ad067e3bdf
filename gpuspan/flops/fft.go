// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import (
	"math"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// FFT is batch transforms of complex numbers over the dimensions, N points in all: 5·N·log₂N, the operations of the
// radix-2 algorithm, by which FFTW and the HPC Challenge state rates whatever algorithm ran and whatever N is. An
// element is two numbers of the precision.
func FFT(batch int, p gpuspan.Precision, dims ...int) gpuspan.Work {
	return fft(batch, 5, 2, 2, p, dims)
}

// RealFFT is batch transforms of real numbers: half of FFT's operations, 2.5·N·log₂N, as FFTW states them. It reads N
// numbers and writes the half of the spectrum that is not redundant, N/2+1 complex elements along the last dimension.
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
