// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package kernels holds a few small CUDA kernels, for programs that try out or demonstrate a device
// without the CUDA toolkit and without cgo: saxpy and a tiled matrix product in float32.
//
// They are written for clarity, not for speed: the vector kernels reach most of the memory
// bandwidth, the matrix product a small part of the FLOP rate of a library.
package kernels

import (
	_ "embed"
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
)

// PTX is the source code of the kernels, which the driver compiles for the device (compute
// capability 7.0 and later).
//
//go:embed kernels.ptx
var PTX string

const (
	// Tile is the width of the matrix kernel's tiles: matrices are a multiple of it wide.
	Tile = 16
	// threads is the size of a block of the vector kernels.
	threads = 256
)

// Set holds the kernels compiled for a context. Its methods need that context current, return when
// the launch is enqueued, and return the driver's error if that fails.
type Set struct {
	driver        *driver.Driver
	module        driver.Module
	saxpy, matmul driver.Function
}

// Load compiles the kernels for the current context. Call [Set.Close] to unload them. It returns
// the driver's error if compilation fails.
func Load(d *driver.Driver) (*Set, error) {
	m, err := d.Load(PTX)
	if err != nil {
		return nil, err
	}
	s := &Set{driver: d, module: m}
	for name, k := range map[string]*driver.Function{"saxpy": &s.saxpy, "matmul": &s.matmul} {
		if *k, err = d.Function(m, name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Saxpy adds a times x to y, for n float32: 2 n FLOPs, 8 n bytes read and 4 n written.
func (s *Set) Saxpy(stream driver.Stream, y, x driver.Ptr, a float32, n int) error {
	return s.driver.Launch(s.saxpy, grid(n), driver.Dim{X: threads}, 0, stream, y, x, a, uint32(n))
}

// Matmul writes the product of the n × n matrices a and b to c: 2 n³ FLOPs. It returns an error
// unless n is a multiple of [Tile].
func (s *Set) Matmul(stream driver.Stream, c, a, b driver.Ptr, n int) error {
	if n <= 0 || n%Tile != 0 {
		return fmt.Errorf("matrices must be a multiple of %d wide, found %d", Tile, n)
	}
	blocks := uint32(n / Tile)
	return s.driver.Launch(s.matmul, driver.Dim{X: blocks, Y: blocks}, driver.Dim{X: Tile, Y: Tile}, 0, stream, c, a, b,
		uint32(n))
}

// Close unloads the module.
func (s *Set) Close() error { return s.driver.Unload(s.module) }

func grid(n int) driver.Dim { return driver.Dim{X: uint32((n + threads - 1) / threads)} }
