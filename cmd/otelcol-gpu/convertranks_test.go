// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// Compares eight real ranks with results computed from the files' own times.
func TestAFolderOfRanksIsOneJob(t *testing.T) {
	dir, lastAt, heldUp := recorded.Ranks(t)
	files, err := filepath.Glob(filepath.Join(dir, "worker?.pt.trace.json.gz"))
	require.NoError(t, err)
	stdout, stderr, err := inProcess(t, append([]string{"convert", "--detail", "steps", "--out", t.TempDir()},
		files...)...)
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "8 ranks of one job of 8: not judged: 1 step of 8 ranks")
	require.Contains(t, stdout, "it arrives last at 5 of 8 collectives")
	_, table, found := strings.Cut(stdout, "CAUSED")
	require.True(t, found)
	rows := strings.Split(table, "\n")[1:9]
	for rank, row := range rows {
		require.Contains(t, row, fmt.Sprintf(" %d of 8 ", lastAt[fmt.Sprint(rank)]), row)
		if held := heldUp[fmt.Sprint(rank)]; held > 0 {
			require.Regexp(t, fmt.Sprintf(` %.1f\d ms +\S+( ms| µs)? +worker%d`, held-0.04, rank), row) // clocks are aligned within a few µs
		}
	}
}

// Rank 1 computes for longer before every collective; the rule must not name rank 0, which
// communicates for longer.
func TestWorkOfTheLateRankIsReported(t *testing.T) {
	dir := t.TempDir()
	for rank := range 2 {
		var events []string
		event := func(cat, name string, ts, dur, stream int) {
			events = append(events, fmt.Sprintf(
				`{"ph":"X","cat":%q,"name":%q,"ts":%d,"dur":%d,"pid":%d,"tid":%d,"args":{"device":%d,"stream":%d}}`,
				cat, name, ts, dur, rank, stream, rank, stream))
		}
		for k := range 10 {
			at, compute := 1000*k+rank*5000, 300+rank*400 // µs; the clocks of the two are 5 ms apart
			event("kernel", "gemm", at, compute, 7)
			event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at+compute, 900-compute, 7)
		}
		writeFile(t, dir, fmt.Sprintf("rank%d.json", rank), fmt.Sprintf(
			`{"distributedInfo":{"rank":%d,"world_size":2},"traceEvents":[%s]}`, rank, strings.Join(events, ",")))
	}
	out := t.TempDir()
	stdout, stderr, err := inProcess(t, "convert", "--out", out, dir)
	require.NoError(t, err, stderr)
	for name, of := range map[string]int{"spans.json": 1, "trace.json": 0} {
		text, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		require.Equal(t, of, strings.Count(string(text), "ranks of a job"), name)
	}
	require.Contains(t, stdout,
		"2 ranks of one job of 2: rank 1 of 2 is late in 10 of 10 steps, by 400µs on average (by chance: p = 0.002)"+
			": it arrives last at 10 of 10 collectives "+
			"(10 × ncclDevKernel_AllReduce_Sum_f32_RING_LL), and they wait 4.00 ms because of it, 4.00 ms each. Before those it "+
			"has, against the others' median, 4.00 ms more of computation (the same kernels take 2.33 times as long as there: a "+
			"lower clock, larger inputs, or another process on the device). Of the others' communication 67 % is waiting for a late rank.")
}

// Files that do not state their rank are named; otherwise the missing comparison would go
// unnoticed.
func TestRanksWithoutARankAreReported(t *testing.T) {
	dir := t.TempDir()
	for rank, name := range []string{"a", "b", "c"} {
		writeFile(t, dir, name+".json", fmt.Sprintf(`{"traceEvents":[
			{"ph":"X","cat":"kernel","name":%q,"ts":%d,"dur":100,"pid":0,"tid":7,"args":{"device":0,"stream":7}}]}`,
			[]string{"ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "gemm"}[rank], 10+rank))
	}
	stdout, stderr, err := inProcess(t, "convert", "--out", t.TempDir(), dir)
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "\n2 profiles have collectives but no rank, so they are not compared")
	stdout, _, err = inProcess(t, "convert", "--out", t.TempDir(), filepath.Join(dir, "a.json"), filepath.Join(dir, "c.json"))
	require.NoError(t, err)
	require.NotContains(t, stdout, "not compared")
}

// Frames of a call stack are not spans, but still show the activity of the late rank's host;
// kernels that only one rank runs are named.
func TestTheLateRanksFramesAndKernelsAreReported(t *testing.T) {
	const steps = 10
	for name, want := range map[string]string{
		"frames": "80.00 ms more with its device idle, while its host was mostly in train.py(88): log_metrics",
		"more":   "80.00 ms more of computation (it runs more kernels, most of all bmm)",
	} {
		dir := t.TempDir()
		for rank := range 2 {
			var events []string
			event := func(cat, name string, ts, dur, tid int, args string) {
				events = append(events, fmt.Sprintf(`{"ph":"X","cat":%q,"name":%q,"ts":%d,"dur":%d,"pid":%d,"tid":%d,"args":{%s}}`,
					cat, name, ts, dur, rank, tid, args))
			}
			device := func(corr int) string {
				return fmt.Sprintf(`"device":%d,"stream":7,"correlation":%d`, rank, corr)
			}
			for k := range steps {
				at, collective := 10_000*k, 10_000*k+9_100
				event("kernel", "gemm", at+100, 1000, 7, device(3*k))
				event("cuda_runtime", "cudaLaunchKernel", at, 10, 1, fmt.Sprintf(`"correlation":%d`, 3*k))
				switch {
				case rank == 0:
					collective = at + 1_100
				case name == "more":
					event("kernel", "bmm", at+1_100, 8_000, 7, device(3*k+1))
				default:
					event("python_function", "train.py(88): log_metrics", at+1_100, 7_980, 1, "")
					event("python_function", "<built-in function write>", at+1_200, 7_000, 1, "")
				}
				event("cuda_runtime", "cudaLaunchKernel", collective-15, 10, 1, fmt.Sprintf(`"correlation":%d`, 3*k+2))
				event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", collective, at+10_000-collective, 7, device(3*k+2))
			}
			writeFile(t, dir, fmt.Sprintf("rank%d.json", rank), fmt.Sprintf(
				`{"distributedInfo":{"rank":%d,"world_size":2},"traceEvents":[%s]}`, rank, strings.Join(events, ",")))
		}
		stdout, stderr, err := inProcess(t, "convert", "--out", t.TempDir(), dir)
		require.NoError(t, err, stderr)
		require.Regexp(t, "rank 1 of \\d+ is late in", stdout)
		require.Contains(t, stdout, want)
	}
}
