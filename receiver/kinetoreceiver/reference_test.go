// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/profiletrace/profiletracetest"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

// reference contains results that another program computed from a trace.
type reference struct {
	Parsed  bool
	Kineto  *bool
	Base    *int64 `json:"baseTimeNanoseconds"`
	XEvents int64  `json:"x_events"`
	Steps   []struct {
		Step int64
		TS   int64 `json:"ts_ns"`
		Dur  int64 `json:"dur_ns"`
	} `json:"profiler_steps"`
	Devices map[string]struct {
		Activities map[string]int64
		First      int64 `json:"first_ts_ns"`
		Last       int64 `json:"last_end_ns"`
		Busy       int64 `json:"busy_ns"`
		Idle       int64 `json:"idle_ns"`
		KernelSum  int64 `json:"kernel_sum_ns"`
		Kernel     int64 `json:"kernel_union_ns"`
		Memory     int64 `json:"memcpy_memset_union_ns"`
		Comm       struct {
			Kernels int64
			Sum     int64 `json:"sum_ns"`
			Union   int64 `json:"union_ns"`
			Compute int64 `json:"compute_union_ns"`
			Overlap int64 `json:"overlap_ns"`
		}
		Top []struct {
			Name  string
			Count int64
			Sum   int64 `json:"sum_ns"`
		} `json:"top_kernels"`
		Streams map[string]struct {
			Kernel, Memcpy, Memset int64
			Busy                   int64 `json:"busy_ns"`
			Sum                    int64 `json:"sum_ns"`
		}
		Copies map[string]struct {
			Count int64
			Bytes int64
			Sum   int64 `json:"sum_ns"`
		}
		CopiesByName map[string]struct{ Count int64 } `json:"copies_by_name"`
		Memset       struct {
			Count, Bytes int64
			Sum          int64 `json:"sum_ns"`
		}
		StepBusy map[string]int64 `json:"step_gpu_busy_in_cpu_window_ns"`
	}
	Launch struct {
		Correlation map[string]int64
	}
}

func references(t testing.TB, sub string) map[string]reference {
	root := recorded.Path(t, sub)
	out := map[string]reference{}
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".ref.json") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || recorded.LeftOut(strings.TrimSuffix(path, ".ref.json")) {
			return err
		}
		var r reference
		if err := json.Unmarshal(b, &r); err != nil {
			return err
		}
		out[strings.TrimSuffix(path, ".ref.json")] = r
		return nil
	}))
	require.NotEmpty(t, out)
	return out
}

func read(t testing.TB, path string, o Options) ([]ptrace.Traces, Stats) {
	var batches []ptrace.Traces
	st, err := ReadFile(t.Context(), path, o, func(_ context.Context, td ptrace.Traces) error {
		batches = append(batches, td)
		return nil
	})
	require.NoError(t, err)
	return batches, st
}

func spansOf(batches []ptrace.Traces) []ptrace.Span {
	var out []ptrace.Span
	for _, td := range batches {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

func TestReferenceNumbersAtDetailKernels(t *testing.T) {
	for path, ref := range references(t, "kineto") {
		if ref.Kineto != nil && !*ref.Kineto {
			continue
		}
		t.Run(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			batches, _ := read(t, path, Options{Detail: DetailKernels})
			base := int64(0)
			if ref.Base != nil {
				base = *ref.Base
			}
			for _, td := range batches {
				require.NoError(t, conformance.TracesFrom("kineto", td))
			}
			devices := map[int64]map[string][]profiletracetest.Span{}
			var steps []profiletracetest.Span
			var launched int64
			for _, td := range batches {
				for _, s := range profiletracetest.Spans(td) {
					switch kind := s.Text("gpu.operation.type"); kind {
					case "":
					case "step":
						steps = append(steps, s)
					default:
						if _, ok := s.Attributes["gpu.launch.delay"]; ok {
							launched++
						}
						d := s.Attributes["gpu.device.ordinal"].(int64)
						if devices[d] == nil {
							devices[d] = map[string][]profiletracetest.Span{}
						}
						devices[d][kind] = append(devices[d][kind], s)
					}
				}
			}
			require.Len(t, steps, len(ref.Steps))
			slices.SortFunc(steps, func(a, b profiletracetest.Span) int { return int(a.Start - b.Start) })
			for i, want := range ref.Steps {
				assert.Equal(t, want.Step, steps[i].Attributes["gpu.step.index"])
				assert.Equal(t, want.TS, steps[i].Start-base)
				assert.Equal(t, want.Dur, steps[i].End-steps[i].Start)
			}
			matched := ref.Launch.Correlation["matched"]
			// tied by external ids, which the reference does not follow
			if filepath.Base(path) == "gemm_01_compute_few_tiles.json" {
				matched = 20
			}
			assert.Equal(t, matched, launched, "activities with a launch")
			require.Len(t, devices, len(ref.Devices))
			for id, want := range ref.Devices {
				n, err := strconv.ParseInt(id, 10, 64)
				require.NoError(t, err)
				d := devices[n]
				kernels := slices.Concat(d["kernel"], d["collective"])
				all := slices.Concat(kernels, d["copy"], d["memset"])
				assert.Equal(t, want.Activities["kernel"], int64(len(kernels)))
				assert.Equal(t, want.Activities["memcpy"], int64(len(d["copy"])))
				assert.Equal(t, want.Activities["memset"], int64(len(d["memset"])))
				more, time := withoutLibrary(t, path)
				assert.Equal(t, want.Comm.Kernels+more, int64(len(d["collective"])))
				assert.Equal(t, want.Comm.Sum+time, profiletracetest.Sum(d["collective"]))
				assert.Equal(t, want.Busy, profiletracetest.Union(all), "busy")
				assert.Equal(t, want.Kernel, profiletracetest.Union(kernels), "kernel union")
				assert.Equal(t, want.KernelSum, profiletracetest.Sum(kernels), "kernel sum")
				assert.Equal(t, want.Memset.Sum, profiletracetest.Sum(d["memset"]))
				streams := map[int64][]profiletracetest.Span{}
				for _, g := range all {
					n := g.Int("gpu.stream.id")
					streams[n] = append(streams[n], g)
				}
				require.Len(t, streams, len(want.Streams))
				for s, w := range want.Streams {
					n, _ := strconv.ParseInt(s, 10, 64)
					assert.Equal(t, w.Busy, profiletracetest.Union(streams[n]), "stream %s", s)
					assert.Equal(t, w.Sum, profiletracetest.Sum(streams[n]), "stream %s", s)
				}
				copies := profiletracetest.Copies(d["copy"])
				require.Len(t, copies, len(want.Copies))
				for name, w := range want.Copies {
					assert.Equal(t, w.Count, int64(len(copies[name])), name)
					assert.Equal(t, w.Bytes, profiletracetest.Bytes(copies[name]), name)
					assert.Equal(t, w.Sum, profiletracetest.Sum(copies[name]), name)
				}
				for _, w := range want.Top {
					var same []profiletracetest.Span
					for _, g := range kernels {
						full := g.Text("gpu.kernel.name")
						if full == w.Name || len(w.Name) > 2048 && full == w.Name[:2048] {
							same = append(same, g)
						}
					}
					assert.Equal(t, w.Count, int64(len(same)), w.Name)
					assert.Equal(t, w.Sum, profiletracetest.Sum(same), w.Name)
				}
			}
		})
	}
}

// withoutLibrary returns the number and total time in ns of communication kernels that the
// references, which search names for nccl, classify as computation: all-reduce over the multicast
// of PyTorch's symmetric memory, in one recorded trace.
func withoutLibrary(t *testing.T, path string) (n, sum int64) {
	t.Helper()
	if !strings.HasSuffix(path, "b200/eager_trace.json.gz") {
		return 0, 0
	}
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var trace struct {
		Events []struct {
			Cat, Name string
			Dur       json.Number
		} `json:"traceEvents"`
	}
	require.NoError(t, json.NewDecoder(z).Decode(&trace))
	for _, e := range trace.Events {
		if e.Cat == "kernel" && strings.Contains(e.Name, "multimem_all_reduce_kernel") {
			us, err := e.Dur.Float64()
			require.NoError(t, err)
			n, sum = n+1, sum+int64(math.Round(us*1000))
		}
	}
	require.Equal(t, int64(73), n)
	return n, sum
}
