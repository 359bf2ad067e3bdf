// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip_test

import (
	"context"
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/hip"
)

// Open loads HIP's runtime library. Without it, or without a device, the profiler times on the
// host's clock.
func ExampleOpen() {
	b, err := hip.Open(hip.WithLibrary("/nonexistent/libamdhip64.so"))
	fmt.Println("HIP found:", err == nil)
	prof, _ := gpuspan.New(b)
	defer func() { _ = prof.Shutdown(context.Background()) }()
	fmt.Println(prof.Source())
	// Output:
	// HIP found: false
	// host
}
