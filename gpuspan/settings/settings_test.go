// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestSettingsComeFromTheEnvironment(t *testing.T) {
	t.Setenv("GPUSPAN_VERBOSITY", "debug")
	t.Setenv("GPUSPAN_SYNC", "immediate")
	t.Setenv("GPUSPAN_SLOTS", "64")
	t.Setenv("GPUSPAN_HANG_LIMIT", "2m")
	t.Setenv("GPUSPAN_SCHEDULE_ACTIVE", "3")
	t.Setenv("GPUSPAN_NAMES", "")
	t.Setenv("GPUSPAN_CUDA_LIBRARY", "/lib/libcuda.so") // belongs to a subpackage
	s, err := settings.FromEnv()
	require.NoError(t, err)
	want := settings.Default()
	want.Verbosity, want.Sync, want.Slots, want.HangLimit = settings.VerbosityDebug, settings.SyncImmediate, 64,
		2*time.Minute
	want.Schedule.Active = 3
	require.Equal(t, want, s)
}

func TestValidateReportsEveryProblem(t *testing.T) {
	s := settings.Default()
	s.Slots, s.Names, s.StackDepth, s.HangLimit, s.OpenLimit = 1, 0, 3, -1, 0
	s.Report, s.PrintReport = false, true
	s.MemoryUsage, s.Sync = true, settings.SyncNone
	s.Verbosity, s.Metrics = 9, 9
	s.Schedule = settings.Schedule{Wait: -1, Every: 2, Warmup: 2}
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
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, settings.Default().Validate())
}

func TestFlagsChangeSettings(t *testing.T) {
	s := settings.Default()
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	s.Bind(fs)
	require.NoError(t, fs.Parse([]string{
		"-gpuspan.stack-depth=4", "-gpuspan.code-location",
		"-gpuspan.schedule-skip-first", "7", "-gpuspan.report=false",
	}))
	require.Equal(t, 4, s.StackDepth)
	require.True(t, s.CodeLocation)
	require.False(t, s.Report)
	require.Equal(t, 7, s.Schedule.SkipFirst)
	require.ErrorContains(t, fs.Parse([]string{"-gpuspan.sync=never"}),
		`must be one of deferred, group, immediate, none, found "never"`)
	require.Equal(t, "256", fs.Lookup("gpuspan.slots").DefValue)
}

func TestSetNamesUnknownKeys(t *testing.T) {
	var s settings.Settings
	require.EqualError(t, s.Set("slot", "3"), "unknown key `slot` (did you mean `slots`?)")
	require.EqualError(t, s.Set("nothing_like_it", "3"), "unknown key `nothing_like_it`")
	require.EqualError(t, s.Set("slots", "x"), "`slots`: must be a whole number, found \"x\"")
	require.NoError(t, s.Set("metrics", " all "))
	require.Equal(t, settings.MetricsAll, s.Metrics)
}

var update = flag.Bool("update", false, "write the table of docs/gpuspan.md")

func TestTableOfTheGuideEqualsWriteTable(t *testing.T) {
	const begin, end = "<!-- begin settings -->\n\n", "\n<!-- end settings -->"
	path := filepath.Join("..", "..", "docs", "gpuspan.md")
	doc, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(doc), begin)
	require.True(t, ok)
	table, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	var b strings.Builder
	require.NoError(t, settings.Default().WriteTable(&b))
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+b.String()+end+after), 0o600))
		return
	}
	require.Equal(t, b.String(), table, "run go test ./settings -update")
	for _, k := range settings.Keys() {
		require.Contains(t, table, "| `"+settings.Node(k.Name)+"."+k.Name+"` | `"+k.Env()+"` | `-"+k.Flag()+"` |")
	}
}

func TestTableHasTheValuesThatApply(t *testing.T) {
	s := settings.Default()
	require.NoError(t, s.Set("slots", "64"))
	var b strings.Builder
	require.NoError(t, s.WriteTable(&b))
	require.Contains(t, b.String(), "| `timing.slots` | `GPUSPAN_SLOTS` | `-gpuspan.slots` | – | int | `64` |")
}

func TestKeysOfOtherToolsNameTheirReplacement(t *testing.T) {
	for key, want := range map[string]string{
		"warmup_steps":          "`schedule.skip_first`",
		"schedule.warmup_steps": "`schedule.skip_first`",
		"sample_rate":           "`schedule.every`",
		"record_shapes":         "gpu.operation.shapes",
	} {
		s := settings.Default()
		err := s.Set(key, "1")
		require.ErrorContains(t, err, "unknown key `"+key+"`")
		require.ErrorContains(t, err, want)
	}
}
