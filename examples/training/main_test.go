// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestScheduledStepsBecomeSpansAndRows(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	path := filepath.Join(t.TempDir(), "steps.csv")
	var out strings.Builder
	require.NoError(t, run(context.Background(), config{steps: 40, csv: path, simulated: true}, &out, spans))
	assert.Contains(t, out.String(), "forward")

	// Skip 10, then the last 3 of each 10: 18 19 20, 28 29 30, 38 39 40.
	var steps []int64
	for _, s := range spans.Ended() {
		if s.Name() != "train" {
			continue
		}
		for _, kv := range s.Attributes() {
			if kv.Key == "gpu.step.index" {
				steps = append(steps, kv.Value.AsInt64())
			}
		}
	}
	assert.Equal(t, []int64{18, 19, 20, 28, 29, 30, 38, 39, 40}, steps)

	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 10)
	col := map[string]int{}
	for i, name := range rows[0] {
		col[name] = i
	}
	ms := func(row []string, name string) float64 {
		if row[col[name]] == "" {
			return 0
		}
		v, err := strconv.ParseFloat(row[col[name]], 64)
		require.NoError(t, err, name)
		return v
	}
	forward, backward := math.Inf(1), math.Inf(1)
	for _, row := range rows[1:] {
		sum := ms(row, "t_data_ms") + ms(row, "t_fwd_ms") + ms(row, "t_bwd_ms") + ms(row, "t_opt_ms") + ms(row, "t_comm_ms") -
			ms(row, "t_overlap_ms") + ms(row, "t_misc_ms")
		assert.InDelta(t, ms(row, "t_step_ms"), sum, 1e-6)
		forward, backward = min(forward, ms(row, "t_fwd_ms")), min(backward, ms(row, "t_bwd_ms"))
		assert.Positive(t, ms(row, "ips_step"))
	}
	// Uses the shortest of all steps, because the host may be delayed between two launches, which
	// extends the phase.
	assert.Greater(t, backward, forward, "backward does twice the work")
}

func TestReportsInEachForm(t *testing.T) {
	for form, want := range map[string]string{
		"csv":  "\nforward > convolutions,convolutions,conv,",
		"json": `"name": "convolutions"`, "dot": "digraph gpu {",
	} {
		var out strings.Builder
		require.NoError(t, run(context.Background(), config{steps: 20, report: form, sort: "name", simulated: true}, &out))
		assert.Contains(t, out.String(), want)
		assert.NotContains(t, out.String(), "simulated GPU\n", "it can be piped")
	}
	assert.EqualError(t, run(context.Background(), config{steps: 1, report: "xml"}, &strings.Builder{}),
		`-report is "xml", must be text, csv, json or dot`)
	assert.EqualError(t, run(context.Background(), config{steps: 1, sort: "size"}, &strings.Builder{}),
		`-sort: unknown order "size" (use time, flops, bytes or name)`)
}

func TestConfigurationFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "train.yaml")
	traces := filepath.Join(t.TempDir(), "traces")
	text := "nvtx: {enabled: true}\nprofiling: {schedule: {every: 5}, trace_dir: " + traces + "}\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	spans := tracetest.NewSpanRecorder()
	require.NoError(t, run(context.Background(), config{steps: 10, file: path, simulated: true}, &strings.Builder{},
		spans))
	n := 0
	for _, s := range spans.Ended() {
		if s.Name() == "train" {
			n++
		}
	}
	assert.Equal(t, 2, n)
	files, err := filepath.Glob(filepath.Join(traces, "*.pt.trace.json"))
	require.NoError(t, err)
	assert.Len(t, files, 2, "one for each window")
	require.NoError(t, os.WriteFile(path, []byte("profiling: {schedule: {evry: 5}}\n"), 0o600))
	assert.ErrorContains(t, run(context.Background(), config{steps: 1, file: path, simulated: true}, &strings.Builder{}),
		"did you mean `schedule.every`?")
	assert.EqualError(t, run(context.Background(), config{}, &strings.Builder{}), "-steps must be at least 1, is 0")
}

func TestEnvironmentSwitchesTimingOff(t *testing.T) {
	t.Setenv("GPUSPAN_ENABLED", "false")
	spans := tracetest.NewSpanRecorder()
	var out strings.Builder
	require.NoError(t, run(context.Background(), config{steps: 20, simulated: true}, &out, spans))
	assert.Empty(t, spans.Ended())
	assert.Contains(t, out.String(), "no section has finished")
}
