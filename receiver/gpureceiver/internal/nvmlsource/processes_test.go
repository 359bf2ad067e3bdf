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

// The library is compiled with NVIDIA's header, so a wrong layout or argument has a wrong value.
func TestProcessUtilizationMatchesTheHeader(t *testing.T) {
	p := newProcesses(nvml.New(nvmltest.Build(t)))
	require.NoError(t, p.Open())
	const seen = 1_790_000_000_000_000
	uses, err := p.Read(func(id string) int64 {
		require.Equal(t, "GPU-5", id)
		return seen * 1000
	}, true)
	require.NoError(t, err)
	require.Len(t, uses, 1)
	u := uses[0]
	assert.True(t, u.Reported)
	require.Len(t, u.Percent, 200)
	assert.Equal(t, uint32(42), u.Percent[42].Percent)
	assert.Equal(t, int64(1042), u.Percent[42].PID)
	assert.Equal(t, int64(42_000), u.Percent[42].Time-u.Percent[0].Time)
	require.Len(t, u.Running, 40, "of the board and of its instance")
	assert.Equal(t, gpudata.ProcessMemory{Device: "GPU-5", PID: 1007, Bytes: gpudata.BytesUnknown}, u.Running[7])
	assert.Equal(t, gpudata.ProcessMemory{Device: "MIG-5", PID: 1003, Bytes: 1 << 33}, u.Running[23])
	uses, err = p.Read(func(string) int64 { return 1_800_000_000_000_000_000 + p.offset }, false)
	require.NoError(t, err)
	assert.True(t, uses[0].Reported)
	assert.Empty(t, uses[0].Percent, "no process was busy")
	require.NoError(t, p.Close())
}

// processMachine is a driver whose boards answer about processes like the real one.
func processMachine(answer func(seen uint64, samples []nvml.ProcessUtilizationSample) (int, nvml.Return)) *fakeLibrary {
	m := newMachine(1)
	m.boards[0].fakeDevice[processUtilization] = func(args []any) nvml.Return {
		first, count := args[0].(*nvml.ProcessUtilizationSample), args[1].(*uint64)
		list := make([]nvml.ProcessUtilizationSample, *count)
		n, ret := answer(uint64(args[2].(int)), list)
		if n > 0 {
			*first = list[0]
		}
		*count = uint64(n)
		return ret
	}
	return m.lib()
}

func TestDriversThatCountFromTheStartOfTheMachine(t *testing.T) {
	boot := uint64(5_000_000_000) // µs
	var seen uint64
	p := newProcesses(processMachine(func(s uint64, list []nvml.ProcessUtilizationSample) (int, nvml.Return) {
		seen = s
		list[0] = nvml.ProcessUtilizationSample{Pid: 7, TimeStamp: boot, SmUtil: 50}
		return 1, ok
	}))
	require.NoError(t, p.Open())
	uses, err := p.Read(func(string) int64 { return 0 }, false)
	require.NoError(t, err)
	at := uses[0].Percent[0].Time
	assert.InDelta(t, time.Now().UnixNano(), at, float64(time.Minute))
	boot += 1_000_000
	_, err = p.Read(func(string) int64 { return at }, false)
	require.NoError(t, err)
	assert.Equal(t, boot-1_000_000, seen, "in the driver's time")
	require.NoError(t, p.Close())
}

func TestADriverThatDoesNotReportProcessesIsAskedOnce(t *testing.T) {
	calls := 0
	p := newProcesses(processMachine(func(uint64, []nvml.ProcessUtilizationSample) (int, nvml.Return) {
		calls++
		return 0, nvml.ErrorNotSupported
	}))
	require.NoError(t, p.Open())
	for range 3 {
		uses, err := p.Read(func(string) int64 { return 0 }, false)
		require.NoError(t, err)
		assert.False(t, uses[0].Reported)
	}
	assert.Equal(t, 1, calls)
	require.NoError(t, p.Close())
}
