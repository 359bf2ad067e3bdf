// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace_test

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/stepcsv"
	"github.com/otelgpu/otelgpu/gpuspan/train"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
)

// A training loop on a simulated device with two active windows writes two valid traces that
// contain every span, and CSV rows that add up.
func TestWindowsAndRowsOfALoopOfTheLibrary(t *testing.T) {
	dir := t.TempDir()
	traced, err := chrometrace.NewExporter(filepath.Join(dir, "traces"), chrometrace.WithWorker("w"))
	require.NoError(t, err)
	rows, err := stepcsv.NewExporter(filepath.Join(dir, "steps.csv"), stepcsv.WithPhases("eval"))
	require.NoError(t, err)
	all := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(traced), sdktrace.WithBatcher(rows),
		sdktrace.WithSyncer(all))
	gpu := simgpu.New(nil)
	prof, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(tp))
	require.NoError(t, err)
	handle := gpu.Stream(0)
	stream := prof.Stream(handle, "train")
	gemm := gpuspan.NewOperation("gemm")
	loop := train.NewLoop(prof, "train", stream, train.Items("image"),
		train.Schedule{SkipFirst: 1, Wait: 2, Warmup: 1, Active: 2, Repeat: 2})
	n := 0
	for ctx, step := range loop.Steps(t.Context()) {
		if n++; n == 14 {
			break
		}
		forward := step.Phase(train.Forward)
		x := gemm.Start(ctx, stream)
		gpu.Launch(handle, simgpu.Kernel{FLOPs: 1e11, Precision: gpuspan.BF16})
		x.EndWith(gpuspan.Work{FLOPs: 1e11, Precision: gpuspan.BF16})
		forward.End()
		step.SetItems(32)
	}
	require.NoError(t, prof.Flush(t.Context()))
	require.NoError(t, prof.Shutdown(t.Context()))
	spans := len(all.GetSpans())
	require.NoError(t, tp.Shutdown(t.Context()))

	files := chrometracetest.Folder(t, filepath.Join(dir, "traces"))
	require.Len(t, files, 2, "two windows")
	drawn, steps := map[any]bool{}, map[string][]string{}
	for path, f := range files {
		on, tracks := map[any]chrometracetest.Record{}, f.Tracks()
		for _, r := range f.Of("X") {
			drawn[r.Args["span_id"]] = true
			if strings.HasPrefix(r.Name, "ProfilerStep#") {
				track, _, _ := strings.Cut(tracks[[2]int64{r.PID, r.TID}], " (") // host intervals of two steps may overlap
				steps[path] = append(steps[path], track+" "+r.Name)
				if r.Cat == "gpu_user_annotation" {
					on[r.Args["span_id"]] = r
				}
			}
		}
		n := 0
		for _, g := range f.Of("X") {
			if g.Name == "gemm" {
				n++
				s := on[g.Args["parent_span_id"]]
				// Each step is converted to wall-clock time separately, on a busy machine with
				// errors of tens of microseconds.
				require.GreaterOrEqual(t, g.Time, s.Time-200_000, "as the device ran the step")
				require.LessOrEqual(t, g.Time+g.Dur, s.Time+s.Dur+200_000)
			}
		}
		require.Equal(t, 2, n)
		require.Len(t, f.Of("s"), 4, "an arrow from the step on the host to each section")
	}
	require.Len(t, drawn, spans, "every span is in one of the files")
	require.ElementsMatch(t, [][]string{
		{
			"steps of train ProfilerStep#5", "steps of train ProfilerStep#6", "GPU 0 steps of train ProfilerStep#5",
			"GPU 0 steps of train ProfilerStep#6",
		},
		{
			"steps of train ProfilerStep#10", "steps of train ProfilerStep#11", "GPU 0 steps of train ProfilerStep#10",
			"GPU 0 steps of train ProfilerStep#11",
		},
	}, sortedEach(steps))

	data, err := os.ReadFile(filepath.Join(dir, "steps.csv"))
	require.NoError(t, err)
	records, err := csv.NewReader(strings.NewReader(string(data))).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 5, string(data))
	for i, r := range records[1:] {
		require.Equal(t, fmt.Sprint([]int{5, 6, 10, 11}[i]), r[0])
		sum := new(big.Rat)
		for k, name := range records[0] {
			v, _ := new(big.Rat).SetString("0" + r[k])
			switch name {
			case "t_step_ms", "t_overlap_ms":
				sum.Sub(sum, v)
			default:
				if strings.HasPrefix(name, "t_") {
					sum.Add(sum, v)
				}
			}
		}
		require.Zero(t, sum.Sign(), "row %v", r)
	}
}

// sortedEach sorts host tracks before device tracks, and steps in order.
func sortedEach(m map[string][]string) [][]string {
	var out [][]string
	for _, v := range m {
		slices.SortFunc(v, func(a, b string) int {
			return cmp.Or(-cmp.Compare(a[:3], b[:3]), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		})
		out = append(out, v)
	}
	return out
}
