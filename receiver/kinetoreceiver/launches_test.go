// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

// recordedLaunch has the arguments of a kernel.
type recordedLaunch struct {
	Device    int64
	Grid      [3]int64
	Block     [3]int64
	Registers int64   `json:"registers per thread"`
	Shared    int64   `json:"shared memory"`
	Blocks    float64 `json:"blocks per SM"`
	Occupancy *int64  `json:"est. achieved occupancy %"`
}

// TestOccupancyEqualsTheProfilers compares every recorded launch with what PyTorch's profiler
// computed for it with NVIDIA's cuda_occupancy.h, in whole percents. The profiler writes 0 for
// blocks with 48 KiB or more.
func TestOccupancyEqualsTheProfilers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir := recorded.Path(t, "kineto")
	launches, unknown := 0, 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".json.gz") || strings.Contains(path, "samples") {
			return err
		}
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		var file struct {
			Devices json.RawMessage `json:"deviceProperties"`
			Events  []struct {
				Cat  string
				Args json.RawMessage
			} `json:"traceEvents"`
		}
		if json.NewDecoder(z).Decode(&file) != nil || file.Devices == nil {
			return nil
		}
		limits := limitsOf(file.Devices)
		for _, e := range file.Events {
			var k recordedLaunch
			if !strings.EqualFold(e.Cat, "kernel") || json.Unmarshal(e.Args, &k) != nil || k.Occupancy == nil {
				continue
			}
			l := occupancy.Launch{
				Blocks: k.Grid[0] * k.Grid[1] * k.Grid[2], Threads: k.Block[0] * k.Block[1] * k.Block[2],
				Registers: k.Registers, SharedMemory: k.Shared,
			}
			_, share, _ := limits[k.Device].Waves(l)
			launches++
			if *k.Occupancy == 0 && k.Shared >= 48<<10 {
				unknown++
				assert.Positive(t, share)
				continue
			}
			if math.Abs(100*share-float64(*k.Occupancy)) > 0.5001 {
				assert.Failf(t, "differs", "%s: %+v: %.3f %%, recorded %d %%", path, k, 100*share, *k.Occupancy)
			}
			assert.InDelta(t, k.Blocks, limits[k.Device].PerMultiprocessor(l.Blocks), 1e-6*max(1, k.Blocks))
		}
		return nil
	}))
	assert.Greater(t, launches, 20_000)
	assert.Greater(t, unknown, 500)
}

// kernelsOf returns the kernels of a file's first device by name.
func kernelsOf(t *testing.T, path string) map[string]facts.Kernel {
	t.Helper()
	st, err := ReadFile(t.Context(), path, Options{}, func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	out := map[string]facts.Kernel{}
	for _, k := range st.Devices[0].ByKernel {
		if _, ok := out[k.Name]; !ok { // the longest of a template
			out[k.Name] = k
		}
	}
	return out
}

// The numbers are a Python program's, of the recorded launches and the specifications of an H100.
func TestKernelsStateHowTheyFillTheDevice(t *testing.T) {
	kernels := kernelsOf(t, recorded.Path(t, "kineto", "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz"))
	for name, want := range map[string][4]float64{ // registers, blocks for each multiprocessor, waves, occupancy
		"cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8": {88, 0.606061, 0.121212, 0.0378788},
		"cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2":      {230, 1.81818, 1.81818, 0.125},
		"flash_fwd_kernel":             {255, 0.121212, 0.0606061, 0.00757576},
		"vectorized_layer_norm_kernel": {34, 1.06818, 0.0890152, 0.0667614},
		"indexSelectLargeIndex":        {32, 4.27273, 0.267045, 0.267045},
	} {
		k, ok := kernels[name]
		require.True(t, ok, name)
		assert.InDelta(t, want[0], k.Registers, 0, name)
		assert.InEpsilon(t, want[1], k.BlocksPerSM.Value(), 1e-5, name)
		assert.InEpsilon(t, want[2], k.Waves.Value(), 1e-5, name)
		assert.InEpsilon(t, want[3], k.Occupancy.Value(), 1e-5, name)
	}
}

// MI300X: the file has grids and compute units, no registers, and NVIDIA's rules do not apply.
func TestOtherVendorsKernelsHaveNoOccupancy(t *testing.T) {
	kernels := kernelsOf(t, recorded.Path(t, "kineto", "tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz"))
	require.NotEmpty(t, kernels)
	for name, k := range kernels {
		assert.Positive(t, k.BlocksPerSM.Value(), name)
		assert.Zero(t, k.Registers, name)
		assert.Zero(t, k.Waves.Value(), name)
		assert.Zero(t, k.Occupancy.Value(), name)
		text, err := json.Marshal(k)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "occupancy", "unknown values are omitted")
	}
}

// A block of 64 KiB: the profiler's 0 means that it does not know. A small block may really round
// to 0.
func TestUnknownOccupancyIsNotOnSpans(t *testing.T) {
	file := func(shared int) string {
		return fmt.Sprintf(`{"traceEvents":[{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":1,"dur":5,"args":{
			"device":0,"stream":7,"registers per thread":32,"shared memory":%d,"grid":[1,1,1],"block":[64,1,1],
			"est. achieved occupancy %%":0}}]}`, shared)
	}
	for shared, want := range map[int]bool{48<<10 - 1: true, 48 << 10: false} {
		path := filepath.Join(t.TempDir(), "a.json")
		require.NoError(t, os.WriteFile(path, []byte(file(shared)), 0o600))
		found := false
		_, err := ReadFile(t.Context(), path, Options{Detail: DetailKernels}, func(_ context.Context, td ptrace.Traces) error {
			for _, rs := range td.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						if s.Name() == "gemm" {
							found = true
							_, ok := s.Attributes().Get("gpu.kernel.occupancy.estimate")
							assert.Equal(t, want, ok, shared)
						}
					}
				}
			}
			return nil
		})
		require.NoError(t, err)
		assert.True(t, found)
	}
}
