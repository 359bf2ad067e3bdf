// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx_test

import (
	"context"
	"fmt"
	"log"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/nvtx"
)

// With the annotator every section is a range for a profiler that is attached, and nothing otherwise.
func ExampleOpen() {
	ranges, err := nvtx.Open(nvtx.WithIDs(nvtx.IDsInPayload))
	if err != nil {
		log.Print(err) // a tool is named and cannot be attached
	}
	prof, _ := gpuspan.New(nil, gpuspan.WithAnnotator(ranges))
	stream := prof.Stream(0, "main")
	gpuspan.NewOperation("decode").Start(context.Background(), stream).End()
	fmt.Println("tool attached:", ranges.Enabled())
	_ = prof.Shutdown(context.Background())
	// Output: tool attached: false
}
