// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspanyaml_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/gpuspanyaml"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// job trains for four steps of 5 ms with a configuration file.
func job(path string, opts ...gpuspanyaml.SetupOption) (*gpuspanyaml.Runtime, error) {
	ctx := context.Background()
	clock := simgpu.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	gpu := simgpu.New(clock, simgpu.WithJitter(0), simgpu.WithTick(0), simgpu.WithClockError(0, 0))
	handle := gpu.Stream(0)

	run, err := gpuspanyaml.Setup(path, gpu, opts...)
	loop := train.NewLoop(run.Profiler, "train", run.Profiler.Stream(handle, "train"), train.TotalSteps(4))
	for _, step := range loop.Steps(ctx) {
		forward := step.Phase(train.Forward)
		gpu.Launch(handle, simgpu.Kernel{Duration: 2 * time.Millisecond})
		forward.End()
		clock.Advance(5 * time.Millisecond)
	}
	clock.Advance(time.Millisecond)
	if err := run.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	return run, err
}

func TestSetupWritesTheConfiguredOutputs(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "train.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `
runtime:
  timing: {verbosity: verbose}
  nvtx: true
  profiling:
    schedule: {every: 2}
    trace_dir: %[1]s/traces
    step_csv: %[1]s/steps.csv
`, dir), 0o600))
	spans := tracetest.NewSpanRecorder()
	run, err := job(path, gpuspanyaml.Below("runtime"), gpuspanyaml.WithSDK(sdktrace.WithSpanProcessor(spans)),
		gpuspanyaml.WithProfiler(gpuspan.WithReport(report.WithService("mine"))))
	require.NoError(t, err)
	require.True(t, run.File.NVTX.Enabled)
	require.Equal(t, "mine", run.Profiler.Snapshot().Service)
	steps := 0
	for _, s := range spans.Ended() {
		if s.Name() == "train" {
			steps++
		}
	}
	require.Equal(t, 2, steps, "the schedule of the file")
	rows, err := os.ReadFile(filepath.Join(dir, "steps.csv"))
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(rows), "\n"), "a header and two rows")
	traces, err := filepath.Glob(filepath.Join(dir, "traces", "*.pt.trace.json"))
	require.NoError(t, err)
	require.NotEmpty(t, traces)
}

func TestSetupWorksDespiteErrors(t *testing.T) {
	t.Setenv("GPUSPAN_VERBOSITY", "debug")
	run, err := job(filepath.Join(t.TempDir(), "missing.yaml"))
	require.ErrorContains(t, err, "cannot open configuration")
	require.Equal(t, "debug", run.File.Settings.Verbosity.String(), "the environment's setting is kept")
	require.NotEmpty(t, run.Profiler.Snapshot().Operations)

	dir := t.TempDir()
	path := filepath.Join(dir, "train.yaml")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil,
		"timing: {slot: 3}\nprofiling: {trace_dir: %[1]s/file/traces, step_csv: %[1]s/file/steps.csv}\n", dir), 0o600))
	run, err = job(path)
	require.ErrorContains(t, err, "did you mean `slots`?")
	require.ErrorContains(t, err, "cannot write `profiling.step_csv`")
	require.ErrorContains(t, err, "cannot write to `profiling.trace_dir`")
	require.NotEmpty(t, run.Profiler.Snapshot().Operations)
}

func ExampleSetup() {
	gpu := simgpu.New(nil) // or cuda.Open()
	run, err := gpuspanyaml.Setup("testdata/train.yaml", gpu)
	if err != nil {
		fmt.Println(err) // and continue with defaults
	}
	ctx := context.Background()
	loop := train.NewLoop(run.Profiler, "train", run.Profiler.Stream(gpu.Stream(0), "train"))
	for _, step := range loop.Steps(ctx) {
		forward := step.Phase(train.Forward)
		forward.End()
		step.SetItems(32)
		if step.Index() == 3 {
			break
		}
	}
	fmt.Println("recorded:", run.File.Settings.Schedule, run.Shutdown(ctx))
	// Output: recorded: step 2, then every 2 steps <nil>
}
