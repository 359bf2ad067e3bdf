// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
)

// A device whose quantities are all constant: any mean over any part is that constant, and energy
// is power times time, for any sampling.
const (
	watts       = 312.5
	utilization = 0.97
	smActive    = 0.88
	occupancy   = 0.31
	tensor      = 0.37
	dram        = 0.42
	celsius     = 61.0
	smHertz     = 1755e6
	memoryHertz = 2619e6
	memoryUsed  = int64(34 << 30)
)

type object = map[string]any

// constantDevice writes a recording of such a device, sampled every 100 ms. The receiver replays it
// as if it started with the Collector.
func constantDevice(t *testing.T, path, id, model string, length time.Duration) {
	t.Helper()
	var lines []object
	for at := time.Duration(0); at <= length; at += sampling {
		lines = append(lines, object{"d": 0, "t": recorded + int64(at), "v": object{
			"energy": 1e6 + watts*at.Seconds(), "power": watts, "temperature": celsius,
			"utilization": utilization, "sm_utilization": smActive, "sm_occupancy": occupancy,
			"tensor_utilization": tensor, "dram_utilization": dram,
			"clock_sm": smHertz, "clock_memory": memoryHertz, "memory_used": memoryUsed, "throttle": 0,
		}})
	}
	record(t, path, object{"id": id, "model": model}, lines)
}

const (
	sampling = 100 * time.Millisecond
	recorded = int64(1767323045e9) // 2026-01-02, long before the test runs
)

// fill adds the catalogue's quantities that have a metric and are not in values: gauges and ratios
// with a value within their domain, counters with count unless it is negative.
func fill(values object, count int) {
	for _, q := range gpuquantity.All() {
		if _, ok := values[q.String()]; ok || q.Info().Metric.Name == "" {
			continue
		}
		if q.Kind() != gpuquantity.Counter {
			values[q.String()] = min(50, q.Info().Domain.Most/2)
		} else if count >= 0 {
			values[q.String()] = count
		}
	}
}

// record writes a recording in the format that the README of the gpu receiver describes: compressed
// JSON lines.
func record(t *testing.T, path string, device object, lines []object) {
	t.Helper()
	whole := object{"name": "gpu0", "vendor": "NVIDIA", "driver": "580.65.06", "ordinal": 0, "pci": "0000:3b:00.0"}
	maps.Copy(whole, device)
	recordAll(t, path, []object{whole}, lines)
}

// recordAll writes a recording of several devices.
func recordAll(t *testing.T, path string, devices, lines []object) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	enc := json.NewEncoder(z)
	head := []object{
		{"format": "otelgpu-recording", "version": 1, "source": "dcgm", "start": recorded, "interval": int64(sampling)},
		{"devices": devices},
	}
	for _, l := range append(head, lines...) {
		require.NoError(t, enc.Encode(l))
	}
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
}
