// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

// TestOneReadingUnderOldAndNewNames reads two scrapes of one GPU, by dcgm-exporter 4.8 and 4.9: 97
// %, 40,000 MiB, 650 W.
func TestOneReadingUnderOldAndNewNames(t *testing.T) {
	for file, joule := range map[string]float64{"dcgm_exporter_4.8": 1000, "dcgm_exporter_4.9": 1} {
		r := newRig(t)
		at := time.Now().Add(-time.Minute)
		for i := range 5 {
			points := scrape(t, recorded.Path(t, "cases/energy/"+file+".prom"), at.Add(time.Duration(i)*time.Second))
			for k := range points {
				if points[k].sum {
					points[k].value += 650 * joule * float64(i)
				}
			}
			r.write(points...)
		}
		end := at.Add(4 * time.Second)
		v := r.store.Acquire()
		d, ok := v.Lookup("GPU-11111111-2222-3333-4444-555555555555")
		require.True(t, ok)
		for f, want := range map[devicesamples.Field]float64{
			devicesamples.Utilization: 0.97, devicesamples.MemoryUsed: 41943040000,
			devicesamples.Power: 650, devicesamples.DRAMUtilization: 0.4, devicesamples.Temperature: 61,
			devicesamples.ClockSM: 1.98e9, devicesamples.ClockMemory: 2.619e9,
		} {
			got, coverage := d.Mean(f, at.UnixNano(), end.UnixNano())
			assert.Equal(t, 1.0, coverage, "%s %s", file, f)
			assert.InDelta(t, want, got, 1e-9*want, "%s %s", file, f)
		}
		joules, _ := d.Integral(devicesamples.Energy, at.UnixNano(), end.UnixNano())
		assert.InDelta(t, 2600, joules, 1e-6, file)
		assert.Equal(t, "580.65.06", d.Device().DriverVersion, file)
		v.Release()
	}
}

// NVML's usual power is a mean of a second; the instantaneous one is not. An instantaneous 0 is
// none.
func TestTheAveragingOfPowerIsKnownFromItsName(t *testing.T) {
	for _, x := range []struct {
		name  string
		watts float64
		want  time.Duration
	}{
		{"DCGM_FI_DEV_POWER_USAGE", 300, time.Second},
		{"DCGM_FI_DEV_POWER_USAGE_INSTANT", 300, 25 * time.Millisecond},
		{"DCGM_FI_DEV_POWER_USAGE_INSTANT", 0, time.Second},
		{"DCGM_FI_DEV_BOARD_POWER_RAW_WATTS", 300, 25 * time.Millisecond},
	} {
		r := newRig(t)
		r.write(point{name: x.name, at: time.Now(), value: x.watts, attrs: labels()},
			point{name: "DCGM_FI_DEV_GPU_TEMP", at: time.Now(), value: 50, attrs: labels()})
		v := r.store.Acquire()
		d, ok := v.Lookup("GPU-1")
		require.True(t, ok)
		assert.Equal(t, x.want, d.Device().PowerWindow, "%s %v", x.name, x.watts)
		v.Release()
	}
}

// TestTheUnitOfUtilizationIsProved writes DCGM_FI_DEV_GPU_UTIL_RATIO, which is a percentage in
// exporters with the headers of DCGM 4.6 and a ratio since DCGM 4.7. The value 1 proves neither.
func TestTheUnitOfUtilizationIsProved(t *testing.T) {
	type value struct {
		written, want float64 // want -1: omitted
	}
	for name, x := range map[string]struct {
		beside string // another metric of the same scrapes
		values []value
	}{
		"a ratio":                  {"", []value{{0.97, 0.97}, {1, 1}, {0, 0}, {0.5, 0.5}}},
		"a percentage":             {"", []value{{97, 0.97}, {1, 0.01}, {0, 0}, {100, 1}}},
		"nothing proved":           {"", []value{{0, 0}, {1, -1}, {1, -1}}},
		"proved later":             {"", []value{{1, -1}, {2, 0.02}, {1, 0.01}}},
		"with bytes":               {"DCGM_FI_DEV_FB_USED_BYTES", []value{{1, 1}, {0, 0}, {0.25, 0.25}}},
		"with a percentage":        {"DCGM_FI_DEV_FB_USED_BYTES", []value{{97, 0.97}}},
		"with a ratio of another":  {"DCGM_FI_DEV_MEMORY_UTIL_RATIO", []value{{1, 1}}},
		"with hertz, as in 4.6.1":  {"DCGM_FI_DEV_SM_CLOCK_HERTZ", []value{{1, -1}}},
		"the exporter was updated": {"", []value{{97, 0.97}, {0.97, -1}}},
		"two clocks":               {"", []value{{0.99, 0.99}, {1.04, 1.04}, {1.06, 0.0106}}},
	} {
		r := newRig(t)
		at := time.Now().Add(-time.Minute)
		omitted := int64(0)
		for i, v := range x.values {
			now := at.Add(time.Duration(i) * time.Second)
			points := []point{{name: "DCGM_FI_DEV_GPU_UTIL_RATIO", at: now, value: v.written, attrs: labels()}}
			if x.beside != "" {
				points = append(points, point{name: x.beside, at: now, value: 0, attrs: labels()})
			}
			r.write(points...)
			got, ok := r.value("GPU-1", devicesamples.Utilization, now)
			require.Equal(t, v.want >= 0, ok, "%s: %v", name, v)
			if !ok {
				omitted++
				continue
			}
			assert.InDelta(t, v.want, got, 1e-12, "%s: %v", name, v)
		}
		assert.Equal(t, omitted, r.outcomes()["unknown_unit"], name)
	}
}

// TestRenamedFieldsWithoutARowAreNotRead: DCGM 4.7's names with new units are counted and not read
// if spans do not have the quantity.
func TestRenamedFieldsWithoutARowAreNotRead(t *testing.T) {
	r := newRig(t)
	names := []string{
		"DCGM_FI_DEV_MEMORY_UTIL_RATIO", "DCGM_FI_DEV_ENC_UTIL_RATIO", "DCGM_FI_DEV_DEC_UTIL_RATIO", "DCGM_FI_DEV_FB_FREE_BYTES",
		"DCGM_FI_DEV_FB_RESERVED_BYTES", "DCGM_FI_DEV_FB_CAPACITY_BYTES", "DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL",
		"DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", // both directions in one
	}
	for _, name := range names {
		r.write(point{name: name, at: time.Now(), value: 0.5, attrs: labels()})
	}
	assert.Equal(t, map[string]int64{"unknown_metric": int64(len(names))}, r.outcomes())
}

// TestOpenLITsMetricsAreRead writes metrics of OpenLIT's collector, which has its own names.
func TestOpenLITsMetricsAreRead(t *testing.T) {
	r := newRig(t)
	at := time.Now().Add(-time.Minute)
	id := map[string]any{"hw.id": "GPU-1", "hw.name": "NVIDIA H100", "gpu.pci_address": "00000000:17:00.0"}
	for i := range 2 {
		now := at.Add(time.Duration(i) * time.Second)
		r.write(point{name: "hw.gpu.power.draw", at: now, value: 300, attrs: id},
			point{name: "hw.gpu.energy.consumed", at: now, value: 300 * float64(i), sum: true, attrs: id},
			point{name: "hw.gpu.temperature", at: now, value: 60, attrs: with(id, "sensor", "die")},
			point{name: "hw.gpu.temperature", at: now, value: 80, attrs: with(id, "sensor", "memory")})
	}
	v := r.store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-1")
	require.True(t, ok)
	for f, want := range map[devicesamples.Field]float64{
		devicesamples.Power: 300, devicesamples.Energy: 300, devicesamples.Temperature: 60,
	} {
		got, _ := d.Mean(f, at.UnixNano(), at.Add(time.Second).UnixNano())
		assert.InDelta(t, want, got, 1e-9, f.String())
	}
	assert.Equal(t, "0000:17:00.0", d.Device().PCIBDF)
}

// Values outside their range are omitted and reported, on devices and on parts of them.
func TestValuesOutsideTheirRangeAreReported(t *testing.T) {
	r := newRig(t)
	now := time.Now()
	r.write(
		point{name: "DCGM_FI_DEV_GPU_UTIL", at: now, value: 9700, attrs: labels()},
		point{name: "DCGM_FI_DEV_GPU_UTIL", at: now, value: 250, attrs: labels("pod", "a", "namespace", "ml")},
		point{name: "DCGM_FI_PROF_DRAM_ACTIVE", at: now, value: -0.5, attrs: labels()},
		point{name: "DCGM_FI_DEV_POWER_USAGE", at: now, value: 300, attrs: labels()},
	)
	for _, f := range []devicesamples.Field{devicesamples.Utilization, devicesamples.DRAMUtilization} {
		_, ok := r.value("GPU-1", f, now)
		assert.False(t, ok, f)
	}
	assert.EqualValues(t, 3, r.outcomes()["out_of_range"])
	entries := r.store.ContradictionEntries()
	require.Len(t, entries, 1)
	assert.Equal(t, "utilization_range", entries[0].Reason)
	assert.EqualValues(t, 3, entries[0].Count)
}
