// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

func recordedTraces(t *testing.T) []string {
	var out []string
	require.NoError(t, filepath.WalkDir(recorded.Path(t, "kineto"), func(path string, _ os.DirEntry, err error) error {
		if trace, ok := strings.CutSuffix(path, ".ref.json"); ok {
			out = append(out, trace)
		}
		return err
	}))
	return out
}

// activityOf reads a file through the receiver and returns the nanoseconds of each device by state,
// and whether the file names its profiler; otherwise activities may be missing.
func activityOf(t *testing.T, path string) (got map[string]map[string]int64, told bool) {
	a := newTest(t, func(c *Config) {
		c.Activity.Get().MaxGap, c.Activity.Get().MaxActivities = 24*time.Hour, 10_000_000
		c.CardinalityLimit = 100_000
	})
	now := time.Now().UnixNano() // later than every file
	_, err := kinetoreceiver.ReadFile(t.Context(), path, kinetoreceiver.Options{Detail: kinetoreceiver.DetailKernels},
		func(_ context.Context, td ptrace.Traces) error {
			a.take(td, now)
			for _, rs := range td.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() { // the device's scope names the timing source
					_, ok := ss.Scope().Attributes().Get("gpu.timing.source")
					told = told || ok
				}
			}
			return nil
		})
	if err != nil {
		t.Skip(err) // the receiver's tests cover rejected files
	}
	got = map[string]map[string]int64{}
	for _, rm := range a.output(now, true).ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Name() != "gpu.activity.time" {
				continue
			}
			for _, p := range m.Sum().DataPoints().All() {
				ordinal, _ := p.Attributes().Get("gpu.device.ordinal")
				state, _ := p.Attributes().Get("gpu.activity.state")
				device := strconv.FormatInt(ordinal.Int(), 10)
				if got[device] == nil {
					got[device] = map[string]int64{}
				}
				got[device][state.Str()] += int64(math.Round(p.DoubleValue() * 1e9))
			}
		}
	}
	return got, told
}

// Compares gaps of real traces with sums by another program (Python, exact decimals): gaps in the
// union of a device's activities whose next activity was launched after the start of the gap.
func TestStarvedTimeOfRecordedTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("recorded traces are read without -short")
	}
	for _, c := range []struct {
		file, device  string
		starved, idle int64
	}{
		{"hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", "0", 1347125, 6227613},
		{"tracelens/b200/eager_trace.json.gz", "0", 72470093, 420603},
		{"tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", "0", 1500603, 1777286 + 727643},
		{"tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz", "2", 2996008, 109220},
		{"tracelens/inference/vllm_decode_full/graph_execution.json.gz", "2", 0, 25473},
	} {
		t.Run(filepath.Base(c.file), func(t *testing.T) {
			devices, _ := activityOf(t, recorded.Path(t, "kineto", c.file))
			got := devices[c.device]
			assert.Equal(t, c.starved, got["starved"])
			assert.Equal(t, c.idle, got["idle"])
		})
	}
}

// Compares real PyTorch traces with numbers that another program computed, to the nanosecond: busy
// and idle time, communication time, its overlap with compute, and exposed communication.
func TestActivityOfRecordedTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("recorded traces are read without -short")
	}
	tested := 0
	for _, path := range recordedTraces(t) {
		b, err := os.ReadFile(path + ".ref.json")
		require.NoError(t, err)
		var ref struct {
			Parsed  bool
			Devices map[string]struct {
				Span int64 `json:"span_ns"`
				Busy int64 `json:"busy_ns"`
				Comm struct {
					Union   int64 `json:"union_ns"`
					Overlap int64 `json:"overlap_ns"`
				}
				Memory int64 `json:"memcpy_memset_union_ns"`
			}
		}
		require.NoError(t, json.Unmarshal(b, &ref))
		if !ref.Parsed || len(ref.Devices) == 0 || ref.Devices["0"].Busy == 0 && len(ref.Devices) == 1 &&
			ref.Devices["0"].Span > 0 {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			got, told := activityOf(t, path)
			if !told {
				assert.Empty(t, got)
				return
			}
			for device, want := range ref.Devices {
				if want.Busy == 0 {
					continue
				}
				tested++
				var busy, comm, overlap, copies int64
				for state, ns := range got[device] {
					switch {
					case state == "idle" || state == "starved":
						continue
					case strings.Contains(state, "communication"):
						comm += ns
						if strings.Contains(state, "compute") {
							overlap += ns
						}
					}
					if strings.Contains(state, "copy") {
						copies += ns
					}
					busy += ns
				}
				assert.Equal(t, want.Busy, busy, "device %s: busy", device)
				// the reference includes only kernels of NCCL, not multimem_all_reduce_kernel
				if filepath.Base(path) == "eager_trace.json.gz" {
					want.Comm.Union = 2141501 // the union including them, by a third program
				}
				assert.Equal(t, want.Comm.Union, comm, "device %s: communication", device)
				assert.Equal(t, want.Comm.Overlap, overlap, "device %s: overlap of communication and compute", device)
				assert.Equal(t, want.Memory, copies, "device %s: copies and memsets", device)
				assert.Equal(t, want.Span-want.Busy, got[device]["idle"]+got[device]["starved"], "device %s: idle", device)
			}
		})
	}
	assert.Greater(t, tested, 8, "devices compared")
}

// One step of a real job of eight ranks. Ranks 7, 5 and 4 arrive last at the collectives (5, 2 and
// 1 of 8), so the others wait for them.
func TestTheRanksThatARealJobWaitsForHaveTheHighestScores(t *testing.T) {
	a := newTest(t, nil)
	now := time.Now().UnixNano()
	for rank := range 8 {
		file := recorded.Path(t, "kineto", "param", "dlrm_8ranks", fmt.Sprintf("worker%d.pt.trace.json.gz", rank))
		opts := kinetoreceiver.Options{Detail: kinetoreceiver.DetailKernels}
		_, err := kinetoreceiver.ReadFile(t.Context(), file, opts, func(_ context.Context, td ptrace.Traces) error {
			for _, rs := range td.ResourceSpans().All() {
				rs.Resource().Attributes().PutStr("gpu.job.id", "j1")
			}
			a.take(td, now)
			return nil
		})
		require.NoError(t, err)
	}
	got := map[int64]float64{}
	for _, rm := range a.output(now, true).ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Name() == "gpu.straggler.score" {
				for _, p := range m.Gauge().DataPoints().All() {
					rank, _ := p.Attributes().Get("gpu.job.rank")
					got[rank.Int()] = p.DoubleValue()
				}
			}
		}
	}
	require.Len(t, got, 8)
	for _, waiting := range []int64{0, 1, 2, 3, 6} {
		for _, late := range []int64{4, 5, 7} {
			assert.Less(t, got[waiting], got[late], "ranks %d and %d", waiting, late)
		}
	}
}
