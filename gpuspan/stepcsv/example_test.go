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
	rows, err := stepcsv.Open(stepcsv.Config{Path: path})
	if err != nil {
		panic(err)
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(stepcsv.NewExporter(rows)))
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

func ExampleWriter() {
	dir, err := os.MkdirTemp("", "steps")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "steps.csv")
	w, err := stepcsv.Open(stepcsv.Config{Path: path})
	if err != nil {
		panic(err)
	}
	row := stepcsv.Row{
		Step: 1, Duration: 100 * time.Millisecond, Items: 256, HasSplit: true, Other: 4 * time.Millisecond,
		Phases: []stepcsv.Phase{
			{Name: "forward", Duration: 36 * time.Millisecond},
			{Name: "backward", Duration: 60 * time.Millisecond},
		},
	}
	fmt.Println(w.Write(row), w.Close())
	data, _ := os.ReadFile(path)
	fmt.Print(string(data))
	// Output:
	// <nil> <nil>
	// step,epoch,t_data_ms,t_fwd_ms,t_bwd_ms,t_opt_ms,t_comm_ms,t_overlap_ms,t_misc_ms,t_step_ms,ips_step
	// 1,,,36.000000,60.000000,,,0.000000,4.000000,100.000000,2560.000
}
