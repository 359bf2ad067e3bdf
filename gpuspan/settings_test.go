// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
)

func TestSettingsComeFromTheEnvironment(t *testing.T) {
	t.Setenv("GPUSPAN_VERBOSITY", "debug")
	t.Setenv("GPUSPAN_SYNC", "immediate")
	t.Setenv("GPUSPAN_SLOTS", "64")
	t.Setenv("GPUSPAN_HANG_LIMIT", "2m")
	t.Setenv("GPUSPAN_SCHEDULE_ACTIVE", "3")
	t.Setenv("GPUSPAN_NAMES", "")
	t.Setenv("GPUSPAN_CUDA_LIBRARY", "/lib/libcuda.so") // of a subpackage
	s, err := gpuspan.SettingsFromEnv()
	require.NoError(t, err)
	want := gpuspan.DefaultSettings()
	want.Verbosity, want.Sync, want.Slots, want.HangLimit = gpuspan.VerbosityDebug, gpuspan.SyncImmediate, 64, 2*time.Minute
	want.Schedule.Active = 3
	assert.Equal(t, want, s)
}

func TestWrongSettingsNameThemselvesAndKeepDefaults(t *testing.T) {
	t.Setenv("GPUSPAN_SLOTS", "many")
	t.Setenv("GPUSPAN_NVTX_ENABLED", "true")
	t.Setenv("GPUSPAN_CUDA_LIBRRY", "x")
	t.Setenv("GPUSPAN_HIP_LIBRARY", "x") // package hip's
	t.Setenv("GPUSPAN_VERBOSTY", "debug")
	t.Setenv("GPUSPAN_METRICS", "some")
	t.Setenv("GPUSPAN_ENABLED", "maybe")
	t.Setenv("GPUSPAN_HANG_LIMIT", "30")
	p, err := gpuspan.New(nil)
	require.EqualError(t, err, strings.Join([]string{
		"environment: unknown key `GPUSPAN_CUDA_LIBRRY` (did you mean `GPUSPAN_CUDA_LIBRARY`?)",
		"environment: `GPUSPAN_ENABLED` must be true or false, found \"maybe\"",
		"environment: `GPUSPAN_HANG_LIMIT` must be a duration such as 30s, found \"30\"",
		"environment: `GPUSPAN_METRICS` must be one of timed, all, off, found \"some\"",
		"environment: unknown key `GPUSPAN_NVTX_ENABLED`",
		"environment: `GPUSPAN_SLOTS` must be a whole number, found \"many\"",
		"environment: unknown key `GPUSPAN_VERBOSTY` (did you mean `GPUSPAN_VERBOSITY`?)",
	}, "\n"))
	assert.True(t, p.Enabled(), "the profiler works all the same")
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestValidateReportsEveryProblem(t *testing.T) {
	s := gpuspan.DefaultSettings()
	s.Slots, s.Names, s.StackDepth, s.HangLimit, s.OpenLimit = 1, 0, 3, -1, 0
	s.Report, s.PrintReport = false, true
	s.MemoryUsage, s.Sync = true, gpuspan.SyncNone
	s.Verbosity, s.Metrics = 9, 9
	s.Schedule = gpuspan.Schedule{Wait: -1, Every: 2, Warmup: 2}
	err := s.Validate()
	require.Error(t, err)
	for _, want := range []string{
		"`slots` must be between 2 and 32768, found 1",
		"`names` must be positive, found 0",
		"`stack_depth` is 3 but `code_location` is off",
		"`hang_limit` must not be negative, found -1ns",
		"`open_limit` must be positive, found 0s",
		"`print_report` is on but `report` is off",
		"`memory_usage` needs a device, but `sync` is none",
		"`verbosity` must be one of off, default, verbose, debug, found 9",
		"`metrics` must be one of timed, all, off, found 9",
		"`schedule.wait` must not be negative, found -1",
		"`schedule.every` is 2 but `warmup` and `active` take 3 steps",
	} {
		assert.ErrorContains(t, err, want)
	}
	require.NoError(t, gpuspan.DefaultSettings().Validate())
}

func TestAWrongValueLeavesTheOthersAlone(t *testing.T) {
	s := gpuspan.DefaultSettings()
	s.Enabled, s.Verbosity, s.Metrics, s.Slots = false, gpuspan.VerbosityDebug, 9, 1
	s.StackDepth, s.Report, s.PrintReport = 3, false, true
	s.Schedule = gpuspan.Schedule{Repeat: 2, Every: 3}
	p, err := gpuspan.New(nil, gpuspan.WithSettings(s), gpuspan.WithTracerProvider(sdktrace.NewTracerProvider()))
	require.ErrorContains(t, err, "`slots` must be between 2 and 32768, found 1")
	assert.False(t, p.Enabled(), "what was switched off stays off")
	p.SetEnabled(true)
	loop := p.Loop("train", p.Stream(0, "s"), gpuspan.TotalSteps(9))
	var recorded []int64
	for _, step := range loop.Steps(context.Background()) {
		if step.Recording() {
			recorded = append(recorded, step.Index())
		}
	}
	assert.Equal(t, []int64{3, 6}, recorded)
	deep := gpuspan.NewOperation("deep", gpuspan.AtVerbosity(gpuspan.VerbosityDebug))
	assert.True(t, deep.Start(context.Background(), p.Stream(0, "s")).Timed())
	assert.Empty(t, p.Snapshot().Operations, "report is off")
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestFlagsChangeSettings(t *testing.T) {
	s := gpuspan.DefaultSettings()
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	s.Bind(fs)
	require.NoError(t, fs.Parse([]string{"-gpuspan.stack-depth=4", "-gpuspan.code-location", "-gpuspan.schedule-skip-first", "7", "-gpuspan.report=false"}))
	assert.Equal(t, 4, s.StackDepth)
	assert.True(t, s.CodeLocation)
	assert.False(t, s.Report)
	assert.Equal(t, 7, s.Schedule.SkipFirst)
	assert.ErrorContains(t, fs.Parse([]string{"-gpuspan.sync=never"}), `must be one of deferred, group, immediate, none, found "never"`)
	assert.Equal(t, "256", fs.Lookup("gpuspan.slots").DefValue)
}

func TestSetNamesUnknownKeys(t *testing.T) {
	var s gpuspan.Settings
	assert.EqualError(t, s.Set("slot", "3"), "unknown key `slot` (did you mean `slots`?)")
	assert.EqualError(t, s.Set("nothing_like_it", "3"), "unknown key `nothing_like_it`")
	assert.EqualError(t, s.Set("slots", "x"), "`slots`: must be a whole number, found \"x\"")
	require.NoError(t, s.Set("metrics", " all "))
	assert.Equal(t, gpuspan.MetricsAll, s.Metrics)
}

func TestEverySettingIsDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "gpuspan.md"))
	require.NoError(t, err)
	for _, k := range gpuspan.SettingsKeys() {
		row := "| `" + k.Name + "` | `" + k.Env() + "` | `-" + k.Flag() + "` | " + strings.ReplaceAll(k.Kind, "|", ", ") + " | `" + k.Default() + "` | " + k.Help + " |"
		assert.Contains(t, string(doc), row)
	}
}

func TestOptionsWinOverTheEnvironment(t *testing.T) {
	t.Setenv("GPUSPAN_ENABLED", "false")
	t.Setenv("GPUSPAN_VERBOSITY", "debug")
	for _, tt := range []struct {
		opts    []gpuspan.Option
		enabled bool
	}{
		{nil, false},
		{[]gpuspan.Option{gpuspan.WithSettings(gpuspan.DefaultSettings())}, true},
		{[]gpuspan.Option{nil, gpuspan.WithVerbosity(gpuspan.VerbosityVerbose)}, false},
	} {
		p, err := gpuspan.New(nil, tt.opts...)
		require.NoError(t, err)
		assert.Equal(t, tt.enabled, p.Enabled())
		require.NoError(t, p.Shutdown(context.Background()))
	}
}
