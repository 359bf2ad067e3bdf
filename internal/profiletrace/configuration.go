// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"cmp"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// configuration returns how a kernel was launched: what the file states, otherwise what follows from the launch and the
// limits of the device. Occupancy is calculated if that is possible, because files state it in whole percents.
func (d *deviceWindow) configuration(k *Detail) (c timeline.Config) {
	if k.HasResources {
		c.Registers = k.Registers
	}
	c.BlocksPerSM, c.Occupancy = k.BlocksPerSM, k.Occupancy
	if !k.HasGrid {
		return c
	}
	l := launchOf(k)
	c.BlocksPerSM = cmp.Or(c.BlocksPerSM, d.limits.PerMultiprocessor(l.Blocks))
	if k.HasResources {
		waves, share := d.limits.Waves(l)
		c.Waves, c.Occupancy = waves, cmp.Or(share, c.Occupancy)
	}
	return c
}

func launchOf(k *Detail) occupancy.Launch {
	return occupancy.Launch{
		Blocks: product(k.Grid), Threads: product(k.Block), Registers: k.Registers, SharedMemory: k.SharedMemory,
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
