// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// Names, units and labels are copied from the exporter's list of metrics.
func TestAMDsExporterIsUnderstood(t *testing.T) {
	for _, prefix := range []string{"", "amd_", "our_gpu_"} {
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
			"gpu_used_vram": 1024, "gpu_prof_tensor_active_percent": 44, "gpu_prof_occupancy_percent": 31,
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
		for f, want := range map[devicesamples.Field]float64{
			devicesamples.Power: 500, devicesamples.Utilization: 0.75, devicesamples.Temperature: 61,
			devicesamples.MemoryUsed: 1 << 30, devicesamples.ClockSM: 2.1e9,
			devicesamples.ClockMemory: 1.3e9, devicesamples.TensorUtilization: 0.44,
			devicesamples.SMOccupancy: 0.31,
		} {
			mean, _ := d.Mean(f, from, to)
			assert.InDelta(t, want, mean, 1e-9*want, f.String())
		}
		joules, _ := d.Integral(devicesamples.Energy, from, to)
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
	d, ok := v.Lookup("692251001124/3")
	if ok {
		assert.False(t, d.Has(devicesamples.Power), "0 W is no value")
		assert.False(t, d.Has(devicesamples.Utilization), "250 % is no utilization")
	}
}

// Without gpu_uuid, which is no default, the dies of an MI250 have one serial number.
func TestDiesOfOneBoardAreTwoDevices(t *testing.T) {
	x, store := start(t, createDefaultConfig().(*Config))
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	for i := range 11 {
		points := scrape(t, filepath.Join("testdata", "amd_mi250.prom"), at.Add(time.Duration(i)*time.Second))
		require.Greater(t, len(points), 20)
		for k := range points {
			if points[k].name == "gpu_energy_consumed" {
				die, err := strconv.Atoi(points[k].attrs["gpu_id"].(string))
				require.NoError(t, err)
				points[k].value += float64(i*(200+100*die)) * 1e6
			}
		}
		require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, points...)))
	}
	v := store.Acquire()
	defer v.Release()
	require.Len(t, v.Devices(nil), 2)
	for die, joules := range map[int]float64{0: 2000, 1: 3000} {
		d, ok := v.Lookup("PCB0123/" + strconv.Itoa(die))
		require.True(t, ok)
		desc := d.Device()
		assert.Equal(t, []any{die, "D67301", "node1"}, []any{desc.Ordinal, desc.Model, desc.HostName})
		got, _ := d.Integral(devicesamples.Energy, at.UnixNano(), at.Add(10*time.Second).UnixNano())
		assert.InDelta(t, joules, got, 1e-6)
		assert.Equal(t, die == 0, d.Has(devicesamples.Power), "the board's sensor is the first die's")
	}
}

// Partitions have their own memory only; the first one has what the board has. The exporter reports
// a clock of each die, of which the highest counts in any order.
func TestAPartitionedBoardIsRead(t *testing.T) {
	path := filepath.Join("testdata", "amd_mi300x_cpx.prom")
	for seed := range uint64(5) {
		x, store := start(t, createDefaultConfig().(*Config))
		at := time.Now().Add(-time.Minute).Truncate(time.Second)
		r := rand.New(rand.NewPCG(seed, 1))
		for i := range 2 {
			points := scrape(t, path, at.Add(time.Duration(i)*time.Second))
			r.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
			require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, points...)))
		}
		v := store.Acquire()
		require.Len(t, v.Devices(nil), 16)
		mean := func(id string, f devicesamples.Field) float64 {
			d, ok := v.Lookup(id)
			require.True(t, ok, id)
			x, _ := d.Mean(f, at.UnixNano(), at.Add(time.Second).UnixNano())
			return x
		}
		for _, id := range []string{"GPU-512e2769a3f6a69e", "GPU-e34c3b58bf67050e"} {
			assert.InDeltaSlice(t, []float64{512, 2.1e9, 1.3e9, 0.97, 98304 << 20}, []float64{
				mean(id, devicesamples.Power), mean(id, devicesamples.ClockSM),
				mean(id, devicesamples.ClockMemory), mean(id, devicesamples.Utilization),
				mean(id, devicesamples.MemoryUsed),
			}, 1e-3)
		}
		d, ok := v.Lookup("e30774a1-0000-1000-804c-3b58bf67050e")
		require.True(t, ok)
		assert.Equal(t, float64(1024<<20), mean("e30774a1-0000-1000-804c-3b58bf67050e", devicesamples.MemoryUsed))
		for f := range devicesamples.Field(devicesamples.NumFields) {
			assert.Equal(t, f == devicesamples.MemoryUsed, d.Has(f), f.String())
		}
		v.Release()
	}
}

// Names, labels and units are from amd_smi_exporter (src/cpu_data.go) and its rules
// (src/amd-smi-custom-rules.yml): uW, thousandths of a degree, Hz, percent; the GPU's number is in
// a label with the metric's name.
func TestAMDSMIExporterIsUnderstood(t *testing.T) {
	for name, tt := range map[string]struct {
		devices map[string]string
		want    []string
	}{
		"by number":           {devices: map[string]string{"0": "GPU-a", "1": "GPU-b"}, want: []string{"GPU-a", "GPU-b"}},
		"by host and number":  {devices: map[string]string{"n1/0": "GPU-a", "n2/1": "GPU-b"}, want: []string{"GPU-a"}},
		"without an entry":    {},
		"an entry of another": {devices: map[string]string{"7": "GPU-a"}},
		"by both, host first": {devices: map[string]string{"n1/1": "GPU-a", "1": "GPU-b"}, want: []string{"GPU-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := createDefaultConfig().(*Config)
			cfg.Devices = tt.devices
			require.NoError(t, cfg.Validate())
			x, store := start(t, cfg)
			at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
			for i := range 11 {
				var points []point
				for gpu, watts := range []float64{320, 450} {
					for metric, v := range map[string]float64{
						"gpu_power": watts * 1e6, "gpu_power_avg": 1e6, "gpu_current_temperature": 61500, "gpu_SCLK": 2.1e9,
						"gpu_MCLK": -1, "gpu_use_percent": 75, "gpu_power_cap": 750e6, "gpu_memory_use_percent": 3,
					} {
						points = append(points, point{
							name: "amd_" + metric, at: at.Add(time.Duration(i) * time.Second), value: v, sum: metric == "gpu_power",
							attrs: map[string]any{metric: strconv.Itoa(gpu), "productname": "AMD Instinct MI300X", "Hostname": "n1"},
						})
					}
				}
				require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, points...)))
			}
			v := store.Acquire()
			defer v.Release()
			require.Len(t, v.Devices(nil), len(tt.want))
			from, to := at.UnixNano(), at.Add(10*time.Second).UnixNano()
			for _, id := range tt.want {
				d, ok := v.Lookup(id)
				require.True(t, ok)
				desc := d.Device()
				watts := map[int]float64{0: 320, 1: 450}[desc.Ordinal]
				assert.Equal(t, []string{"AMD", "AMD Instinct MI300X"}, []string{desc.Vendor, desc.Model})
				for f, want := range map[devicesamples.Field]float64{
					devicesamples.Power: watts, devicesamples.Utilization: 0.75,
					devicesamples.Temperature: 61.5, devicesamples.ClockSM: 2.1e9,
				} {
					mean, _ := d.Mean(f, from, to)
					assert.InDelta(t, want, mean, 1e-9*want, f.String())
				}
				assert.False(t, d.Has(devicesamples.ClockMemory), "-1 is unknown")
			}
		})
	}
}

func TestAMetricOfAnotherExporterIsNotInMicrowatts(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Devices = map[string]string{"0": "GPU-a"}
	x, store := start(t, cfg)
	require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, point{
		name: "nvidia_gpu_power", at: time.Now(), value: 300, attrs: map[string]any{"uuid": "GPU-a", "gpu": "0"},
	})))
	v := store.Acquire()
	defer v.Release()
	assert.Empty(t, v.Devices(nil))
}

func TestDevicesAreValidated(t *testing.T) {
	for key, id := range map[string]string{
		"gpu0": "GPU-a", "/0": "GPU-a", "n1/": "GPU-a", "": "GPU-a", "0": "", "-1": "GPU-a",
	} {
		cfg := createDefaultConfig().(*Config)
		cfg.Devices = map[string]string{key: id}
		assert.ErrorContains(t, cfg.Validate(), "`devices`", key)
	}
}
