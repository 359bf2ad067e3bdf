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

	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/internal/semconvtest"
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

type got struct {
	start, end int64
	name       string
	attrs      map[string]any
}

func sum(l []got) (ns int64) {
	for _, g := range l {
		ns += g.end - g.start
	}
	return ns
}

func union(l []got) int64 {
	slices.SortFunc(l, func(a, b got) int { return int(a.start - b.start) })
	var total, end int64
	for i, g := range l {
		if i == 0 || g.start > end {
			total += g.end - g.start
			end = g.end
		} else if g.end > end {
			total += g.end - end
			end = g.end
		}
	}
	return total
}

var directions = map[string]string{
	"HtoD": "host_to_device", "DtoH": "device_to_host", "DtoD": "device_to_device", "HtoH": "host_to_host", "PtoP": "peer_to_peer",
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
			devices := map[int64]map[string][]got{}
			host := map[string][]got{}
			st, err := ReadFile(t.Context(), path, Options{Detail: DetailKernels}, func(_ context.Context, td ptrace.Traces) error {
				require.NoError(t, semconvtest.CheckTraces(td))
				for _, rs := range td.ResourceSpans().All() {
					for _, ss := range rs.ScopeSpans().All() {
						for _, s := range ss.Spans().All() {
							a := s.Attributes().AsRaw()
							g := got{int64(s.StartTimestamp()), int64(s.EndTimestamp()), s.Name(), a}
							kind, ok := a["gpu.operation.type"].(string)
							if !ok || kind == "step" {
								host[s.Name()] = append(host[s.Name()], g)
								continue
							}
							d := a["gpu.device.ordinal"].(int64)
							if devices[d] == nil {
								devices[d] = map[string][]got{}
							}
							devices[d][kind] = append(devices[d][kind], g)
						}
					}
				}
				return nil
			})
			require.NoError(t, err)
			t.Log(st.Skipped, st.Faults)
			require.Len(t, devices, len(ref.Devices))
			for id, want := range ref.Devices {
				n, _ := strconv.ParseInt(id, 10, 64)
				d := devices[n]
				kernels := slices.Concat(d["kernel"], d["collective"])
				all := slices.Concat(kernels, d["copy"], d["memset"])
				assert.Equal(t, want.Activities["kernel"], int64(len(kernels)))
				assert.Equal(t, want.Activities["memcpy"], int64(len(d["copy"])))
				assert.Equal(t, want.Activities["memset"], int64(len(d["memset"])))
				assert.Equal(t, want.Busy, union(all))
				assert.Equal(t, want.Last-want.First, slices.MaxFunc(all, func(a, b got) int { return int(a.end - b.end) }).end-all[0].start)
				assert.Equal(t, want.KernelSum, sum(kernels))
				assert.Equal(t, want.Comm.Kernels, int64(len(d["collective"])))
				assert.Equal(t, want.Comm.Union, union(d["collective"]))
				assert.Equal(t, want.Comm.Compute, union(d["kernel"]))
				for _, w := range want.Top { // the product's own short names
					var same []got
					for _, g := range kernels {
						if g.name == w.Name {
							same = append(same, g)
						}
					}
					assert.Equal(t, w.Count, int64(len(same)), w.Name)
					assert.Equal(t, w.Sum, sum(same), w.Name)
				}
				streams := map[string]int64{}
				for _, g := range all {
					kind := g.attrs["gpu.operation.type"].(string)
					kind = strings.NewReplacer("collective", "kernel", "copy", "memcpy").Replace(kind)
					streams[strconv.FormatInt(g.attrs["gpu.stream.id"].(int64), 10)+"/"+kind]++
				}
				assert.Equal(t, want.Streams, streams)
				copies := map[string][]got{}
				for _, g := range d["copy"] {
					dir, _ := g.attrs["gpu.copy.direction"].(string)
					copies[dir] = append(copies[dir], g)
				}
				require.Len(t, copies, len(want.Copies))
				for name, w := range want.Copies {
					var bytes int64
					for _, g := range copies[directions[name]] {
						bytes += g.attrs["gpu.io.size"].(int64)
					}
					assert.Equal(t, w.Count, int64(len(copies[directions[name]])), name)
					assert.Equal(t, w.Bytes, bytes, name)
					assert.Equal(t, w.Sum, sum(copies[directions[name]]), name)
				}
			}
			for _, w := range ref.NVTX {
				if strings.Contains(w.Text, ", ") { // PyTorch's operators lose what makes them unique
					continue
				}
				assert.Equal(t, w.Count, int64(len(host[w.Text])), w.Text)
				assert.Equal(t, w.Sum, sum(host[w.Text]), w.Text)
			}
		})
	}
}
