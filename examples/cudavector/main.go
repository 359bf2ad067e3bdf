// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command cudavector computes on an NVIDIA GPU without cgo and times its work with gpuspan.
//
// It loads kernels as PTX through the CUDA driver, adds vectors and multiplies matrices with them,
// compares the vectors with the host's arithmetic, and prints where the time went.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"unsafe"

	"github.com/otelgpu/otelgpu/examples/internal/otlp"
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/kernels"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
	"github.com/otelgpu/otelgpu/gpuspan/nvtx"
)

type settings struct {
	elements int    // of the vectors
	matrix   int    // rows and columns, a multiple of 16
	runs     int    // of each kernel
	library  string // libcuda; empty: the usual paths
	otlp     string // OTLP endpoint for spans; empty: none
}

func main() {
	var s settings
	flag.IntVar(&s.elements, "elements", 1<<22, "length of the vectors, at least the elements of a matrix")
	flag.IntVar(&s.matrix, "matrix", 512, "rows and columns of the matrices, a multiple of 16")
	flag.IntVar(&s.runs, "runs", 10, "how often each kernel runs")
	flag.StringVar(&s.library, "library", "", "path of libcuda (default: GPUSPAN_CUDA_LIBRARY, then the loader's path)")
	flag.StringVar(&s.otlp, "otlp", "", "OTLP/gRPC endpoint for spans, as http://localhost:4317; empty: none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cudavector:", err)
		nvtx.Exit(1)
	}
	nvtx.Exit(0) // so that an attached profiler gets the last ranges, too
}

var (
	opUpload   = gpuspan.NewOperation("upload", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pageable))
	opDownload = gpuspan.NewOperation("download", gpuspan.Copy(gpuspan.DeviceToHost, gpuspan.Pageable))
	opSaxpy    = gpuspan.NewOperation("saxpy", gpuspan.Category("vector"))
	opMatmul   = gpuspan.NewOperation("matmul", gpuspan.Category("matrix"))
)

// run does the work of main and prints to w.
func run(ctx context.Context, s settings, w io.Writer) (err error) {
	if s.runs < 1 || s.elements < s.matrix*s.matrix || s.elements > 1<<28 {
		return fmt.Errorf("-elements must be from %d to %d and -runs at least 1, found %d and %d",
			s.matrix*s.matrix, 1<<28, s.elements, s.runs)
	}
	backend, err := cuda.Open(cuda.WithLibrary(s.library))
	if err != nil {
		return err
	}
	d := backend.Driver()
	device, err := d.Device(0)
	if err != nil {
		return err
	}
	cudaContext, err := d.RetainPrimary(device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.ReleasePrimary(device)) }()
	tp, err := otlp.Provider(ctx, s.otlp, "cudavector")
	if err != nil {
		return err
	}
	ranges, err := nvtx.Open() // ranges for nsys, if it is attached
	if err != nil {
		fmt.Fprintln(w, err)
	}
	prof, err := gpuspan.New(backend, gpuspan.WithAnnotator(ranges), gpuspan.WithTracerProvider(tp))
	if err != nil {
		return err
	}
	defer func() {
		stop := context.WithoutCancel(ctx)
		err = errors.Join(err, prof.Shutdown(stop), backend.Close(), tp.Shutdown(stop))
	}()
	for _, d := range prof.Devices() {
		fmt.Fprintf(w, "%s (%s), driver %s\n", d.Model, d.UUID, d.DriverVersion)
	}
	if err := d.Do(cudaContext, func() error { return compute(ctx, s, d, prof, w) }); err != nil {
		return err
	}
	return prof.Snapshot().WriteText(w)
}

// compute runs the kernels in timed sections. The device's context is current.
func compute(ctx context.Context, s settings, d *driver.Driver, prof *gpuspan.Profiler, w io.Writer) (err error) {
	queue, err := d.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.FreeStream(queue)) }()
	k, err := kernels.Load(d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	n, size := s.elements, int64(4*s.elements)
	var memory [3]driver.Ptr
	for i := range memory {
		if memory[i], err = d.Alloc(size); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Free(memory[i])) }()
	}
	x, y, z := memory[0], memory[1], memory[2]
	stream := prof.Stream(uintptr(queue), "compute")
	section := func(op *gpuspan.Operation, work gpuspan.Work, f func() error) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		section := op.Start(ctx, stream)
		err := f()
		section.EndWith(work)
		if err != nil {
			return fmt.Errorf("%s: %w", op.Name(), err)
		}
		return nil
	}

	vx, vy := make([]float32, n), make([]float32, n)
	for i := range vx {
		vx[i], vy[i] = float32(i%1000)/8, float32(i%77)
	}
	got := make([]float32, n)
	errs := []error{
		section(opUpload, gpuspan.Work{Bytes: size}, func() error { return d.Upload(x, bytesOf(vx), queue) }),
		section(opUpload, gpuspan.Work{Bytes: size}, func() error { return d.Upload(y, bytesOf(vy), queue) }),
	}
	const a = 0.5
	add := gpuspan.Work{Read: 2 * size, Written: size, Items: int64(n), FLOPs: 2 * float64(n), Precision: gpuspan.FP32}
	for range s.runs {
		errs = append(errs,
			section(opSaxpy, add, func() error { return k.Saxpy(queue, y, x, a, n) }),
			section(opMatmul, flops.MatMul(s.matrix, s.matrix, s.matrix, gpuspan.FP32),
				func() error { return k.Matmul(queue, z, x, x, s.matrix) }))
	}
	errs = append(errs,
		section(opDownload, gpuspan.Work{Bytes: size}, func() error { return d.Download(bytesOf(got), y, queue) }),
		d.SynchronizeStream(queue))
	if err := errors.Join(append(errs, prof.Flush(ctx))...); err != nil {
		return err
	}
	for i, v := range got {
		want := vy[i]
		for range s.runs {
			want = float32(math.FMA(a, float64(vx[i]), float64(want)))
		}
		if v != want {
			return fmt.Errorf("saxpy is wrong: element %d is %v, not %v", i, v, want)
		}
	}
	fmt.Fprintf(w, "saxpy: %d elements are right\n", n)
	return nil
}

// bytesOf returns the bytes of a slice, without a copy.
func bytesOf(v []float32) []byte {
	defer runtime.KeepAlive(v)
	first := unsafe.Pointer(unsafe.SliceData(v))
	return unsafe.Slice((*byte)(first), 4*len(v))
}
