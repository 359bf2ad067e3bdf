// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
)

// Names, units and labels are copied from the exporter's list of metrics.
func TestAMDsExporterIsUnderstood(t *testing.T) {
	for _, prefix := range []string{"", "amd_"} {
		x, store := start(t, createDefaultConfig().(*Config))
		at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
		labels := func(more ...string) map[string]any {
			m := map[string]any{
				"gpu_id": "1", "gpu_partition_id": "0", "gpu_uuid": "51ff74a1-0000-1000-802e-2769a3f6a69e",
				"serial_number": "692251001124", "card_model": "102-G30211-00", "hostname": "node1",
			}
			for i := 0; i < len(more); i += 2 {
				m[more[i]] = more[i+1]
			}
			return m
		}
		values := map[string]float64{
			"gpu_package_power": 500, "gpu_power_usage": 490, "gpu_gfx_activity": 75, "gpu_junction_temperature": 61,
			"gpu_used_vram": 1024,
		}
		for i := range 11 {
			now := at.Add(time.Duration(i) * time.Second)
			var points []point
			for name, v := range values {
				points = append(points, point{name: prefix + name, at: now, value: v, attrs: labels()})
			}
			points = append(points,
				point{name: prefix + "gpu_energy_consumed", at: now, value: 7e12 + float64(i)*500e6, attrs: labels()},
				point{name: prefix + "gpu_clock", at: now, value: 2100, attrs: labels("clock_type", "system")},
				point{name: prefix + "gpu_clock", at: now, value: 1300, attrs: labels("clock_type", "memory")})
			require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, points...)))
		}
		v := store.Acquire()
		d, ok := v.Lookup("GPU-512e2769a3f6a69e") // as HIP names it
		require.True(t, ok)
		desc := d.Device()
		assert.Equal(t, []any{"AMD", "gpu1", 1, "102-G30211-00", "node1"},
			[]any{desc.Vendor, desc.Name, desc.Ordinal, desc.Model, desc.HostName})
		from, to := at.UnixNano(), at.Add(10*time.Second).UnixNano()
		for f, want := range map[gpusamplesextension.Field]float64{
			gpusamplesextension.Power: 500, gpusamplesextension.Utilization: 0.75, gpusamplesextension.Temperature: 61,
			gpusamplesextension.MemoryUsed: 1 << 30, gpusamplesextension.ClockSM: 2.1e9,
			gpusamplesextension.ClockMemory: 1.3e9,
		} {
			mean, _ := d.Mean(f, from, to)
			assert.InDelta(t, want, mean, 1e-9*want, f.String())
		}
		joules, _ := d.Integral(gpusamplesextension.Energy, from, to)
		assert.InDelta(t, 5000, joules, 1e-6, "10 s of 500 W")
		v.Release()
	}
}

func TestAMDsPartitionsWithoutASensorHaveNoPower(t *testing.T) {
	x, store := start(t, createDefaultConfig().(*Config))
	at := time.Now().Add(-time.Minute)
	require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t,
		point{name: "gpu_package_power", at: at, value: 0, attrs: map[string]any{
			"gpu_id": "3", "gpu_partition_id": "2", "serial_number": "692251001124", "card_model": "102-G30211-00",
		}},
		point{name: "gpu_gfx_activity", at: at, value: 250, attrs: map[string]any{
			"gpu_id": "3", "gpu_partition_id": "2", "serial_number": "692251001124", "card_model": "102-G30211-00",
		}})))
	v := store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("692251001124/2")
	if ok {
		assert.False(t, d.Has(gpusamplesextension.Power), "0 W is no value")
		assert.False(t, d.Has(gpusamplesextension.Utilization), "250 % is no utilization")
	}
}
