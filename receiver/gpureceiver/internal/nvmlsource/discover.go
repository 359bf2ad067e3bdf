// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"fmt"
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/instrument"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// unit is one device of the source: a board or a MIG instance.
type unit struct {
	desc     devicesamples.Device
	handle   any // an nvml.Handle, as an argument
	board    any // likewise
	instance int // of a MIG device its GPU instance; -1 of a board
	gpm      *gpm
	// Calls to which the device answered "not supported" are not repeated, except, with the slow
	// readings, the calls that succeeded before.
	unsupported, gave [gpuquantity.Num]bool
	denied            [gpuquantity.Num]bool // the driver gave these before and no longer permits it
	lost              bool
	condition         gpudata.Condition
}

func (u *unit) mig() bool { return u.instance >= 0 }

// discover lists devices and instances, and sets them as the source's if they are not yet.
func (s *source) discover() (changed bool, err error) {
	n, ret := s.number("nvmlDeviceGetCount_v2")
	if ret != nvml.Success {
		return false, s.fail("nvmlDeviceGetCount", ret)
	}
	var found, boards []*unit
	driver, _ := s.text("nvmlSystemGetDriverVersion")
	for i := range int(n) {
		board, ret := s.number("nvmlDeviceGetHandleByIndex_v2", i)
		if ret != nvml.Success {
			continue // inaccessible or lost: the others are there
		}
		u := &unit{handle: nvml.Handle(board), board: nvml.Handle(board), instance: -1, desc: devicesamples.Device{
			Vendor: "NVIDIA", DriverVersion: driver,
		}}
		if u.desc.ID, ret = s.text("nvmlDeviceGetUUID", u.handle); ret == nvml.Success && u.desc.ID != "" {
			u.desc.Ordinal = i
			boards = append(boards, u)
		}
	}
	s.numberBoards(boards)
	for _, u := range boards {
		u.desc.Name = fmt.Sprintf("gpu%d", u.desc.Ordinal)
		s.describe(u)
		found = append(append(found, u), s.instances(u)...)
	}
	if s.units != nil && slices.EqualFunc(found, s.units, func(a, b *unit) bool { return a.desc.ID == b.desc.ID }) {
		return false, nil
	}
	if len(found) == 0 && len(s.units) == 0 {
		// The library lists the devices present when it was initialized: a driver that was loaded
		// again is not seen until it is initialized again. The loss of the devices was reported the
		// time before.
		return false, fmt.Errorf("NVML has no GPU: %w", gpudata.ErrUnavailable)
	}
	s.closeUnits()
	s.units, s.devices = found, nil
	for _, u := range found {
		u.desc.Source, u.desc.Interval = "nvml", s.set.Sampling
		if s.set.GPM && s.lib.Has("nvmlGpmQueryDeviceSupport") {
			if u.gpm = s.newGPM(u); u.gpm != nil {
				u.desc.Source = "gpm"
			}
		}
		s.devices = append(s.devices, u.desc)
	}
	return true, nil
}

// maxOrdinals bounds the removed devices whose ordinals are remembered.
const maxOrdinals = 256

// numberBoards replaces NVML's indexes, which shift when a device vanishes, by the ordinals that
// the devices had when they were first seen. A device that replaces another one gets its index.
func (s *source) numberBoards(boards []*unit) {
	if len(s.ordinals) > maxOrdinals {
		s.ordinals = nil
	}
	if s.ordinals == nil {
		s.ordinals = map[string]int{}
	}
	taken := map[int]bool{}
	for _, u := range boards {
		if n, ok := s.ordinals[u.desc.ID]; ok {
			u.desc.Ordinal, taken[n] = n, true
		}
	}
	for _, u := range boards {
		if _, ok := s.ordinals[u.desc.ID]; ok {
			continue
		}
		for taken[u.desc.Ordinal] {
			u.desc.Ordinal++
		}
		taken[u.desc.Ordinal], s.ordinals[u.desc.ID] = true, u.desc.Ordinal
	}
}

// describe reads the properties of a board.
func (s *source) describe(u *unit) {
	if name, ret := s.text("nvmlDeviceGetName", u.handle); ret == nvml.Success {
		u.desc.Model = name
	}
	var pci nvml.PciInfo
	if s.lib.Call("nvmlDeviceGetPciInfo_v3", u.handle, &pci) == nvml.Success {
		u.desc.PCIBDF = nvml.Text(pci.BusID[:])
	}
	if minor, ret := s.number("nvmlDeviceGetMinorNumber", u.handle); ret == nvml.Success {
		u.desc.DeviceFile = fmt.Sprintf("nvidia%d", minor)
	}
	if s.memoryOf(u) == nvml.Success {
		u.desc.Limits.Memory = int64(s.memory.Total)
	}
	if mw, ret := s.number("nvmlDeviceGetEnforcedPowerLimit", u.handle); ret == nvml.Success {
		u.desc.Power = float64(mw) * milli
	}
	power := reading{Call: gpuquantity.Call{FieldID: gpuquantity.Power.Info().NVML.FieldID}}
	if _, ret := fieldValue(&power, s, u.handle); ret != nvml.Success {
		u.desc.PowerWindow = instrument.MeanWindow // as of nvmlDeviceGetPowerUsage, which is read instead
	}
	gen, ret := s.number("nvmlDeviceGetMaxPcieLinkGeneration", u.handle)
	lanes, ret2 := s.number("nvmlDeviceGetMaxPcieLinkWidth", u.handle)
	if ret == nvml.Success && ret2 == nvml.Success {
		u.desc.PCIeBandwidth = peaks.PCIeRate(int(gen), int(lanes))
	}
}

// instances returns the MIG devices of a board.
func (s *source) instances(board *unit) (found []*unit) {
	var mode, pending uint64
	if !s.lib.Has("nvmlDeviceGetMigMode") ||
		s.lib.Call("nvmlDeviceGetMigMode", board.handle, &mode, &pending) != nvml.Success || mode != nvml.DeviceMIGEnable {
		return nil
	}
	n, ret := s.number("nvmlDeviceGetMaxMigDeviceCount", board.handle)
	if ret != nvml.Success {
		return nil
	}
	for i := range int(n) {
		mig, ret := s.number("nvmlDeviceGetMigDeviceHandleByIndex", board.handle, i)
		if ret != nvml.Success {
			continue // no instance at this position
		}
		u := &unit{handle: nvml.Handle(mig), board: board.handle, desc: board.desc}
		d := &u.desc
		if d.ID, ret = s.text("nvmlDeviceGetUUID", u.handle); ret != nvml.Success || d.ID == "" {
			continue
		}
		gi, _ := s.number("nvmlDeviceGetGpuInstanceId", u.handle)
		ci, _ := s.number("nvmlDeviceGetComputeInstanceId", u.handle)
		u.instance = int(gi)
		d.Parent, d.Ordinal, d.Name = board.desc.ID, -1, fmt.Sprintf("%s:%d/%d", board.desc.Name, gi, ci)
		if d.DeviceFile != "" {
			d.DeviceFile += fmt.Sprintf("/gi%d", gi)
		}
		d.Limits = devicesamples.Limits{}
		var a nvml.DeviceAttributes
		if s.lib.Call("nvmlDeviceGetAttributes_v2", u.handle, &a) == nvml.Success {
			d.SMs, d.BoardSMs = int(a.MultiprocessorCount), s.multiprocessors(board.handle)
			d.Limits.Memory = int64(a.MemorySizeMB) * mebi
			d.Slices, d.AllSlices = gpudata.MemorySlices(d.Limits.Memory, board.desc.Limits.Memory)
			d.Profile = gpudata.MIGProfile(uint(a.GpuInstanceSliceCount), uint(a.ComputeInstanceSliceCount), d.Limits.Memory)
		}
		found = append(found, u)
	}
	return found
}

// multiprocessors returns the number of SMs of a physical GPU, by its CUDA cores and the cores of
// an SM of its architecture; 0 if one of them is unknown.
func (s *source) multiprocessors(board any) int {
	cores, ret := s.number("nvmlDeviceGetNumGpuCores", board)
	if ret != nvml.Success {
		return 0
	}
	var major, minor uint64
	if s.lib.Call("nvmlDeviceGetCudaComputeCapability", board, &major, &minor) != nvml.Success {
		return 0
	}
	perSM, ok := coresPerSM[[2]uint64{major & math.MaxUint32, minor & math.MaxUint32}]
	if !ok || cores&math.MaxUint32%perSM != 0 {
		return 0
	}
	return int(cores & math.MaxUint32 / perSM)
}

// coresPerSM are the FP32 units of an SM by compute capability, of architectures with MIG, by the
// CUDA programming guide.
var coresPerSM = map[[2]uint64]uint64{{8, 0}: 64, {9, 0}: 128, {10, 0}: 128, {10, 3}: 128, {12, 0}: 128}
