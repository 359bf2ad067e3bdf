// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	pprof "github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// Two hosts that recorded the same planted kernels: every output of a PyTorch profile exists, with
// the planted sums.
func TestAJobOfJAXGivesEveryOutput(t *testing.T) {
	file := recorded.Path(t, "xplane", "synthetic", "gpu", "gpu.xplane.pb")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	folder, out := filepath.Join(t.TempDir(), "plugins", "profile", "2026_01_01"), t.TempDir()
	require.NoError(t, os.MkdirAll(folder, 0o700))
	for _, host := range []string{"a", "b"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, host+".xplane.pb"), b, 0o600))
	}
	var truth struct {
		GPU struct {
			Kernels map[string][2]int64 // number and picoseconds, by "device/kernel"
		}
	}
	text, err := os.ReadFile(recorded.Path(t, "xplane", "synthetic", "truth.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &truth))

	stacks := filepath.Join(out, "stacks.pb.gz")
	stdout, stderr, err := inProcess(t, "convert", "--html", "--detail", "kernels", "--out", out, "--pprof", stacks, folder)
	require.NoError(t, err, stderr)
	assert.Contains(t, stdout, "2 ranks of one job of 2")
	assert.Contains(t, stdout, "name a device that docs/peaks.md has (--device)", "what is not judged says how to record it")

	spans, steps := map[string]int64{}, 0
	eachSpan(t, filepath.Join(out, "spans.json"), func(_ ptrace.ResourceSpans, s ptrace.Span) {
		spans[s.Name()]++
		if v, ok := s.Attributes().Get("gpu.operation.type"); ok && v.AsString() == "step" {
			steps++
		}
	})
	assert.Equal(t, 2*4, steps)
	f, err := os.Open(stacks)
	require.NoError(t, err)
	defer f.Close()
	sampled, err := pprof.Parse(f)
	require.NoError(t, err)
	onStacks := map[string]int64{}
	for _, s := range sampled.Sample {
		onStacks[s.Location[0].Line[0].Function.Name] += s.Value[0]
	}
	for _, name := range []string{"ampere_bf16_s16816gemm_128x128", "loop_fusion", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"} {
		n, ps := int64(0), int64(0)
		for _, device := range []string{"0/", "1/"} {
			n += 2 * truth.GPU.Kernels[device+name][0]
			ps += 2 * truth.GPU.Kernels[device+name][1]
		}
		require.NotZero(t, n)
		assert.Equal(t, n, spans[name], name)
		assert.InDelta(t, ps/1000, onStacks[name], float64(n), "%s: less than a nanosecond each", name)
	}

	state, _ := reportState(t, filepath.Join(out, "report.html"))
	require.Len(t, state.Profiles, 2)
	for rank, p := range state.Profiles {
		assert.EqualValues(t, rank, p.Rank)
		assert.Len(t, p.Devices, 2)
	}

	_, err = convertOutput(t, "--compare", file, folder)
	require.ErrorContains(t, err, "2 profiles are in")
	compared, err := convertOutput(t, "--compare", file, filepath.Dir(file))
	require.NoError(t, err)
	assert.Contains(t, compared, "computing")
}

// The file of a TPU states the peaks that the table of models does not have.
func TestATPUIsComparedWithThePeaksOfItsFile(t *testing.T) {
	out := t.TempDir()
	stdout, stderr, err := inProcess(t, "convert", "--html", "--out", out, recorded.Path(t, "xplane", "synthetic", "tpu"))
	require.NoError(t, err, stderr)
	assert.Contains(t, stdout, "% of the peak of TPU v5e")
	assert.NotContains(t, stdout, "no peak is known")
	assert.Contains(t, stdout, "longest: fusion.1, 19 TFLOP/s", "an operator without shapes has a name")
	// 10 × 17.18 GFLOP in 9.043 ms, of 197 TFLOP/s
	assert.Regexp(t, `fusion\.1 +kernel +10 +9\.043 ms +57\.3% +27\.8 +19\.00 +9\.6 +latency`, stdout)
	state, _ := reportState(t, filepath.Join(out, "report.html"))
	require.Len(t, state.Profiles[0].Devices, 2)
	assert.Empty(t, state.Profiles[0].Devices[0].Efficiency.NoPeak)
	assert.InDelta(t, .0873, state.Profiles[0].Devices[0].Efficiency.PeakShare, .0005)
}
