// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// A device whose every quantity is constant: any mean over any part of it is that constant, and energy is power times
// time, whatever the sampling does.
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

// constantDevice writes a recording of such a device, in the format that docs of the gpu receiver describe, sampled
// every 100 ms. The receiver replays it as if it began when the Collector started.
func constantDevice(t *testing.T, path, id, model string, length time.Duration) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	enc := json.NewEncoder(z)
	type object = map[string]any
	const interval = 100 * time.Millisecond
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	require.NoError(t, enc.Encode(object{
		"format": "otelgpu-recording", "version": 1, "source": "dcgm", "start": start, "interval": int64(interval),
	}))
	require.NoError(t, enc.Encode(object{"devices": []object{{
		"id": id, "name": "gpu0", "model": model, "vendor": "NVIDIA", "driver": "580.65.06", "ordinal": 0,
	}}}))
	for at := time.Duration(0); at <= length; at += interval {
		require.NoError(t, enc.Encode(object{"d": 0, "t": start + int64(at), "v": object{
			"energy": 1e6 + watts*at.Seconds(), "power": watts, "temperature": celsius,
			"utilization": utilization, "sm_utilization": smActive, "sm_occupancy": occupancy,
			"tensor_utilization": tensor, "dram_utilization": dram,
			"clock_sm": smHertz, "clock_memory": memoryHertz, "memory_used": memoryUsed, "throttle": 0,
		}}))
	}
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
}
