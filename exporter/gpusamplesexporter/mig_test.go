// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

// TestInstancesRepeatTheirBoard reads a board of which dcgm-exporter has lines of instances only,
// each with the power and the energy of the board (NVIDIA/dcgm-exporter#317): 52.6 W.
func TestInstancesRepeatTheirBoard(t *testing.T) {
	r := newRig(t)
	at := time.Now().Add(-time.Minute)
	for i := range 5 {
		points := scrape(t, recorded.Path(t, "cases/energy/mig_instances_only.prom"), at.Add(time.Duration(i)*time.Second))
		for k := range points {
			if points[k].sum {
				points[k].value += 52600 * float64(i)
			}
		}
		r.write(points...)
	}
	start, end := at.UnixNano(), at.Add(4*time.Second).UnixNano()
	v := r.store.Acquire()
	defer v.Release()
	const id = "GPU-11111111-2222-3333-4444-555555555555"
	board, ok := v.Lookup(id)
	require.True(t, ok)
	assert.Equal(t, devicesamples.Device{
		ID: id, Name: "gpu0", Model: "NVIDIA A30", Vendor: "NVIDIA", PCIBDF: "0000:0f:00.0", Ordinal: 0, Source: "dcgm",
		HostName: "n1", DeviceFile: "nvidia0", Refresh: time.Hour, PowerWindow: time.Second,
	}, *board.Device())
	joules, coverage := board.Integral(devicesamples.Energy, start, end)
	assert.Equal(t, 1.0, coverage)
	assert.InDelta(t, 210.4, joules, 1e-3)
	watts, _ := board.Mean(devicesamples.Power, start, end)
	assert.InDelta(t, 52.6, watts, 1e-9)
	assert.False(t, board.Has(devicesamples.Utilization), "each instance has its own")
	for i := range 4 {
		d, ok := v.Lookup(fmt.Sprintf("MIG-%s/%d/0", id, i+3))
		require.True(t, ok)
		parent, ok := d.Board()
		require.True(t, ok)
		assert.Equal(t, id, parent.Device().ID)
		assert.False(t, d.Has(devicesamples.Power))
		assert.False(t, d.Has(devicesamples.Energy))
		busy, _ := d.Mean(devicesamples.Utilization, start, end)
		assert.InDelta(t, 0.2+0.1*float64(i), busy, 1e-9)
		used, _ := d.Mean(devicesamples.MemoryUsed, start, end)
		assert.InDelta(t, float64(300+100*i)*(1<<20), used, 1)
		assert.Equal(t, fmt.Sprintf("nvidia0/gi%d", i+3), d.Device().DeviceFile)
	}
	assert.Equal(t, map[string]int64{"written": 5 * 10, "copy": 5 * 6}, r.outcomes())
}

// TestABoardsOwnSeriesWins writes a board and its instances, of which one states an older power.
func TestABoardsOwnSeriesWins(t *testing.T) {
	for _, first := range []bool{true, false} {
		r := newRig(t)
		at := time.Now().Add(-time.Second)
		points := []point{
			{name: "DCGM_FI_DEV_POWER_USAGE", at: at, value: 400, attrs: labels()},
			{name: "DCGM_FI_DEV_POWER_USAGE", at: at, value: 390, attrs: labels("GPU_I_ID", "1", "GPU_I_PROFILE", "1g.10gb")},
		}
		if !first {
			points[0], points[1] = points[1], points[0]
		}
		r.write(points...)
		watts, _ := r.value("GPU-1", devicesamples.Power, at)
		assert.Equal(t, 400.0, watts)
		assert.Equal(t, map[string]int64{"written": 1, "copy": 1}, r.outcomes())
	}
}

// TestInstancesOfAnySourceLeaveTheBoardsQuantitiesToTheBoard writes the power of instances by the
// semantic conventions.
func TestInstancesOfAnySourceLeaveTheBoardsQuantitiesToTheBoard(t *testing.T) {
	r := newRig(t)
	at := time.Now().Add(-time.Second)
	for _, parent := range []string{"hw.parent", "gpu.parent.uuid"} {
		for _, id := range []string{"MIG-a", "MIG-b"} {
			r.write(point{name: "hw.power", at: at, value: 300, attrs: map[string]any{"hw.id": id, parent: "GPU-1"}},
				point{name: "hw.gpu.memory.usage", at: at, value: 300, attrs: map[string]any{"hw.id": id, parent: "GPU-1"}})
		}
		watts, ok := r.value("GPU-1", devicesamples.Power, at)
		assert.True(t, ok)
		assert.Equal(t, 300.0, watts)
		_, ok = r.value("MIG-a", devicesamples.Power, at)
		assert.False(t, ok)
		used, ok := r.value("MIG-a", devicesamples.MemoryUsed, at)
		assert.True(t, ok)
		assert.Equal(t, 300.0, used)
	}
}
