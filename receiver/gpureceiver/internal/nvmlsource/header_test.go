// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml/nvmltest"
)

// The library is compiled with NVIDIA's header, so a reading that takes other arguments, or a result from elsewhere,
// has another number.
func TestEveryReadingMeansWhatTheHeaderSays(t *testing.T) {
	s := newSource(Settings{Sampling: time.Second, Slow: time.Hour, Processes: true}, nvml.New(nvmltest.Build(t)))
	require.NoError(t, s.Open())
	d := s.Devices()
	require.Len(t, d, 2)
	assert.Equal(t, []any{"GPU-5", "00000000:A1:00.0", "580.95.05", 0.008, int64(1)},
		[]any{d[0].ID, d[0].PCIBDF, d[0].DriverVersion, d[0].Limits.Power, d[0].Limits.Memory})
	assert.Equal(t, []any{"MIG-5", "GPU-5", "gpu0:13/14", 15, int64(18 << 20)},
		[]any{d[1].ID, d[1].Parent, d[1].Name, d[1].SMs, d[1].Limits.Memory})
	b := read(t, s)
	for q, want := range map[gpudata.Quantity]float64{
		gpudata.Energy: float64(1<<40) / 1000, gpudata.Power: 0.02, gpudata.Utilization: 0.21, gpudata.Throttle: 0,
		gpudata.ClockSM: 24e6, gpudata.ClockMemory: 25e6, gpudata.Temperature: 27, gpudata.ClockGraphics: 23e6,
		gpudata.ClockVideo: 26e6, gpudata.EncoderUtilization: 0.28, gpudata.DecoderUtilization: 0.29,
		gpudata.ECCCorrected: 30, gpudata.ECCUncorrected: 31, gpudata.PCIeReplays: 32, gpudata.RemappedCorrected: 33,
		gpudata.RemappedUncorrected: 34, gpudata.RemapPending: 1, gpudata.RemapFailed: 0, gpudata.RetiredCorrected: 35,
		gpudata.RetiredUncorrected: 36, gpudata.MemoryLimit: 4, gpudata.MemoryReserved: 5, gpudata.MemoryUsed: 7,
	} {
		v, has := value(b, 0, q)
		assert.True(t, has, q.String())
		assert.InDelta(t, want, v.V, 1e-9*want, q.String())
	}
	assert.Len(t, b.Processes, 2*20)
	assert.NotEmpty(t, b.Events, "XIDs")
	require.NoError(t, s.Close())
}
