// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/semconv"
)

// Spec is the specification of one simulated device. Rates are peaks; kernels reach a part of them
// (see [Kernel]).
type Spec struct {
	Model           string                        // as hw.model, e.g. "Simulated GPU"
	MemoryTotal     int64                         // bytes
	MemoryBandwidth float64                       // bytes per second
	FLOPRate        map[gpuspan.Precision]float64 // dense FLOP/s per precision; a missing one runs at the FP32 rate
	PCIeBandwidth   float64                       // bytes per second, one direction, pinned host memory
	PageableShare   float64                       // part of PCIeBandwidth that pageable host memory reaches (0: 0.35)
	IdlePower       float64                       // W
	PowerLimit      float64                       // W; work that would need more runs at a lower SM clock
	ClockSM         float64                       // Hz, without throttling
	ClockMemory     float64                       // Hz
	Ambient         float64                       // °C of the idle device
	ThermalRise     float64                       // °C per W above idle, in equilibrium
}

// DefaultSpec returns the specification of a data-center device similar to an H100 SXM (dense rates
// from NVIDIA's data sheet).
func DefaultSpec() Spec {
	return Spec{
		Model:           "Simulated GPU",
		MemoryTotal:     80 << 30,
		MemoryBandwidth: 3.35e12,
		FLOPRate: map[gpuspan.Precision]float64{
			gpuspan.FP64: 33.5e12, gpuspan.FP32: 67e12, gpuspan.TF32: 494.7e12, gpuspan.FP16: 989.4e12,
			gpuspan.BF16: 989.4e12, gpuspan.FP8: 1978.9e12, gpuspan.INT8: 1978.9e12,
		},
		PCIeBandwidth: 63e9,
		IdlePower:     75,
		PowerLimit:    700,
		ClockSM:       1980e6,
		ClockMemory:   2619e6,
		Ambient:       32,
		ThermalRise:   0.055,
	}
}

func (s Spec) flopRate(p gpuspan.Precision) float64 {
	if r := s.FLOPRate[p]; r > 0 {
		return r
	}
	return s.FLOPRate[gpuspan.FP32]
}

func (s Spec) pageableShare() float64 {
	if s.PageableShare > 0 {
		return s.PageableShare
	}
	return 0.35
}

// peaks returns the limits as reports compare with them.
func (s Spec) peaks() *report.Peaks {
	p := &report.Peaks{
		Memory: s.MemoryBandwidth, PCIe: s.PCIeBandwidth, FLOPs: map[string]float64{}, Source: semconv.GPUPeakSourceDevice,
	}
	for precision, rate := range s.FLOPRate {
		p.FLOPs[precision.String()] = rate
	}
	return p
}

// Identity returns the description of a simulated device by machine and ordinal (from 0). It is
// deterministic, so that programs that simulate devices independently, such as a service and its
// Collector, agree. [New] uses machine 0; other numbers, below 2^24, distinguish the devices of
// several hosts.
func Identity(machine uint64, ordinal int, spec Spec) backend.Device {
	return backend.Device{
		Ordinal: ordinal, Model: spec.Model, Vendor: "simulated", DriverVersion: "simgpu",
		UUID:   fmt.Sprintf("GPU-51a0c0de-0000-4000-8000-%06x%06x", machine&0xffffff, ordinal),
		PCIBDF: fmt.Sprintf("0000:%02x:00.0", ordinal+1), MemoryTotal: spec.MemoryTotal,
	}
}
