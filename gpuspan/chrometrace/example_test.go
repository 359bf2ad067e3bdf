// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// All spans of the process, as a file that Perfetto opens.
func ExampleExporter() {
	folder, err := os.MkdirTemp("", "traces")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	exporter, err := chrometrace.NewExporter(folder)
	if err != nil {
		panic(err)
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	gpu := simgpu.New(nil)
	prof, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(tp))
	if err != nil {
		fmt.Println(err)
	}
	stream := prof.Stream(gpu.Stream(0), "compute")
	gpuspan.NewOperation("decode").Start(context.Background(), stream).End()
	_ = prof.Shutdown(context.Background()) // before the provider, because it ends the last spans
	_ = tp.Shutdown(context.Background())
	files, _ := filepath.Glob(filepath.Join(folder, "*.json*"))
	fmt.Println(len(files), "file")
	// Output: 1 file
}
