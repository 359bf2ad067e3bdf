// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"encoding/json"
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
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/profiletracetest"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

type reference struct {
	Devices map[string]struct {
		Activities map[string]int64
		First      int64 `json:"first_ns"`
		Last       int64 `json:"last_ns"`
		Busy       int64 `json:"busy_ns"`
		KernelSum  int64 `json:"kernel_sum_ns"`
		Comm       struct {
			Kernels int64
			Union   int64 `json:"union_ns"`
			Compute int64 `json:"compute_union_ns"`
			Overlap int64 `json:"overlap_ns"`
		}
		Top []struct {
			Name  string
			Count int64
			Sum   int64 `json:"sum_ns"`
		} `json:"top_kernels"`
		Copies map[string]struct {
			Count, Bytes int64
			Sum          int64 `json:"sum_ns"`
		}
		Streams map[string]int64
	}
	NVTX []struct {
		Text  string
		Count int64
		Sum   int64 `json:"sum_ns"`
	} `json:"nvtx_top"`
}

func TestReferenceNumbersAtDetailKernels(t *testing.T) {
	paths, err := filepath.Glob(recorded.Path(t, "nsys", "*", "*.sqlite"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			var ref reference
			b, err := os.ReadFile(path + ".ref.json")
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &ref))
			devices := map[int64]map[string][]profiletracetest.Span{}
			host := map[string][]profiletracetest.Span{}
			st, err := ReadFile(t.Context(), path, Options{Detail: emit.LevelKernels},
				func(_ context.Context, td ptrace.Traces) error {
					require.NoError(t, conformance.TracesFrom("nsys", td))
					for _, s := range profiletracetest.Spans(td) {
						kind := s.Text("gpu.operation.type")
						if kind == "" || kind == "step" {
							host[s.Name] = append(host[s.Name], s)
							continue
						}
						d := s.Attributes["gpu.device.ordinal"].(int64)
						if devices[d] == nil {
							devices[d] = map[string][]profiletracetest.Span{}
						}
						devices[d][kind] = append(devices[d][kind], s)
					}
					return nil
				})
			require.NoError(t, err)
			t.Log(st.Skipped, st.Faults)
			require.Len(t, devices, len(ref.Devices))
			for _, d := range st.Devices {
				p := d.Parts
				assert.Zero(t, d.Window-p.Computing-p.CommExposed-p.CopyExposed-p.Idle-p.NotRecorded, "residual of the window")
				for _, c := range d.Idle {
					p.Idle -= c.Time
				}
				assert.Zero(t, p.Idle, "residual of idle time")
				assert.NotEmpty(t, d.Findings)
				t.Logf("%s: %s", d.Window, d.Findings[0])
			}
			for id, want := range ref.Devices {
				n, _ := strconv.ParseInt(id, 10, 64)
				d := devices[n]
				kernels := slices.Concat(d["kernel"], d["collective"])
				all := slices.Concat(kernels, d["copy"], d["memset"])
				assert.Equal(t, want.Activities["kernel"], int64(len(kernels)))
				assert.Equal(t, want.Activities["memcpy"], int64(len(d["copy"])))
				assert.Equal(t, want.Activities["memset"], int64(len(d["memset"])))
				assert.Equal(t, want.Busy, profiletracetest.Union(all))
				assert.Equal(t, want.Last-want.First, slices.MaxFunc(all,
					func(a, b profiletracetest.Span) int { return int(a.End - b.End) }).End-all[0].Start)
				assert.Equal(t, want.KernelSum, profiletracetest.Sum(kernels))
				assert.Equal(t, want.Comm.Kernels, int64(len(d["collective"])))
				assert.Equal(t, want.Comm.Union, profiletracetest.Union(d["collective"]))
				assert.Equal(t, want.Comm.Compute, profiletracetest.Union(d["kernel"]))
				for _, w := range want.Top { // the product's own short names
					var same []profiletracetest.Span
					for _, g := range kernels {
						if g.Name == w.Name {
							same = append(same, g)
						}
					}
					assert.Equal(t, w.Count, int64(len(same)), w.Name)
					assert.Equal(t, w.Sum, profiletracetest.Sum(same), w.Name)
				}
				streams := map[string]int64{}
				for _, g := range all {
					kind := strings.NewReplacer("collective", "kernel", "copy", "memcpy").Replace(g.Text("gpu.operation.type"))
					streams[strconv.FormatInt(g.Int("gpu.stream.id"), 10)+"/"+kind]++
				}
				assert.Equal(t, want.Streams, streams)
				copies := profiletracetest.Copies(d["copy"])
				require.Len(t, copies, len(want.Copies))
				for name, w := range want.Copies {
					assert.Equal(t, w.Count, int64(len(copies[name])), name)
					assert.Equal(t, w.Bytes, profiletracetest.Bytes(copies[name]), name)
					assert.Equal(t, w.Sum, profiletracetest.Sum(copies[name]), name)
				}
			}
			for _, w := range ref.NVTX {
				if strings.Contains(w.Text, ", ") { // suffixes that make PyTorch's operators unique are removed
					continue
				}
				assert.Equal(t, w.Count, int64(len(host[w.Text])), w.Text)
				assert.Equal(t, w.Sum, profiletracetest.Sum(host[w.Text]), w.Text)
			}
		})
	}
}
