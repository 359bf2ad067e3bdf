// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package simsource is the source `simulated`: a driver above devices whose physics can be read.
package simsource

import (
	"fmt"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/semconv"
)

// Device is a device whose physics can be read. Methods are called from one goroutine at a time.
type Device interface {
	// Describe is the identity and the limits of the device.
	Describe() gpusamplesextension.Device
	// Read is the state now. Integrals count from any origin and never decrease.
	Read() simgpu.Telemetry
}

// device is one of a simulated GPU's.
type device struct {
	gpu  *simgpu.GPU
	info backend.Device
}

// Of returns the devices of a simulated GPU; none of one that is closed.
func Of(gpu *simgpu.GPU) []Device {
	infos, _ := gpu.Devices()
	devices := make([]Device, len(infos))
	for i, info := range infos {
		devices[i] = device{gpu, info}
	}
	return devices
}

func (d device) Describe() gpusamplesextension.Device {
	spec, _ := d.gpu.Spec(d.info.Ordinal)
	return describe(d.info, spec)
}

func (d device) Read() simgpu.Telemetry {
	t, _ := d.gpu.Telemetry(d.info.Ordinal)
	return t
}

// describe says of a simulated device what a driver says of a real one.
func describe(d backend.Device, spec simgpu.Spec) gpusamplesextension.Device {
	rates := make(map[string]float64, len(spec.FLOPRate))
	for p, r := range spec.FLOPRate {
		rates[p.String()] = r
	}
	return gpusamplesextension.Device{
		ID: d.UUID, Name: fmt.Sprintf("gpu%d", d.Ordinal), Model: d.Model, Vendor: d.Vendor, DriverVersion: d.DriverVersion,
		PCIBDF: d.PCIBDF, Ordinal: d.Ordinal, Source: semconv.GPUMeasurementSourceSimulated,
		Limits: gpusamplesextension.Limits{
			Memory: spec.MemoryTotal, MemoryBandwidth: spec.MemoryBandwidth, PCIeBandwidth: spec.PCIeBandwidth, FLOPRate: rates,
			Power: spec.PowerLimit,
		},
	}
}
