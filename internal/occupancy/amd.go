// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package occupancy

// target is what limits the workgroups of an AMD device, for the unit that holds a workgroup: a
// compute unit, or of RDNA a pair of them, because compilers default to work-group processor mode
// there.
type target struct {
	units        int64 // compute units
	simds        int64
	waves        int64 // of a SIMD, likewise below
	registers    int64 // vectors
	granule      int64 // of their allocation
	scalars      int64 // 0: each wave has its own
	memory       int64 // bytes of LDS of a unit
	groups       int64 // of more than one wave, of a unit
	wave         int64 // work-items
	accumulators bool  // they are separate from other vectors
}

// memoryGranule is the unit of LDS that a workgroup gets.
const memoryGranule = 512

var (
	cdna1  = target{1, 4, 10, 256, 4, 800, 64 << 10, 16, 64, true}
	cdna23 = target{1, 4, 8, 512, 8, 800, 64 << 10, 16, 64, false}
	rdna2  = target{2, 4, 16, 1024, 16, 0, 128 << 10, 32, 32, false}
	rdna3  = target{2, 4, 16, 1536, 24, 0, 128 << 10, 32, 32, false} // with 192 KiB of vectors for a SIMD
)

// targets are known by LLVM's names. The limits are in AMD's instruction set architecture documents
// and in the backend of LLVM (AMDGPUUsage, and getTotalNumVGPRs, getVGPRAllocGranule,
// getMaxWavesPerEU and getMaxWorkGroupsPerCU of AMDGPUBaseInfo.cpp).
var targets = map[string]*target{
	"gfx908": &cdna1, "gfx90a": &cdna23, "gfx940": &cdna23, "gfx941": &cdna23, "gfx942": &cdna23,
	"gfx1030": &rdna2, "gfx1031": &rdna2, "gfx1032": &rdna2, "gfx1033": &rdna2, "gfx1034": &rdna2, "gfx1035": &rdna2,
	"gfx1036": &rdna2,
	"gfx1100": &rdna3, "gfx1101": &rdna3, "gfx1151": &rdna3,
	"gfx1102": &rdna2, "gfx1103": &rdna2, "gfx1150": &rdna2, "gfx1152": &rdna2, // RDNA 3 with 128 KiB of vectors
}

// Vectors returns the vector registers of a thread that limit how many waves run on an AMD device:
// devices of CDNA have accumulators beside the others, in registers of their own (CDNA 1) or in the
// same (since CDNA 2). Both numbers are as rocprofv3 states them, in allocated units. Of an unknown
// device it is the vectors; ok is false if a device cannot have so many.
func Vectors(device string, vectors, accumulators int64) (n int64, ok bool) {
	switch t := targets[device]; {
	case t == nil:
		return vectors, true
	case min(vectors, accumulators) < 0 || max(vectors, accumulators) > t.registers:
		return 0, false
	case t.accumulators:
		return max(vectors, accumulators), true
	default:
		return vectors + accumulators, true
	}
}

// resident returns how many workgroups of a launch a unit holds at a time, and which resource
// limits them.
func (t *target) resident(l Launch) (groups int64, limit Limit) {
	const threads = 1024 // of a workgroup, at most
	if t == nil || l.Threads <= 0 || l.Threads > threads || min(l.Registers, l.Scalars, l.SharedMemory) < 0 ||
		l.Registers > t.registers || l.SharedMemory > t.memory || t.scalars > 0 && l.Scalars > t.scalars {
		return 0, LimitUnknown
	}
	waves := divideUp(l.Threads, t.wave)
	groups, limit = t.simds*t.waves/waves, LimitThreads
	if waves > 1 {
		groups, limit = least(groups, limit, t.groups, LimitBlocks)
	}
	perSIMD := t.registers / roundUp(max(1, l.Registers), t.granule)
	groups, limit = least(groups, limit, t.simds*perSIMD/waves, LimitRegisters)
	if t.scalars > 0 && l.Scalars > 0 {
		groups, limit = least(groups, limit, t.simds*(t.scalars/l.Scalars)/waves, LimitScalars)
	}
	if l.SharedMemory > 0 {
		groups, limit = least(groups, limit, t.memory/roundUp(l.SharedMemory, memoryGranule), LimitSharedMemory)
	}
	return groups, limit
}
