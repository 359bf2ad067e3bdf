// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"

	"github.com/otelgpu/otelgpu/gpuspan/cuda/kernels"
)

// host runs the kernels on the CPU, for machines without a GPU.
type host struct{ buffers [][]float32 }

func (h *host) stream() uintptr { return 0 }

func (h *host) alloc(n int) (buffer, error) {
	h.buffers = append(h.buffers, make([]float32, n))
	return buffer(len(h.buffers) - 1), nil
}

func (h *host) free(b buffer) error { h.buffers[b] = nil; return nil }

func (h *host) upload(dst buffer, v []float32) error { copy(h.buffers[dst], v); return nil }

func (h *host) download(v []float32, src buffer) error { copy(v, h.buffers[src]); return nil }

func (h *host) copy(dst, src buffer, n int) error {
	copy(h.buffers[dst][:n], h.buffers[src][:n])
	return nil
}

func (h *host) saxpy(y, x buffer, a float32, n int) error {
	vy, vx := h.buffers[y], h.buffers[x]
	for i := range n {
		vy[i] = fma32(a, vx[i], vy[i])
	}
	return nil
}

// matmul walks b row by row, which caches like.
func (h *host) matmul(c, a, b buffer, n int) error {
	vc, va, vb := h.buffers[c], h.buffers[a], h.buffers[b]
	clear(vc)
	for y := range n {
		row := vc[y*n : (y+1)*n]
		for k := range n {
			f := va[y*n+k]
			for x, v := range vb[k*n : (k+1)*n] {
				row[x] += f * v
			}
		}
	}
	return nil
}

func (h *host) close() error { return nil }

// fma32 is a x + y with one rounding, as the GPU's fma.rn.f32: the product of two float32 is exact in float64.
func fma32(a, x, y float32) float32 { return float32(math.FMA(float64(a), float64(x), float64(y))) }

// buffer is a vector of float32 in the machine's memory.
type buffer uint64

// tile is the width of the matrix kernel's tiles.
const tile = kernels.Tile

// machine is what the kernels run on. Everything but download is asynchronous on one stream.
type machine interface {
	stream() uintptr
	alloc(n int) (buffer, error)
	free(buffer) error
	upload(dst buffer, v []float32) error
	download(v []float32, src buffer) error
	copy(dst, src buffer, n int) error
	saxpy(y, x buffer, a float32, n int) error
	matmul(c, a, b buffer, n int) error
	close() error
}
