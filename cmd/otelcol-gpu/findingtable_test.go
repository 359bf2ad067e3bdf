// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profilefile"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/semconv"
)

var updateTable = flag.Bool("findings.update", false, "write testdata/recorded_traces.md")

// truth is independent knowledge about a trace: from its authors, or from sums over the file's own
// times (MANIFEST.md of the data, reports of TraceLens for its traces).
type truth struct {
	kind   string // of the first finding of the first device; empty: not known
	text   string
	device string // --device
}

var truths = map[string]truth{
	"kineto/hta/execution_trace/benchmark_simple_add_trace.json.gz": {
		kind: semconv.GPUFindingKindSlowRuntimeCalls, text: "the first call starts CUDA: 19.6 s in one call",
	},
	"kineto/hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": {
		kind: semconv.GPUFindingKindNotJudged, text: "no shapes; busy 98.4 % by the union of its activities",
	},
	"kineto/hta/timeline_analysis/sampled_rank-0.json.gz": {text: "sampled: part of the activities was taken out"},
	"kineto/hta/trace_filter/sampled_rank-1.json.gz":      {text: "sampled, as above"},
	"kineto/hta/trace_diff/test/test.json.gz": {
		text: "4,645 copies on the device, 27.9 GB; busy 94 %",
	},
	"kineto/hta/large_integer_trace/rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz": {text: "two events"},
	"kineto/param/dlrm_8ranks/worker1.pt.trace.json.gz": {
		kind: semconv.GPUFindingKindExposedCommunication, text: "waits 11.1 ms for rank 7, by the matched collectives of all ranks",
	},
	"kineto/param/dlrm_8ranks/worker3.pt.trace.json.gz": {kind: semconv.GPUFindingKindExposedCommunication, text: "waits 9.6 ms for rank 7"},
	"kineto/param/dlrm_8ranks/worker7.pt.trace.json.gz": {
		kind: semconv.GPUFindingKindLaunchBound, text: "comes last at 5 of 8 collectives and waits least",
	},
	"kineto/pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz": {
		kind: semconv.GPUFindingKindLoader, text: "the loader: recorded to show it",
	},
	"kineto/pytorch/samples/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz": {
		kind: semconv.GPUFindingKindLaunchBound, text: "the loader is gone",
	},
	"kineto/pytorch/samples/resnet50_num_workers_0/worker0.pt.trace.json.gz": {
		kind: semconv.GPUFindingKindLoader, text: "the loader and a host that is slower by half",
	},
	"kineto/tracelens/b200/eager_trace.json.gz": {
		kind: semconv.GPUFindingKindLaunchBound, text: "an eager run of what is served with graphs",
	},
	"kineto/tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz": {
		kind: semconv.GPUFindingKindLaunchBound, text: "58 of 60 kernels below 10 µs",
	},
	"kineto/tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz": {
		kind: semconv.GPUFindingKindLaunchBound, text: "54 of 60 kernels below 10 µs",
	},
	"kineto/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": {
		text: "busy 92 %; attention at 19 % of the peak is 6 % of the time",
	},
	"kineto/tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz": {
		text: "the first kernels wait for an event of the graph before, which is not in the file",
	},
	"kineto/tracelens/inference/vllm_decode_full/graph_execution.json.gz": {
		kind: semconv.GPUFindingKindNotJudged, text: "one graph, busy 99.8 %",
	},
	"kineto/tracelens_evals/elem_01_add_poor_bw.json": {
		kind: semconv.GPUFindingKindLowEfficiency, text: "a strided addition at 36 % of the bandwidth, nothing else",
	},
	"kineto/tracelens_evals/gemm_01_compute_few_tiles.json": {
		kind: semconv.GPUFindingKindLowEfficiency, text: "a product with too few tiles to fill the device",
		device: "AMD Instinct MI300X",
	},
	"nsys/nsys-ai/healthy_1pct.sqlite": {
		kind: semconv.GPUFindingKindNotJudged, text: "healthy by its name; busy, and its kernels' work is not recorded",
	},
	"nsys/nsys-ai/mock.sqlite": {
		kind: semconv.GPUFindingKindSlowRuntimeCalls, text: "the first launch loads the module, and so does the second",
	},
	"nsys/pipit/saxpy-mpi-cuda_nsys_perlmutter0.sqlite": {
		kind: semconv.GPUFindingKindPageableCopies, text: "3.9 GB to and from pageable memory",
	},
}

// testdata/recorded_traces.md has the first finding of each recorded trace, and the true cause if
// it is known. The test skips without the recorded traces; `go test ./cmd/otelcol-gpu -run
// TestTableOfRecordedTraces -v` prints the table.
func TestTableOfRecordedTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("reads all recorded traces")
	}
	root := recorded.Path(t)
	var b strings.Builder
	b.WriteString(
		"| trace | device | first finding | gain | residual | truth, where it is known |\n|---|--:|---|--:|--:|---|\n")
	seen := map[string]bool{}
	for _, top := range []string{"kineto", "nsys"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, top), func(path string, e fs.DirEntry, err error) error {
			name := strings.TrimPrefix(path, root+string(filepath.Separator))
			switch {
			case err != nil || e.IsDir():
				return err
			case !profilefile.InFolder(path), strings.HasSuffix(name, ".ref.json"), filepath.Base(name) == "truth.json":
				return nil
			}
			seen[name] = true
			row(t, &b, name, path, truths[name])
			return nil
		}))
	}
	for name := range truths {
		assert.True(t, seen[name], "no trace %s", name)
	}
	t.Log("\n" + b.String())

	const golden = "testdata/recorded_traces.md"
	if *updateTable {
		require.NoError(t, os.WriteFile(golden, []byte(b.String()), 0o644))
		return
	}
	table, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, b.String(), string(table),
		"write it again: go test ./cmd/otelcol-gpu -run TestTableOfRecordedTraces -findings.update")
}

func row(t *testing.T, b *strings.Builder, name, path string, known truth) {
	p, err := read(t.Context(), path, kinetoreceiver.Options{Device: known.device, Detail: kinetoreceiver.DetailSteps},
		func(context.Context, ptrace.Traces) error { return nil })
	devices := p.Devices
	label := "`" + name + "`"
	if known.device != "" {
		label += fmt.Sprintf(" `--device %q`", known.device)
	}
	switch {
	case err != nil:
		fmt.Fprintf(b, "| %s | | refused | - | - | no profile |\n", label)
	case len(devices) == 0:
		fmt.Fprintf(b, "| %s | | no activity of a device | - | - | %s |\n", label, known.text)
	}
	for i, d := range devices {
		first := d.Findings[0]
		if i == 0 && known.kind != "" {
			assert.Equal(t, known.kind, first.Kind, "%s: %s", name, first)
		}
		p := d.Parts
		residual := d.Window - p.Computing - p.CommExposed - p.CopyExposed - p.Idle - p.NotRecorded
		for _, c := range d.Idle {
			p.Idle -= c.Time
		}
		residual = residual.Abs() + p.Idle.Abs()
		assert.Zero(t, residual, name)
		gain := "-"
		if first.Gain > 0 {
			gain = fmt.Sprintf("%s, %.3g %%", finding.Duration(int64(first.Gain)), 100*first.Share)
		}
		fmt.Fprintf(b, "| %s | %d | `%s`: %s | %s | %d ns | %s |\n", label, d.Ordinal, first.Kind,
			strings.ReplaceAll(first.Chain[0], "|", "\\|"), gain, residual/time.Nanosecond, known.text)
		label, known.text = "", ""
	}
}
