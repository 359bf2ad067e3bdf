// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// The expected values are counted by hand: blocks of the busiest multiprocessor against the mean.
func TestLastWaveOfBlocks(t *testing.T) {
	for _, c := range []struct {
		name                       string
		grid, threads              int64
		registers, shared, devices int64
		want                       float64
	}{
		{"144 blocks of one per multiprocessor take as long as 216", 144, 256, 255, 0, 108, 1 - 144.0/216},
		{"the same by shared memory", 144, 256, 32, 120 << 10, 108, 1 - 144.0/216},
		{"full waves", 216, 256, 255, 0, 108, 0},
		{"one block more than full waves", 217, 256, 255, 0, 108, 1 - 217.0/324},
		{"less than one wave", 100, 256, 255, 0, 108, 0},
		{"two blocks at a time: all start together", 144, 256, 128, 0, 108, 0},
		{"two blocks at a time: the third starts later", 226, 256, 128, 0, 108, 1 - 226.0/324},
		{"many blocks", 108*200 + 1, 256, 255, 0, 108, 0},
		{"registers are not known", 144, 256, 0, 200 << 10, 108, 0},
		{"one thread more than a device runs", 144, 4096, 32, 0, 108, 0},
		{"huge registers", 144, 256, 1 << 60, 0, 108, 0},
		{"huge blocks", 144, 1 << 62, 255, 0, 108, 0},
	} {
		d := &event.Detail{
			Grid: [3]int64{c.grid, 1, 1}, Block: [3]int64{c.threads, 1, 1}, HasGrid: true,
			Registers: c.registers, SharedMemory: c.shared, HasResources: true,
		}
		perSM := float64(c.grid) / float64(c.devices)
		assert.InDelta(t, c.want, lastWave(d, &occupancy.Device{}, perSM), 1e-9, c.name)
		d.HasResources = false
		assert.Zero(t, lastWave(d, &occupancy.Device{}, perSM), c.name)
	}
}

// An RTX 3080 has fewer threads and less shared memory than the largest device: one block of 96
// KiB, not two.
func TestLastWaveUsesTheLimitsOfTheDevice(t *testing.T) {
	d := &event.Detail{
		Grid: [3]int64{68 + 34, 1, 1}, Block: [3]int64{256, 1, 1}, HasGrid: true,
		Registers: 32, SharedMemory: 96 << 10, HasResources: true,
	}
	limits := occupancy.Device{
		Multiprocessors: 68, Threads: 1536, Blocks: 16, Registers: 65536, SharedMemory: 100 << 10, WarpSize: 32, Major: 8,
		Minor: 6,
	}
	assert.InDelta(t, 1-1.5/2, lastWave(d, &limits, 1.5), 1e-9)
	assert.Zero(t, lastWave(d, &occupancy.Device{}, 1.5))
}
