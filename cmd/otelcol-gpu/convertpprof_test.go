// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
)

// The GPU time of a pprof file is the sum of the lengths of the activities in the trace, its idle
// time is the window minus their union, as computed by an independent program for the recorded
// files.
func TestPprofHasTheTimesOfTheTrace(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "worker0.json")
	type event struct {
		Ph, Cat, Name string
		Pid, Tid      int
		Ts, Dur       float64
		Args          map[string]any `json:"args"`
	}
	var events []event
	for i, at := range []float64{1000, 1100, 1500} {
		events = append(events,
			event{
				"X", "cuda_runtime", "cudaLaunchKernel", 1, 1, at - 20, 5, map[string]any{"correlation": i + 1},
			},
			event{
				"X", "kernel", "void at::gemm<float>(int)", 0, 7, at, 50,
				map[string]any{"device": 0, "stream": 7, "correlation": i + 1},
			})
	}
	events = append(events, event{"X", "cpu_op", "aten::mm", 1, 1, 900, 700, map[string]any{}})
	b, err := json.Marshal(map[string]any{"schemaVersion": 1, "traceEvents": events})
	require.NoError(t, err)
	b = []byte(strings.NewReplacer(`"Ph"`, `"ph"`, `"Cat"`, `"cat"`, `"Name"`, `"name"`, `"Pid"`, `"pid"`, `"Tid"`, `"tid"`,
		`"Ts"`, `"ts"`, `"Dur"`, `"dur"`).Replace(string(b)))
	require.NoError(t, os.WriteFile(trace, b, 0o600))
	out := filepath.Join(dir, "gpu.pb.gz")
	p := start(t, os.Environ(), "convert", "--out", filepath.Join(dir, "out"), "--pprof", out, trace)
	require.Zero(t, p.exit(t, time.Minute), p.stderr.String())

	f, err := os.Open(out)
	require.NoError(t, err)
	defer f.Close()
	got, err := pprof.Parse(f)
	require.NoError(t, err)
	sums := map[string]int64{}
	for _, s := range got.Sample {
		for i, v := range s.Value {
			sums[got.SampleType[i].Type] += v
		}
	}
	require.Equal(t, map[string]int64{"gpu_time": 150_000, "gpu_energy": 0, "gpu_idle": 400_000}, sums)

	text, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-sample_index=gpu_time", "-traces",
		out).CombinedOutput()
	require.NoError(t, err, string(text))
	require.Contains(t, string(text), "gemm")
	require.Contains(t, string(text), "aten::mm")
	require.NotContains(t, string(text), "cudaLaunchKernel")
}
