// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

// Command foreign times the work of a C library whose CUDA stream is private to it: gpuspan lends
// the library two events for each section, and the library records them (engine.c).
//
//	go run ./foreign -library libcuda.so.1
package main

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "engine.h"
import "C"

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"github.com/otelgpu/otelgpu/examples/internal/otlp"
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
)

func main() {
	library := flag.String("library", "libcuda.so.1", "path of libcuda")
	runs := flag.Int("runs", 5, "runs of the engine")
	endpoint := flag.String("otlp", "", "OTLP/gRPC endpoint for spans, as http://localhost:4317; empty: none")
	flag.Parse()
	if err := run(context.Background(), *library, *endpoint, *runs, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var fill = gpuspan.NewOperation("engine.fill", gpuspan.Memset())

func run(ctx context.Context, library, endpoint string, runs int, out io.Writer) (err error) {
	runtime.LockOSThread() // the engine leaves its context current on this thread
	defer runtime.UnlockOSThread()
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	if code := C.engine_open(path); code != 0 {
		return fmt.Errorf("cannot open the engine on %s: error %d (it needs a CUDA driver and a device)", library, int(code))
	}
	backend, err := cuda.Open(cuda.WithLibrary(library))
	if err != nil {
		return err
	}
	tp, err := otlp.Provider(ctx, endpoint, "foreign")
	if err != nil {
		return err
	}
	prof, err := gpuspan.New(backend, gpuspan.WithTracerProvider(tp))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, prof.Shutdown(ctx), tp.Shutdown(ctx)) }()

	stream := prof.Stream(0, "engine", gpuspan.ForeignEvents())
	for range runs {
		x := fill.Foreign(ctx, stream)
		start, end := x.Events()
		if code := C.engine_run(C.uintptr_t(start), C.uintptr_t(end)); code != 0 {
			x.End() // the events may not have been recorded: host times
			return fmt.Errorf("the engine failed: error %d", int(code))
		}
		x.Recorded(gpuspan.Work{Written: 4 << 20})
	}
	if code := C.engine_wait(); code != 0 {
		return fmt.Errorf("the engine failed: error %d", int(code))
	}
	if err := prof.Flush(ctx); err != nil {
		return err
	}
	return prof.Snapshot().WriteText(out)
}
