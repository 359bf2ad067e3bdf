// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"math"
	"runtime"
	"unsafe"

	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
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

// matmul reads b row by row, which is cache-friendly.
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

// fma32 returns a x + y with one rounding, as the GPU's fma.rn.f32: the product of two float32 is
// exact in float64.
func fma32(a, x, y float32) float32 { return float32(math.FMA(float64(a), float64(x), float64(y))) }

// buffer is a vector of float32 in the machine's memory.
type buffer uint64

// tile is the width of the matrix kernel's tiles.
const tile = kernels.Tile

// machine is a device for the kernels. Everything except download is asynchronous on one stream.
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

// gpu runs the kernels on the first CUDA device.
type gpu struct {
	driver   *driver.Driver
	device   driver.Device
	context  driver.Context
	handle   driver.Stream
	kernels  *kernels.Set
	retained bool
}

// newCUDA opens the first device and compiles the kernels for it.
func newCUDA(d *driver.Driver) (_ machine, err error) {
	g := &gpu{driver: d}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if g.device, err = d.Device(0); err != nil {
		return nil, err
	}
	if g.context, err = d.RetainPrimary(g.device); err != nil {
		return nil, err
	}
	g.retained = true
	return g, g.do(func() (err error) {
		if g.handle, err = d.NewStream(); err != nil {
			return err
		}
		g.kernels, err = kernels.Load(d)
		return err
	})
}

// do runs f with the context current. A goroutine may move between threads, a current context does
// not.
func (g *gpu) do(f func() error) error { return g.driver.Do(g.context, f) }

func (g *gpu) stream() uintptr { return uintptr(g.handle) }

func (g *gpu) alloc(n int) (b buffer, err error) {
	err = g.do(func() error {
		p, err := g.driver.Alloc(4 * int64(n))
		b = buffer(p)
		return err
	})
	return b, err
}

func (g *gpu) free(b buffer) error { return g.do(func() error { return g.driver.Free(driver.Ptr(b)) }) }

func (g *gpu) upload(dst buffer, v []float32) error {
	return g.do(func() error { return g.driver.Upload(driver.Ptr(dst), memory(v), g.handle) })
}

func (g *gpu) download(v []float32, src buffer) error {
	return g.do(func() error {
		if err := g.driver.Download(memory(v), driver.Ptr(src), g.handle); err != nil {
			return err
		}
		return g.driver.SynchronizeStream(g.handle)
	})
}

func (g *gpu) copy(dst, src buffer, n int) error {
	return g.do(func() error { return g.kernels.Copy(g.handle, driver.Ptr(dst), driver.Ptr(src), n) })
}

func (g *gpu) saxpy(y, x buffer, a float32, n int) error {
	return g.do(func() error { return g.kernels.Saxpy(g.handle, driver.Ptr(y), driver.Ptr(x), a, n) })
}

func (g *gpu) matmul(c, a, b buffer, n int) error {
	return g.do(func() error { return g.kernels.Matmul(g.handle, driver.Ptr(c), driver.Ptr(a), driver.Ptr(b), n) })
}

func (g *gpu) close() error {
	if !g.retained {
		return nil
	}
	g.retained = false
	return errors.Join(g.do(func() error {
		var errs []error
		if g.kernels != nil {
			errs = append(errs, g.kernels.Close())
		}
		if g.handle != 0 {
			errs = append(errs, g.driver.FreeStream(g.handle))
		}
		return errors.Join(errs...)
	}), g.driver.ReleasePrimary(g.device))
}

// memory returns the memory of v.
func memory(v []float32) []byte {
	defer runtime.KeepAlive(v)
	first := unsafe.Pointer(unsafe.SliceData(v)) //nolint:forbidigo // seen as bytes, by Go alone
	return unsafe.Slice((*byte)(first), 4*len(v))
}
