// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/exporter/exportertest"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
)

// converted reads a profiler's file with the kineto receiver's code, exports it, and returns the
// path.
func converted(t *testing.T, from string) (string, error) {
	cfg := config(t)
	tr, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
	_, err := kinetoreceiver.ReadFile(t.Context(), from, kinetoreceiver.Options{Detail: kinetoreceiver.DetailKernels},
		tr.ConsumeTraces)
	require.NoError(t, stop())
	return cfg.Path, err
}

// Every recorded trace is valid, contains all device activities that an independent reader counted,
// with their total time, and so does the file that is written after reading it as a profiler's.
func TestRecordedTracesSurviveARoundTrip(t *testing.T) {
	root := recorded.Path(t, "kineto")
	tested := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".ref.json") ||
			!strings.Contains(filepath.Base(path), ".json") {
			return err
		}
		name, _ := filepath.Rel(root, path)
		t.Run(name, func(t *testing.T) {
			if info, err := d.Info(); err == nil && testing.Short() && info.Size() > 50<<10 {
				t.Skip("large traces are not read with -short")
			}
			once, err := converted(t, path)
			if errors.Is(err, kinetoreceiver.ErrNotTrace) {
				t.Skip("no trace")
			}
			require.NoError(t, err)
			a := read(t, once)
			against(t, path+".ref.json", a)
			again, err := converted(t, once)
			require.NoError(t, err)
			b := read(t, again)
			against(t, path+".ref.json", b)
			assert.Equal(t, a.Distributed, b.Distributed)
			for ordinal, model := range a.Models {
				assert.Equal(t, model, b.Models[ordinal])
			}
			tested++
		})
		return nil
	})
	require.NoError(t, err)
	assert.Positive(t, tested)
}

// against compares a file with reference values: number of activities and sum of kernel durations
// per device.
func against(t *testing.T, path string, f chrometracetest.File) {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var ref struct {
		Devices map[string]struct {
			Activities map[string]int64
			KernelSum  int64 `json:"kernel_sum_ns"`
		}
	}
	require.NoError(t, json.Unmarshal(data, &ref))
	count, sum := map[string]int64{}, map[string]int64{}
	for _, r := range f.Of("X") {
		if r.Cat != "kernel" && r.Cat != "gpu_memcpy" && r.Cat != "gpu_memset" {
			continue
		}
		device := strconv.Itoa(int(r.Args["device"].(float64)))
		count[device]++
		if r.Cat == "kernel" {
			sum[device] += r.Dur
		}
	}
	for device, want := range ref.Devices {
		var n int64
		for _, k := range want.Activities {
			n += k
		}
		assert.Equal(t, n, count[device], "device %s", device)
		assert.Equal(t, want.KernelSum, sum[device], "device %s", device)
	}
	assert.LessOrEqual(t, len(count), len(ref.Devices), cmp.Or(path))
}

// Two ranks in one file have separate processes.
func TestSeveralFilesShareOneTrace(t *testing.T) {
	root := recorded.Path(t, "kineto")
	cfg := config(t)
	tr, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
	for _, f := range []string{"hta/timeline_analysis/sampled_rank-0.json.gz", "hta/trace_filter/sampled_rank-1.json.gz"} {
		_, err := kinetoreceiver.ReadFile(t.Context(), filepath.Join(root, f),
			kinetoreceiver.Options{Detail: kinetoreceiver.DetailKernels}, tr.ConsumeTraces)
		require.NoError(t, err)
	}
	require.NoError(t, stop())
	f := read(t, cfg.Path)
	processes := map[any]bool{}
	for _, m := range f.Of("M") {
		if m.Name == "process_name" {
			processes[m.Args["name"]] = true
		}
	}
	assert.Equal(t, map[any]bool{
		"pytorch rank 0": true, "pytorch rank 1": true,
		"device pytorch rank 0 GPU 0": true, "device pytorch rank 1 GPU 1": true, // with their counters
	}, processes)
	assert.Empty(t, f.Distributed, "the ranks differ")
}

func TestNsightExportsAreDrawnWithoutAFault(t *testing.T) {
	files, err := filepath.Glob(recorded.Path(t, "nsys/*/*.sqlite"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, from := range files {
		if recorded.LeftOut(from) {
			continue
		}
		cfg := config(t)
		tr, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
		_, err := nsysreceiver.ReadFile(t.Context(), from, nsysreceiver.Options{Detail: kinetoreceiver.DetailKernels},
			tr.ConsumeTraces)
		require.NoError(t, err)
		require.NoError(t, stop())
		assert.NotEmpty(t, read(t, cfg.Path).Of("f"), from)
	}
}

// An export without a session start has no base time, but its spans must still have times.
func TestAllSpansOfAnExportWithoutASessionStartAreDrawn(t *testing.T) {
	cfg := config(t)
	tr, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
	st, err := nsysreceiver.ReadFile(t.Context(), recorded.Path(t, "nsys/nsys-ai/healthy_1pct.sqlite"),
		nsysreceiver.Options{Detail: kinetoreceiver.DetailKernels}, tr.ConsumeTraces)
	require.NoError(t, err)
	require.NoError(t, stop())
	assert.Len(t, read(t, cfg.Path).Of("X"), int(st.Spans))
}
