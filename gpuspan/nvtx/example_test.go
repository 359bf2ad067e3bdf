// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx_test

import (
	"context"
	"fmt"
	"log"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/nvtx"
)

// With the annotator, every section is a range for an attached profiler, and costs nothing
// otherwise. With the same ID generator in the provider and the annotator, the range carries the
// IDs of the section's span.
func ExampleOpen() {
	ranges, err := nvtx.Open()
	if err != nil {
		log.Print(err) // a tool is configured but cannot be attached
	}
	ids := gpuspan.NewIDGenerator(nil)
	tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids))
	prof, _ := gpuspan.New(nil, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids),
		gpuspan.WithAnnotator(ranges))
	stream := prof.Stream(0, "main")
	gpuspan.NewOperation("decode").Start(context.Background(), stream).End()
	fmt.Println("tool attached:", ranges.Enabled())
	_ = prof.Shutdown(context.Background())
	// Output: tool attached: false
}
