// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml/nvmltest"
)

// The library is compiled with NVIDIA's header, so a reading with wrong arguments, or a result at a
// wrong offset, has a wrong value.
func TestEveryReadingMatchesTheHeader(t *testing.T) {
	s := newSource(Settings{Sampling: time.Second, Slow: time.Hour, Processes: true}, nvml.New(nvmltest.Build(t)))
	require.NoError(t, s.Open())
	d := s.Devices()
	require.Len(t, d, 2)
	assert.Equal(t, []any{"GPU-5", "00000000:A1:00.0", "580.95.05", 0.008, int64(4)},
		[]any{d[0].ID, d[0].PCIBDF, d[0].DriverVersion, d[0].Limits.Power, d[0].Limits.Memory})
	assert.Equal(t, []any{"MIG-5", "GPU-5", "gpu0:13/14", 15, int64(18 << 20)},
		[]any{d[1].ID, d[1].Parent, d[1].Name, d[1].SMs, d[1].Limits.Memory})
	b := read(t, s)
	for q, want := range map[gpuquantity.Quantity]float64{
		gpuquantity.Energy: float64(1<<40) / 1000, gpuquantity.Power: 0.02, gpuquantity.Utilization: 0.21, gpuquantity.Throttle: 1 << 41,
		gpuquantity.ClockSM: 24e6, gpuquantity.ClockMemory: 25e6, gpuquantity.Temperature: 27, gpuquantity.ClockGraphics: 23e6,
		gpuquantity.ClockVideo: 26e6, gpuquantity.EncoderUtilization: 0.28, gpuquantity.DecoderUtilization: 0.29,
		gpuquantity.ECCCorrected: 30, gpuquantity.ECCUncorrected: 31, gpuquantity.PCIeReplays: 32, gpuquantity.RemappedCorrected: 33,
		gpuquantity.RemappedUncorrected: 34, gpuquantity.RemapPending: 1, gpuquantity.RemapFailed: 0, gpuquantity.RetiredCorrected: 35,
		gpuquantity.RetiredUncorrected: 36, gpuquantity.MemoryLimit: 4, gpuquantity.MemoryReserved: 5, gpuquantity.MemoryUsed: 7,
	} {
		v, has := value(b, 0, q)
		assert.True(t, has, q.String())
		assert.InDelta(t, want, v.V, 1e-9*want, q.String())
	}
	assert.Len(t, b.Processes, 2*20)
	var events []gpudata.Event // an XID, and a group of operational events, which wait for others of their faults
	require.Eventually(t, func() bool {
		events = append(events, read(t, s).Events...)
		return len(events) == 2
	}, time.Minute, 50*time.Millisecond)
	fault := devicesamples.Fault{Module: "GPU-FIFTEEN-CHAR", Category: 0x55, Code: 0x56, Severity: 40}
	for i, kind := range []devicesamples.EventKind{devicesamples.EventXID, devicesamples.EventFault} {
		assert.Equal(t, kind, events[i].Kind)
		assert.Equal(t, fault, events[i].Fault)
	}
	assert.Equal(t, int64(79), events[0].Code)
	require.NoError(t, s.Close())
}
