// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"math"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// configuration returns how a kernel was launched: what the file states, otherwise what follows
// from the launch and the limits of the device. Occupancy is calculated if that is possible,
// because files state it in whole percents.
func (d *deviceWindow) configuration(k *event.Detail) (c timeline.Config) {
	if k.HasResources {
		c.Registers = k.Registers
	}
	c.BlocksPerSM, c.Occupancy = k.BlocksPerSM, k.Occupancy
	if !k.HasGrid {
		return c
	}
	l := LaunchOf(k)
	c.BlocksPerSM = cmp.Or(c.BlocksPerSM, d.limits.PerMultiprocessor(l.Blocks))
	if k.HasResources {
		waves, share, limit := d.limits.Waves(l)
		c.Waves, c.Occupancy, c.Limit = waves, cmp.Or(share, c.Occupancy), limit
	}
	return c
}

// LaunchOf returns how a kernel was launched, as far as occupancy depends on it.
func LaunchOf(k *event.Detail) occupancy.Launch {
	return occupancy.Launch{
		Blocks: product(k.Grid), Threads: product(k.Block), Registers: k.Registers, Scalars: k.Scalars,
		SharedMemory: k.SharedMemory,
	}
}

// product returns the number of blocks or threads; 0 if no device can have so many.
func product(n [3]int64) int64 {
	const most = 1 << 48
	all := int64(1)
	for _, v := range n {
		if v <= 0 || v > most/all {
			return 0
		}
		all *= v
	}
	return all
}

// largest holds at least as many blocks as any of NVIDIA's multiprocessors since 2014.
var largest = occupancy.Device{
	Threads: 2048, Blocks: 32, Registers: 65536, SharedMemory: 228 << 10, WarpSize: 32, Major: 5,
}

const (
	blocksRounding = 1e-3 // of blocks per multiprocessor, in files
	manyBlocks     = 100  // per multiprocessor: with more, the last wave is less than 1 % of the time
)

// lastWave returns the part of a kernel's time for which its multiprocessors are empty on average,
// because some of them run one block more than others, if all blocks take equally long. It is 0 if
// that is not known, or if all blocks may run at the same time, when more blocks on one
// multiprocessor need not take longer. If the limits of the device are unknown, the limits of
// largest apply.
func lastWave(k *event.Detail, limits *occupancy.Device, perSM float64) float64 {
	if !k.HasGrid || !k.HasResources || k.Registers <= 0 || perSM >= manyBlocks {
		return 0
	}
	l := LaunchOf(k)
	resident, _ := limits.Resident(l)
	if resident == 0 && limits.Target == "" && k.Scalars == 0 {
		resident, _ = largest.Resident(l)
	}
	perSM *= limits.Units()
	if resident < 1 || perSM <= float64(resident)+blocksRounding {
		return 0
	}
	return max(0, 1-perSM/math.Ceil(perSM-blocksRounding))
}
