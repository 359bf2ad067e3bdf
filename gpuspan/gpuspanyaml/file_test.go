// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspanyaml_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/gpuspanyaml"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

const trainer = `
model: {layers: 12, timing: whatever}
timing:
  verbosity: verbose
  sync: group
  memory_usage: true
  hang_limit: 1m
nvtx:
  enabled: true
  domain: trainer
profiling:
  schedule: {skip_first: 50, warmup: 1, active: 3, every: 10}
  print_report: true
  trace_dir: /tmp/traces
  step_csv: steps.csv
`

func TestNodesOfATrainersFile(t *testing.T) {
	f, err := gpuspanyaml.Read(strings.NewReader(trainer))
	require.NoError(t, err)
	require.Equal(t, settings.VerbosityVerbose, f.Settings.Verbosity)
	require.Equal(t, settings.SyncGroup, f.Settings.Sync)
	require.True(t, f.Settings.MemoryUsage)
	require.True(t, f.Settings.PrintReport)
	require.Equal(t, settings.Schedule{SkipFirst: 50, Warmup: 1, Active: 3, Every: 10}, f.Settings.Schedule)
	require.Equal(t, gpuspanyaml.NVTX{Enabled: true, Domain: "trainer"}, f.NVTX)
	require.Equal(t, "/tmp/traces", f.TraceDir)
	require.Equal(t, "steps.csv", f.StepCSV)
	p, err := gpuspan.New(nil, f.Option())
	require.NoError(t, err)
	require.NoError(t, p.Shutdown(t.Context()))
}

func TestUnsetMeansDefaults(t *testing.T) {
	for _, text := range []string{"", "a: 1", "timing:\nnvtx: ~\n", "timing: {}"} {
		f, err := gpuspanyaml.Read(strings.NewReader(text))
		require.NoError(t, err, text)
		require.Equal(t, settings.Default(), f.Settings)
	}
}

func TestAliasesAndNulls(t *testing.T) {
	f, err := gpuspanyaml.Read(strings.NewReader(
		"slots: &n 64\ntiming: {slots: *n, names: ~, streams: }\nbase: &s {every: 5}\nprofiling: {schedule: *s}"))
	require.NoError(t, err)
	want := settings.Default()
	want.Slots, want.Schedule.Every = 64, 5
	require.Equal(t, want, f.Settings)
}

func TestEveryMistakeIsNamed(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"timing: {verbosty: debug}", "line 1: timing: unknown key `verbosty` (did you mean `verbosity`?)"},
		{"timing: {slots: lots}", "line 1: timing: `slots`: must be a whole number, found \"lots\""},
		{"timing:\n  sync: [a]", "line 2: `timing.sync` must be a single value, found a list"},
		{"timing: [1]", "line 1: `timing` must be a mapping, found a list"},
		{"profiling:\n  schedule: 3", "line 2: `profiling.schedule` must be a mapping, found \"3\""},
		{
			"profiling:\n  schedule: {evry: 3}",
			"line 2: profiling: unknown key `schedule.evry` (did you mean `schedule.every`?)",
		},
		{"profiling: {slots: 9}", "line 1: `slots` belongs below `timing`, found below `profiling`"},
		{"timing: {report: false}", "line 1: `report` belongs below `profiling`, found below `timing`"},
		{"nvtx: {enabled: maybe}", "line 1: `nvtx.enabled` must be true or false, found \"maybe\""},
		{"nvtx: {domain: trainer}", "`nvtx.domain` is \"trainer\" but `nvtx.enabled` is off (set enabled: true)"},
		{"nvtx: {color: red}", "line 1: unknown key `nvtx.color` (it has enabled and domain)"},
		{"profiling: {schedule: {every: 5, wait: 1}}", "`schedule.every` (5) and `schedule.wait` (1) exclude each other"},
		{"timing: {slots: 3, slots: 4}", "line 1: `timing.slots` is set twice"},
		{"timing: {slots: 3}\ntiming: {names: 4}", "line 2: `timing` is set twice"},
		{"profiling:\n  schedule: {every: 3}\n  schedule: {wait: 3}", "line 3: `profiling.schedule` is set twice"},
		{"a: &x [1]\ntiming: {slots: *x}", "line 1: `timing.slots` must be a single value, found a list"},
		{"profiling: {warmup_steps: 3}", "line 1: profiling: unknown key `warmup_steps` (set `schedule.skip_first`"},
		{"timing: {record_shapes: true}", "gpu.operation.shapes"},
		{"timing: {<<: {slots: 5}}", "line 1: `timing.<<` must be a single value, found a mapping"},
		{"- a", "line 1: a mapping is expected, found a list"},
		{"a: [", "not YAML"},
		{strings.Repeat("#", 1<<20+1), "larger than 1048576 bytes"},
	} {
		_, err := gpuspanyaml.Read(strings.NewReader(tt.text))

		require.ErrorContains(t, err, tt.want, tt.text[:min(len(tt.text), 40)])
	}
	_, err := gpuspanyaml.Read(strings.NewReader("timing: {slots: x, names: y}"))
	require.ErrorContains(t, err, "`slots`")
	require.ErrorContains(t, err, "`names`", "all at once")
}

// The table of settings also lists the keys that only files have.
func TestKeysOfFilesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "gpuspan.md"))
	require.NoError(t, err)
	for key, value := range map[string]string{
		"nvtx.enabled": "true", "nvtx.domain": "x", "profiling.trace_dir": "x",
		"profiling.step_csv": "x",
	} {
		require.Contains(t, string(doc), "| `"+key+"` | – |")
		node, name, _ := strings.Cut(key, ".")
		text := node + ": {" + name + ": " + value + "}"
		if key == "nvtx.domain" {
			text = "nvtx: {enabled: true, domain: x}"
		}
		_, err := gpuspanyaml.Read(strings.NewReader(text))
		require.NoError(t, err, text)
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "train.yaml")
	_, err := gpuspanyaml.Load(path)
	require.ErrorContains(t, err, "cannot open configuration")
	require.NoError(t, os.WriteFile(path, []byte("timing: {x: 1}"), 0o600))
	_, err = gpuspanyaml.Load(path)
	require.ErrorContains(t, err, "train.yaml: line 1")
	require.NoError(t, os.WriteFile(path, []byte(trainer), 0o600))
	f, err := gpuspanyaml.Load(path)
	require.NoError(t, err)
	require.True(t, f.NVTX.Enabled)
}

func FuzzRead(f *testing.F) {
	f.Add(trainer)
	f.Add("timing: &a {x: *a}")
	f.Add("profiling: {schedule: {active: -1}}")
	f.Fuzz(func(t *testing.T, text string) {
		out, err := gpuspanyaml.Read(strings.NewReader(text))
		if err == nil {
			require.NoError(t, out.Settings.Validate())
		}
	})
}

func TestNodesBelowAnotherOne(t *testing.T) {
	text := "timing: {slots: 9}\nruntime:\n  gpu:\n    timing: {slots: 64}\n    nvtx: true\n  empty:\n"
	f, err := gpuspanyaml.Read(strings.NewReader(text), "runtime", "gpu")
	require.NoError(t, err)
	require.Equal(t, 64, f.Settings.Slots)
	require.True(t, f.NVTX.Enabled)
	f, err = gpuspanyaml.Read(strings.NewReader(text), "runtime", "empty")
	require.NoError(t, err)
	require.Equal(t, settings.Default(), f.Settings)
	_, err = gpuspanyaml.Read(strings.NewReader(text), "runtime", "cpu")
	require.EqualError(t, err, "missing node `runtime.cpu`")
	_, err = gpuspanyaml.Read(strings.NewReader(""), "runtime")
	require.EqualError(t, err, "missing node `runtime`")
	_, err = gpuspanyaml.Read(strings.NewReader("runtime: [1]"), "runtime")
	require.EqualError(t, err, "line 1: a mapping is expected, found a list")
	path := filepath.Join(t.TempDir(), "train.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	f, err = gpuspanyaml.Load(path, "runtime", "gpu")
	require.NoError(t, err)
	require.Equal(t, 64, f.Settings.Slots)
}

func TestNodesMayBeBooleans(t *testing.T) {
	for text, want := range map[string][2]bool{ // enabled, nvtx
		"profiling: null":                        {false, false},
		"profiling: ~\nnvtx: true":               {false, true},
		"profiling: false":                       {false, false},
		"profiling: true":                        {true, false},
		"timing: false":                          {false, false},
		"profiling: ~\ntiming: {enabled: true}":  {true, false},
		"timing: {enabled: true}\nprofiling: ~":  {true, false},
		"profiling: {enabled: false}\nnvtx: off": {false, false},
		"profiling: {}":                          {true, false},
	} {
		f, err := gpuspanyaml.Read(strings.NewReader(text))
		if strings.Contains(text, "off") {
			require.ErrorContains(t, err, "`nvtx` must be a mapping, found \"off\"", "YAML 1.2 has no such boolean")
			continue
		}
		require.NoError(t, err, text)
		require.Equal(t, want, [2]bool{f.Settings.Enabled, f.NVTX.Enabled}, text)
	}
}

func TestKeysOfProfilerGuides(t *testing.T) {
	f, err := gpuspanyaml.Read(strings.NewReader(
		"profiling: {wait: 2, warmup: 1, active: 3, repeat: 4, skip_first: 10, profile_memory: true, with_stack: true, output_dir: /tmp/t}"))
	require.NoError(t, err)
	want := settings.Default()
	want.Schedule = settings.Schedule{SkipFirst: 10, Wait: 2, Warmup: 1, Active: 3, Repeat: 4}
	want.MemoryUsage, want.CodeLocation = true, true
	require.Equal(t, want, f.Settings)
	require.Equal(t, "/tmp/t", f.TraceDir)
	_, err = gpuspanyaml.Read(strings.NewReader("profiling: {with_flops: true, activities: cpu}"))
	require.ErrorContains(t, err,
		"line 1: profiling: unknown key `with_flops` (state FLOPs as Work; package flops counts them)")
	require.ErrorContains(t, err, "profiling: unknown key `activities`")
	_, err = gpuspanyaml.Read(strings.NewReader("timing: {wait: 2}"))
	require.ErrorContains(t, err, "unknown key `wait`")
}
