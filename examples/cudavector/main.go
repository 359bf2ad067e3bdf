// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command cudavector computes on an NVIDIA GPU without cgo and times its work with gpuspan.
//
// It loads kernels (copy, saxpy, tiled matmul) as PTX through the CUDA driver, runs them, checks
// every result against the host's arithmetic, and prints where the time went. Without a GPU it
// computes on the CPU, timed with the host's clock, and reports that.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/otelgpu/otelgpu/examples/internal/otlp"
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
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
	flag.IntVar(&s.elements, "elements", 1<<22, "length of the vectors")
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

func (s settings) validate() error {
	var errs []error
	if s.elements < 1 || s.elements > 1<<28 {
		errs = append(errs, fmt.Errorf("-elements must be between 1 and %d, is %d", 1<<28, s.elements))
	}
	if s.matrix < tile || s.matrix%tile != 0 || s.matrix > 1<<14 {
		errs = append(errs, fmt.Errorf("-matrix must be a multiple of %d up to %d, is %d", tile, 1<<14, s.matrix))
	}
	if s.runs < 1 {
		errs = append(errs, fmt.Errorf("-runs must be at least 1, is %d", s.runs))
	}
	return errors.Join(errs...)
}

// run does the work of main and prints to w.
func run(ctx context.Context, s settings, w io.Writer) (err error) {
	if err := s.validate(); err != nil {
		return err
	}
	tp, err := otlp.Provider(ctx, s.otlp, "cudavector")
	if err != nil {
		return err
	}
	ranges, err := nvtx.Open() // ranges for nsys, if it is attached
	if err != nil {
		fmt.Fprintln(w, err)
	}
	backend, cudaErr := cuda.Open(cuda.WithLibrary(s.library))
	var m machine
	if cudaErr == nil {
		m, cudaErr = newCUDA(backend.Driver())
	}
	var prof *gpuspan.Profiler
	if cudaErr != nil {
		fmt.Fprintf(w, "no GPU: computing on the CPU, timed with the host's clock (%v)\n", cudaErr)
		m = &host{}
		prof, err = gpuspan.New(nil, gpuspan.WithAnnotator(ranges), gpuspan.WithTracerProvider(tp))
	} else {
		prof, err = gpuspan.New(backend, gpuspan.WithAnnotator(ranges), gpuspan.WithTracerProvider(tp))
	}
	if err != nil {
		return err
	}
	defer func() {
		stop := context.WithoutCancel(ctx)
		err = errors.Join(err, prof.Shutdown(stop), m.close(), backend.Close(), tp.Shutdown(stop))
	}()
	for _, d := range prof.Devices() {
		fmt.Fprintf(w, "%s (%s), driver %s\n", d.Model, d.UUID, d.DriverVersion)
	}
	b := bench{settings: s, machine: m, stream: prof.Stream(m.stream(), "compute"), out: w}
	for _, part := range []func(context.Context) error{b.vectors, b.matrices} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if err := prof.Flush(ctx); err != nil {
		return err
	}
	return prof.Snapshot().WriteText(w)
}
