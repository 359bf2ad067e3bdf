// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
)

var (
	opUpload   = gpuspan.NewOperation("upload", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pageable))
	opDownload = gpuspan.NewOperation("download", gpuspan.Copy(gpuspan.DeviceToHost, gpuspan.Pageable))
	opCopy     = gpuspan.NewOperation("copy", gpuspan.Category("vector"))
	opSaxpy    = gpuspan.NewOperation("saxpy", gpuspan.Category("vector"))
	opMatmul   = gpuspan.NewOperation("matmul", gpuspan.Category("matrix"))
)

// bench runs the kernels in timed sections and checks their results.
type bench struct {
	settings
	machine machine
	stream  *gpuspan.Stream
	out     io.Writer
}

// section times f, which receives the work to declare.
func (b *bench) section(ctx context.Context, op *gpuspan.Operation, w gpuspan.Work, f func() error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	x := op.Start(ctx, b.stream)
	err := f()
	x.EndWith(w)
	if err != nil {
		return fmt.Errorf("%s: %w", op.Name(), err)
	}
	return nil
}

func (b *bench) upload(ctx context.Context, dst buffer, v []float32) error {
	return b.section(ctx, opUpload, gpuspan.Work{Bytes: int64(4 * len(v))},
		func() error { return b.machine.upload(dst, v) })
}

func (b *bench) download(ctx context.Context, src buffer, n int) ([]float32, error) {
	v := make([]float32, n)
	return v, b.section(ctx, opDownload, gpuspan.Work{Bytes: int64(4 * n)},
		func() error { return b.machine.download(v, src) })
}

// vectors copies x and adds it to y again and again.
func (b *bench) vectors(ctx context.Context) (err error) {
	n := b.elements
	x, y := make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], y[i] = float32(i%1000)/8, float32(i%77)
	}
	buffers, release, err := b.allocate(n, 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	dx, dy, dz := buffers[0], buffers[1], buffers[2]
	size := int64(4 * n)
	if err := errors.Join(b.upload(ctx, dx, x), b.upload(ctx, dy, y)); err != nil {
		return err
	}
	const a = 0.5
	for range b.runs {
		if err := b.section(ctx, opCopy, gpuspan.Work{Read: size, Written: size, Items: int64(n)},
			func() error { return b.machine.copy(dz, dx, n) }); err != nil {
			return err
		}
		w := gpuspan.Work{Read: 2 * size, Written: size, Items: int64(n), FLOPs: 2 * float64(n), Precision: gpuspan.FP32}
		if err := b.section(ctx, opSaxpy, w, func() error { return b.machine.saxpy(dy, dz, a, n) }); err != nil {
			return err
		}
	}
	got, err := b.download(ctx, dy, n)
	if err != nil {
		return err
	}
	for i, v := range got {
		want := y[i]
		for range b.runs {
			want = fma32(a, x[i], want)
		}
		if v != want {
			return fmt.Errorf("saxpy is wrong: element %d is %v, not %v", i, v, want)
		}
	}
	fmt.Fprintf(b.out, "saxpy: %d elements are right\n", n)
	return nil
}

// matrices multiplies two square matrices.
func (b *bench) matrices(ctx context.Context) (err error) {
	n := b.matrix
	left, right := make([]float32, n*n), make([]float32, n*n)
	for i := range left {
		left[i], right[i] = float32(i%13-6)/8, float32(i%17-8)/16
	}
	buffers, release, err := b.allocate(n*n, 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	dl, dr, dc := buffers[0], buffers[1], buffers[2]
	if err := errors.Join(b.upload(ctx, dl, left), b.upload(ctx, dr, right)); err != nil {
		return err
	}
	for range b.runs {
		if err := b.section(ctx, opMatmul, flops.MatMul(n, n, n, gpuspan.FP32),
			func() error { return b.machine.matmul(dc, dl, dr, n) }); err != nil {
			return err
		}
	}
	got, err := b.download(ctx, dc, n*n)
	if err != nil {
		return err
	}
	// Elements spread over the matrix, in float64: checking all would take the CPU longer than all
	// runs on the GPU.
	checked := 0
	for i := 0; i < n*n; i += max(n*n/4096, 1) | 1 {
		var want, scale float64
		for k := range n {
			p := float64(left[i/n*n+k]) * float64(right[k*n+i%n])
			want += p
			scale += math.Abs(p)
		}
		if e := math.Abs(float64(got[i]) - want); !(e <= scale*float64(n)*0x1p-24) { // bound of summation in any order
			return fmt.Errorf("matmul is wrong: element [%d, %d] is %v, not %v", i/n, i%n, got[i], want)
		}
		checked++
	}
	fmt.Fprintf(b.out, "matmul: %d of %d elements checked, all are right\n", checked, n*n)
	return nil
}

// allocate allocates buffers of n elements and returns a function that frees them.
func (b *bench) allocate(n, count int) ([]buffer, func() error, error) {
	var buffers []buffer
	release := func() error {
		var errs []error
		for _, x := range buffers {
			errs = append(errs, b.machine.free(x))
		}
		return errors.Join(errs...)
	}
	for range count {
		x, err := b.machine.alloc(n)
		if err != nil {
			return nil, nil, errors.Join(err, release())
		}
		buffers = append(buffers, x)
	}
	return buffers, release, nil
}
