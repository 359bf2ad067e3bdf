// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/otelgpu/otelgpu/gpuspan/cuda/kernels"

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
