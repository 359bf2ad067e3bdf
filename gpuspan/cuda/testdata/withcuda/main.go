// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command withcuda imports the CUDA backend.
package main

import (
	"context"
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
)

func main() {
	b, _ := cuda.Open(cuda.WithLibrary("/nonexistent/libcuda.so.1"))
	prof, err := gpuspan.New(b)
	fmt.Println(prof.Source(), err != nil)
	_ = prof.Shutdown(context.Background())
}
