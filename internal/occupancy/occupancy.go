// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package occupancy computes how many blocks of a kernel fit on a multiprocessor at a time, from what the launch of the
// kernel needs and what the device has, by the rules of NVIDIA's occupancy calculator.
package occupancy

// Device is what limits the blocks on a multiprocessor. A zero field is unknown.
type Device struct {
	Multiprocessors int64
	Threads         int64 // of a multiprocessor, likewise below
	Blocks          int64 // 0: by the compute capability
	Registers       int64
	SharedMemory    int64 // bytes
	WarpSize        int64
	Major, Minor    int64 // compute capability
}

// Launch is the configuration of a kernel's launch.
type Launch struct {
	Blocks       int64 // of the grid
	Threads      int64 // of a block
	Registers    int64 // of a thread
	SharedMemory int64 // of a block, bytes
}

// Units in which NVIDIA's devices allocate registers (to a warp) and shared memory, and parts of a multiprocessor that
// have separate registers, all from compute capability 5.0 on.
const (
	warpSize      = 32
	registerUnit  = 256
	parts         = 4
	memoryUnit    = 128
	oldMemoryUnit = 256  // before 8.0
	systemMemory  = 1024 // bytes of shared memory that the system takes of each block, from 8.0 on
)

// Resident returns how many blocks of a launch a multiprocessor holds at a time; 0 if that is unknown, as for devices
// of other vendors.
func (d *Device) Resident(l Launch) int64 {
	if d.WarpSize != warpSize || d.Major < 5 || min(d.Threads, d.Registers, d.SharedMemory, l.Threads) <= 0 ||
		min(l.Registers, l.SharedMemory) < 0 {
		return 0
	}
	if l.Threads > d.Threads || l.Registers > d.Registers || l.SharedMemory > d.SharedMemory {
		return 0 // it fits nowhere
	}
	warps := divideUp(l.Threads, warpSize)
	blocks := min(d.maxBlocks(), d.Threads/warpSize/warps)
	if l.Registers > 0 {
		ofWarp := roundUp(l.Registers*warpSize, registerUnit)
		blocks = min(blocks, d.Registers/parts/ofWarp*parts/warps)
	}
	memory := roundUp(l.SharedMemory, oldMemoryUnit)
	if d.Major >= 8 {
		memory = roundUp(l.SharedMemory+systemMemory, memoryUnit)
	}
	if memory > 0 {
		blocks = min(blocks, d.SharedMemory/memory)
	}
	return blocks
}

// maxBlocks returns the most blocks of a multiprocessor. Profiles of PyTorch state the compute capability only; the
// numbers are in the table of technical specifications in NVIDIA's CUDA C++ Programming Guide.
func (d *Device) maxBlocks() int64 {
	if d.Blocks > 0 {
		return d.Blocks
	}
	switch 10*d.Major + d.Minor {
	case 75, 86, 87:
		return 16
	case 89, 110, 120, 121:
		return 24
	}
	return 32
}

// PerMultiprocessor returns the blocks of a grid for each multiprocessor; 0 if that is unknown.
func (d *Device) PerMultiprocessor(blocks int64) float64 {
	if d.Multiprocessors <= 0 {
		return 0
	}
	return float64(blocks) / float64(d.Multiprocessors)
}

// Waves returns how many times a grid fills all multiprocessors, and the part of their threads that its blocks have
// meanwhile, from 0 to 1; 0 if they are unknown.
func (d *Device) Waves(l Launch) (waves, occupancy float64) {
	each, resident := d.PerMultiprocessor(l.Blocks), d.Resident(l)
	if each <= 0 || resident == 0 {
		return 0, 0
	}
	threads := roundUp(l.Threads, warpSize)
	return each / float64(resident), min(each, float64(resident)) * float64(threads) / float64(d.Threads)
}

func divideUp(a, b int64) int64 { return (a + b - 1) / b }

func roundUp(a, unit int64) int64 { return divideUp(a, unit) * unit }
