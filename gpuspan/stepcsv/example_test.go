// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/stepcsv"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// A row for each step of a loop.
func ExampleExporter() {
	dir, err := os.MkdirTemp("", "steps")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "steps.csv")
	rows, err := stepcsv.NewExporter(path)
	if err != nil {
		panic(err)
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(rows))
	prof, _ := gpuspan.New(nil, gpuspan.WithTracerProvider(tp)) // with host times, as there is no backend
	for range train.NewLoop(prof, "train", prof.Stream(0, "main"), train.TotalSteps(3)).Steps(context.Background()) {
		time.Sleep(time.Millisecond) // the step's work
	}
	_ = prof.Shutdown(context.Background())
	_ = tp.Shutdown(context.Background())
	data, _ := os.ReadFile(path)
	fmt.Println(strings.Count(string(data), "\n")-1, "rows")
	// Output: 3 rows
}
