// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"context"
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
)

// Pass the backend of Open to gpuspan.New even if there is no driver.
func ExampleOpen() {
	backend, _ := cuda.Open(cuda.WithLibrary("/nonexistent/libcuda.so.1"))
	prof, err := gpuspan.New(backend)
	fmt.Println("error:", err != nil, "- times by:", prof.Source())

	stream := prof.Stream(0, "main") // the handle from the cgo or C code that creates the stream
	decode := gpuspan.NewOperation("decode", gpuspan.Category("decode"))
	section := decode.Start(context.Background(), stream)
	// … launch kernels on the stream …
	section.EndWith(gpuspan.Work{Bytes: 1 << 20})

	fmt.Println(prof.Shutdown(context.Background()))
	// Output:
	// error: true - times by: host
	// <nil>
}
