// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package occupancy

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

var (
	v100 = Device{
		Multiprocessors: 80, Threads: 2048, Registers: 65536, SharedMemory: 98304, WarpSize: 32, Major: 7,
	}
	h100 = Device{
		Multiprocessors: 132, Threads: 2048, Registers: 65536, SharedMemory: 233472, WarpSize: 32, Major: 9,
	}
	rtx3080 = Device{
		Multiprocessors: 68, Threads: 1536, Blocks: 16, Registers: 65536, SharedMemory: 102400, WarpSize: 32, Major: 8,
		Minor: 6,
	}
)

// Each limit decides once; the numbers are of NVIDIA's occupancy calculator. The receiver of
// PyTorch's profiles compares tens of thousands of recorded launches with what cuda_occupancy.h
// computed for them.
func TestResidentBlocks(t *testing.T) {
	for _, x := range []struct {
		name   string
		device Device
		launch Launch
		want   int64
		limit  Limit
	}{
		{"threads", v100, Launch{Threads: 512, Registers: 16}, 4, LimitThreads},
		{"part of a warp", v100, Launch{Threads: 1000, Registers: 16}, 2, LimitThreads},
		{"blocks", v100, Launch{Threads: 32, Registers: 16}, 32, LimitBlocks},
		{"blocks by capability", Device{
			Threads: 1536, Registers: 65536, SharedMemory: 102400, WarpSize: 32, Major: 8, Minor: 9,
		}, Launch{Threads: 32, Registers: 16}, 24, LimitBlocks},
		{"stated blocks", rtx3080, Launch{Threads: 32, Registers: 16}, 16, LimitBlocks},
		{"registers", v100, Launch{Threads: 128, Registers: 255}, 2, LimitRegisters},
		{"registers in whole units", v100, Launch{Threads: 256, Registers: 33}, 6, LimitRegisters},
		{"shared memory", v100, Launch{Threads: 128, Registers: 16, SharedMemory: 49152}, 2, LimitSharedMemory},
		{"shared memory of the system", h100, Launch{Threads: 128, Registers: 16, SharedMemory: 116736}, 1, LimitSharedMemory},
		{"largest block", h100, Launch{Threads: 384, Registers: 168, SharedMemory: 231424}, 1, LimitRegisters},
	} {
		got, limit := x.device.Resident(x.launch)
		assert.Equal(t, x.want, got, x.name)
		assert.Equal(t, x.limit, limit, x.name)
	}
}

func TestWavesAndOccupancy(t *testing.T) {
	waves, share, limit := h100.Waves(Launch{Blocks: 132 * 3, Threads: 256, Registers: 32})
	assert.InDelta(t, 3.0/8, waves, 1e-12)
	assert.InDelta(t, 3.0/8, share, 1e-12, "the grid does not fill it")
	assert.Equal(t, LimitGrid, limit)
	waves, share, limit = h100.Waves(Launch{Blocks: 132 * 20, Threads: 256, Registers: 128})
	assert.InDelta(t, 10, waves, 1e-12, "2 blocks of 256 threads with 128 registers")
	assert.InDelta(t, 0.25, share, 1e-12)
	assert.Equal(t, "registers", limit.String())
}

func TestUnknownLimitsGiveNoValue(t *testing.T) {
	launch := Launch{Blocks: 100, Threads: 256, Registers: 32}
	for name, change := range map[string]func(d *Device, l *Launch){
		"AMD":                 func(d *Device, _ *Launch) { d.WarpSize = 64 },
		"no capability":       func(d *Device, _ *Launch) { d.Major = 0 },
		"no registers":        func(d *Device, _ *Launch) { d.Registers = 0 },
		"no shared memory":    func(d *Device, _ *Launch) { d.SharedMemory = 0 },
		"no threads":          func(d *Device, _ *Launch) { d.Threads = 0 },
		"no block":            func(_ *Device, l *Launch) { l.Threads = 0 },
		"no grid":             func(_ *Device, l *Launch) { l.Blocks = 0 },
		"no multiprocessors":  func(d *Device, _ *Launch) { d.Multiprocessors = 0 },
		"negative registers":  func(_ *Device, l *Launch) { l.Registers = -1 },
		"too large for it":    func(_ *Device, l *Launch) { l.SharedMemory = 1 << 20 },
		"too many threads":    func(_ *Device, l *Launch) { l.Threads = 4096 },
		"too many registers":  func(_ *Device, l *Launch) { l.Threads, l.Registers = 1024, 255 },
		"huge registers":      func(_ *Device, l *Launch) { l.Registers = 1 << 60 },
		"huge shared memory":  func(_ *Device, l *Launch) { l.SharedMemory = 1<<63 - 1 },
		"overflowing threads": func(_ *Device, l *Launch) { l.Threads = 1 << 62 },
	} {
		d, l := h100, launch
		change(&d, &l)
		waves, share, limit := d.Waves(l)
		assert.Empty(t, limit.String(), name)
		assert.Zero(t, waves, name)
		assert.Zero(t, share, name)
	}
	assert.Zero(t, (&Device{}).PerMultiprocessor(5))
}
