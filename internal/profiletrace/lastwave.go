// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import "math"

// Limits of a multiprocessor: the largest of NVIDIA's devices since 2014, so that no device holds more blocks at once.
const (
	maxThreadsPerSM  = 2048
	maxBlocksPerSM   = 32
	registersPerSM   = 65536
	sharedBytesPerSM = 228 << 10
	warpThreads      = 32
	registersPerUnit = 256 // a warp gets its registers in units
)

const (
	blocksRounding = 1e-3 // of blocks per multiprocessor, in files
	manyBlocks     = 100  // per multiprocessor: with more, the last wave is less than 1 % of the time
)

// lastWave returns the part of a kernel's time for which its multiprocessors are empty on average, because some of them
// run one block more than others, if all blocks take equally long. It is 0 if that is not known, or if all blocks may
// run at the same time, when more blocks on one multiprocessor need not take longer.
func lastWave(d *Detail, perSM float64) float64 {
	stated := d.HasGrid && d.HasResources && d.Registers > 0 && d.Registers <= registersPerSM
	if !stated || max(d.Block[0], d.Block[1], d.Block[2]) > maxThreadsPerSM || perSM >= manyBlocks {
		return 0
	}
	threads := d.Block[0] * d.Block[1] * d.Block[2]
	if threads <= 0 {
		return 0
	}
	warps := (threads + warpThreads - 1) / warpThreads
	units := (d.Registers*warpThreads + registersPerUnit - 1) / registersPerUnit
	resident := min(maxBlocksPerSM, maxThreadsPerSM/threads, registersPerSM/(units*registersPerUnit*warps))
	if d.SharedMemory > 0 {
		resident = min(resident, sharedBytesPerSM/d.SharedMemory)
	}
	if resident < 1 || perSM <= float64(resident)+blocksRounding {
		return 0
	}
	return max(0, 1-perSM/math.Ceil(perSM-blocksRounding))
}
