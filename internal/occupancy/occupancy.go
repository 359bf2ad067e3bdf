// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package occupancy computes how many blocks of a kernel fit on a multiprocessor at a time, from
// what the launch of the kernel needs and what the device has: by the rules of NVIDIA's occupancy
// calculator, and for AMD's devices by the limits that AMD and LLVM document. Blocks, warps and
// shared memory are AMD's workgroups, waves and LDS.
package occupancy

import "slices"

// Device is what limits the blocks on a multiprocessor. A zero field is unknown.
type Device struct {
	Multiprocessors int64
	Threads         int64 // of a multiprocessor, likewise below
	Blocks          int64 // 0: by the compute capability
	Registers       int64
	SharedMemory    int64 // bytes
	WarpSize        int64
	Major, Minor    int64  // compute capability
	Target          string // of AMD's devices LLVM's name, such as gfx942; the fields but Multiprocessors do not matter
}

// Launch is the configuration of a kernel's launch.
type Launch struct {
	Blocks       int64 // of the grid
	Threads      int64 // of a block
	Registers    int64 // of a thread; of AMD's devices as Vectors returns them
	Scalars      int64 // of AMD's devices, of a wave; 0: unknown, which seldom limits
	SharedMemory int64 // of a block, bytes
}

// Units in which NVIDIA's devices allocate registers (to a warp) and shared memory, and parts of a
// multiprocessor that have separate registers, all from compute capability 5.0 on.
const (
	warpSize      = 32
	registerUnit  = 256
	parts         = 4
	memoryUnit    = 128
	oldMemoryUnit = 256  // before 8.0
	systemMemory  = 1024 // bytes of shared memory that the system takes of each block, from 8.0 on
)

// Limit is the resource that limits how many blocks a multiprocessor holds.
type Limit uint8

// Limits. Those on blocks are more blocks than a multiprocessor holds, however small they are.
const (
	LimitUnknown Limit = iota
	LimitThreads
	LimitBlocks
	LimitRegisters
	LimitScalars
	LimitSharedMemory
	LimitGrid // it has fewer blocks than the device holds
	NumLimits
)

var limitNames = [NumLimits]string{"", "threads", "blocks", "registers", "scalar registers", "shared memory", "grid"}

// String returns what limits the blocks, empty if that is unknown.
func (l Limit) String() string { return limitNames[l] }

// LimitOf returns the limit with a name.
func LimitOf(name string) Limit { return Limit(max(0, slices.Index(limitNames[:], name))) }

// least returns the smaller of two numbers of blocks with its limit, the first if they are equal.
func least(a int64, ofA Limit, b int64, ofB Limit) (int64, Limit) {
	if b < a {
		return b, ofB
	}
	return a, ofA
}

// Resident returns how many blocks of a launch a multiprocessor holds at a time, and which resource
// limits them; 0 if that is unknown, as for devices of other vendors. Of RDNA it is a work-group
// processor, which has two compute units.
func (d *Device) Resident(l Launch) (blocks int64, limit Limit) {
	if d.Target != "" {
		return targets[d.Target].resident(l)
	}
	if d.WarpSize != warpSize || d.Major < 5 || min(d.Threads, d.Registers, d.SharedMemory, l.Threads) <= 0 ||
		min(l.Registers, l.SharedMemory) < 0 {
		return 0, LimitUnknown
	}
	if l.Threads > d.Threads || l.Registers > d.Registers || l.SharedMemory > d.SharedMemory {
		return 0, LimitUnknown // it fits nowhere
	}
	warps := divideUp(l.Threads, warpSize)
	blocks, limit = least(d.Threads/warpSize/warps, LimitThreads, d.maxBlocks(), LimitBlocks)
	if l.Registers > 0 {
		ofWarp := roundUp(l.Registers*warpSize, registerUnit)
		blocks, limit = least(blocks, limit, d.Registers/parts/ofWarp*parts/warps, LimitRegisters)
	}
	memory := roundUp(l.SharedMemory, oldMemoryUnit)
	if d.Major >= 8 {
		memory = roundUp(l.SharedMemory+systemMemory, memoryUnit)
	}
	if memory > 0 {
		blocks, limit = least(blocks, limit, d.SharedMemory/memory, LimitSharedMemory)
	}
	return blocks, limit
}

// maxBlocks returns the most blocks of a multiprocessor. Profiles of PyTorch state the compute
// capability only; the numbers are in the table of technical specifications in NVIDIA's CUDA C++
// Programming Guide.
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

// Waves returns how many times a grid fills all multiprocessors, and the part of their threads that
// its blocks have meanwhile, from 0 to 1, with what limits that; 0 if they are unknown.
func (d *Device) Waves(l Launch) (waves, occupancy float64, limit Limit) {
	each := d.PerMultiprocessor(l.Blocks) * d.Units()
	resident, limit := d.Resident(l)
	if each <= 0 || resident == 0 {
		return 0, 0, LimitUnknown
	}
	threads, most := roundUp(l.Threads, warpSize), d.Threads
	if t := targets[d.Target]; t != nil {
		threads, most = roundUp(l.Threads, t.wave), t.simds*t.waves*t.wave
	}
	if each < float64(resident) {
		limit = LimitGrid
	}
	return each / float64(resident), min(each, float64(resident)) * float64(threads) / float64(most), limit
}

// Units returns the multiprocessors that share what Resident counts.
func (d *Device) Units() float64 {
	if t := targets[d.Target]; t != nil {
		return float64(t.units)
	}
	return 1
}

func divideUp(a, b int64) int64 { return (a + b - 1) / b }

func roundUp(a, unit int64) int64 { return divideUp(a, unit) * unit }
