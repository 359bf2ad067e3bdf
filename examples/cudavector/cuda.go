// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"errors"
	"runtime"
	"unsafe"

	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
)

//go:embed kernels.ptx
var kernels string

// threads is the size of a block of the vector kernels.
const threads = 256

// gpu runs the kernels on the first CUDA device.
type gpu struct {
	driver   *driver.Driver
	device   driver.Device
	context  driver.Context
	handle   driver.Stream
	module   driver.Module
	copyK    driver.Function
	saxpyK   driver.Function
	matmulK  driver.Function
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
		if g.module, err = d.Load(kernels); err != nil {
			return err
		}
		for name, k := range map[string]*driver.Function{"copy": &g.copyK, "saxpy": &g.saxpyK, "matmul": &g.matmulK} {
			if *k, err = d.Function(g.module, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// do runs f with the context current. A goroutine may move between threads, a current context does not.
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

func (g *gpu) free(b buffer) error {
	return g.do(func() error { return g.driver.Free(driver.Ptr(b)) })
}

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
	return g.launch(g.copyK, grid(n), driver.Dim{X: threads}, driver.Ptr(dst), driver.Ptr(src), uint32(n))
}

func (g *gpu) saxpy(y, x buffer, a float32, n int) error {
	return g.launch(g.saxpyK, grid(n), driver.Dim{X: threads}, driver.Ptr(y), driver.Ptr(x), a, uint32(n))
}

func (g *gpu) matmul(c, a, b buffer, n int) error {
	blocks := uint32(n / tile)
	return g.launch(g.matmulK, driver.Dim{X: blocks, Y: blocks}, driver.Dim{X: tile, Y: tile}, driver.Ptr(c), driver.Ptr(a), driver.Ptr(b), uint32(n))
}

func (g *gpu) launch(k driver.Function, grid, block driver.Dim, args ...any) error {
	return g.do(func() error { return g.driver.Launch(k, grid, block, 0, g.handle, args...) })
}

func grid(n int) driver.Dim { return driver.Dim{X: uint32((n + threads - 1) / threads)} }

func (g *gpu) close() error {
	if !g.retained {
		return nil
	}
	g.retained = false
	var errs []error
	errs = append(errs, g.do(func() error {
		var errs []error
		if g.module != 0 {
			errs = append(errs, g.driver.Unload(g.module))
		}
		if g.handle != 0 {
			errs = append(errs, g.driver.FreeStream(g.handle))
		}
		return errors.Join(errs...)
	}))
	return errors.Join(append(errs, g.driver.ReleasePrimary(g.device))...)
}

// memory is the memory of v.
func memory(v []float32) []byte {
	defer runtime.KeepAlive(v)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
