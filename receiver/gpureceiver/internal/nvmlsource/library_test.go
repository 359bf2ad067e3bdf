// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// OTELGPU_NVML names a library: NVIDIA's, or a stub with constant power. The energy counter of each
// board must increase by the integral of its power.
func TestLibraryReadsPowerAndEnergyThatAgree(t *testing.T) {
	path := os.Getenv("OTELGPU_NVML")
	if path == "" {
		t.Skip("OTELGPU_NVML names no library")
	}
	s := New(Settings{Library: path, Sampling: 100 * time.Millisecond, Slow: time.Second, GPM: true})
	require.NoError(t, s.Open())
	defer func() { require.NoError(t, s.Close()) }()
	require.NotEmpty(t, s.Devices())
	type board struct{ first, last, power gpudata.Value }
	boards, joules, ratios := make([]board, len(s.Devices())), make([]float64, len(s.Devices())), 0
	for range 50 {
		b := &gpudata.Batch{}
		require.NoError(t, s.Read(b))
		for _, v := range b.Values {
			x := &boards[v.Device]
			switch v.Quantity {
			case gpuquantity.Energy:
				if x.first.Time == 0 {
					x.first = v
				}
				x.last = v
			case gpuquantity.Power:
				if x.power.Time > 0 && x.first.Time > 0 {
					joules[v.Device] += (x.power.V + v.V) / 2 * float64(v.Time-x.power.Time) * 1e-9
				}
				x.power = v
			case gpuquantity.SMUtilization:
				assert.GreaterOrEqual(t, v.V, 0.0)
				assert.LessOrEqual(t, v.V, 1.0)
				ratios++
			}
		}
		time.Sleep(s.Pace())
	}
	compared := 0
	for i, x := range boards {
		if x.last.Time > x.first.Time && x.power.Time > 0 {
			assert.InEpsilon(t, joules[i], x.last.V-x.first.V, 0.05, "board %d", i)
			compared++
		}
	}
	require.Positive(t, compared, "a board with power and energy")
	t.Logf("%d boards compared, %d ratios of GPM", compared, ratios)
}
