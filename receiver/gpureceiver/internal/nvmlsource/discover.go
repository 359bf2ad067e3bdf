// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package nvmlsource

import (
	"fmt"
	"strings"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// unit is one device of the source: a board or a MIG instance.
type unit struct {
	handle nvml.Device
	mig    bool
	gpm    *gpm
	// What the device answered "not supported" to is not asked again.
	unsupported map[int]bool // index in fast, or in slow after those
	lost        bool
	health      healthFacts
}

type healthFacts struct{ remapFailed, remapPending bool }

// discover lists boards and instances.
func (s *Source) discover() error {
	n, ret := s.lib.DeviceGetCount()
	if ret != nvml.Success {
		return s.fail("nvmlDeviceGetCount", ret)
	}
	driver, _ := s.lib.SystemGetDriverVersion()
	s.closeUnits()
	s.units, s.devices = nil, nil
	for i := range n {
		board, ret := s.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.Success {
			continue // inaccessible or lost: the others are there
		}
		uuid, ret := board.GetUUID()
		if ret != nvml.Success {
			continue
		}
		d := gpusamplesextension.Device{
			ID: uuid, Name: fmt.Sprintf("gpu%d", i), Vendor: "NVIDIA", DriverVersion: driver, Ordinal: i,
		}
		describeBoard(&d, board)
		s.addUnit(d, &unit{handle: board}, board, -1)
		s.addInstances(d, board)
	}
	return nil
}

func describeBoard(d *gpusamplesextension.Device, board nvml.Device) {
	if name, ret := board.GetName(); ret == nvml.Success {
		d.Model = name
	}
	if pci, ret := board.GetPciInfo(); ret == nvml.Success {
		d.PCIBDF = nvml.Text(pci.BusID[:])
	}
	if m, ret := board.GetMemoryInfo(); ret == nvml.Success {
		d.Limits.Memory = int64(m.Total)
	}
	if mw, ret := board.GetEnforcedPowerLimit(); ret == nvml.Success {
		d.Limits.Power = float64(mw) * milli
	}
	gen, ret := board.GetMaxPcieLinkGeneration()
	lanes, ret2 := board.GetMaxPcieLinkWidth()
	if ret == nvml.Success && ret2 == nvml.Success {
		d.Limits.PCIeBandwidth = peaks.PCIeRate(gen, lanes)
	}
}

// addInstances adds the MIG devices of a board.
func (s *Source) addInstances(board gpusamplesextension.Device, handle nvml.Device) {
	if !s.lib.Has("nvmlDeviceGetMigMode") {
		return
	}
	if mode, _, ret := handle.GetMigMode(); ret != nvml.Success || mode != nvml.DeviceMIGEnable {
		return
	}
	n, ret := handle.GetMaxMigDeviceCount()
	if ret != nvml.Success {
		return
	}
	for i := range n {
		mig, ret := handle.GetMigDeviceHandleByIndex(i)
		if ret != nvml.Success {
			continue // no instance at this place
		}
		uuid, ret := mig.GetUUID()
		if ret != nvml.Success {
			continue
		}
		gi, _ := mig.GetGpuInstanceID()
		ci, _ := mig.GetComputeInstanceID()
		d := board
		d.ID, d.Parent, d.Ordinal = uuid, board.ID, -1
		d.Name = fmt.Sprintf("%s:%d/%d", board.Name, gi, ci)
		d.Limits = gpusamplesextension.Limits{}
		if a, ret := mig.GetAttributes(); ret == nvml.Success {
			d.MIG.SMs, d.MIG.Slices = int(a.MultiprocessorCount), int(a.GpuInstanceSliceCount)
			d.Limits.Memory = int64(a.MemorySizeMB) * mebi
			d.MIG.Profile = fmt.Sprintf("%dg.%dgb", a.GpuInstanceSliceCount, (a.MemorySizeMB+1023)/1024)
			if a.ComputeInstanceSliceCount > 0 && a.ComputeInstanceSliceCount < a.GpuInstanceSliceCount {
				d.MIG.Profile = fmt.Sprintf("%dc.%s", a.ComputeInstanceSliceCount, d.MIG.Profile)
			}
		}
		s.addUnit(d, &unit{handle: mig, mig: true}, handle, gi)
	}
}

func (s *Source) addUnit(d gpusamplesextension.Device, u *unit, board nvml.Device, instance int) {
	u.unsupported = map[int]bool{}
	if s.set.GPM && s.lib.Has("nvmlGpmQueryDeviceSupport") {
		u.gpm = newGPM(s.lib, board, instance)
	}
	d.Source, d.Interval = "nvml", s.set.Sampling
	if u.gpm != nil {
		d.Source = "gpm"
	}
	s.devices, s.units = append(s.devices, d), append(s.units, u)
}

// inventory changes when boards or instances come or go.
func (s *Source) inventory() (string, error) {
	n, ret := s.lib.DeviceGetCount()
	if ret != nvml.Success {
		return "", s.fail("nvmlDeviceGetCount", ret)
	}
	parts := []string{fmt.Sprint(n)}
	for i := range n {
		board, ret := s.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.Success {
			parts = append(parts, fmt.Sprintf("%d:%d", i, ret))
			continue
		}
		uuid, _ := board.GetUUID()
		parts = append(parts, uuid)
		if !s.lib.Has("nvmlDeviceGetMigMode") {
			continue
		}
		if mode, _, ret := board.GetMigMode(); ret != nvml.Success || mode != nvml.DeviceMIGEnable {
			continue
		}
		places, _ := board.GetMaxMigDeviceCount()
		for k := range places {
			if mig, ret := board.GetMigDeviceHandleByIndex(k); ret == nvml.Success {
				id, _ := mig.GetUUID()
				parts = append(parts, id)
			}
		}
	}
	return strings.Join(parts, " "), nil
}
