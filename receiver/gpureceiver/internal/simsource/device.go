// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package simsource is the source `simulated`: a driver above devices whose physics can be read.
package simsource

import (
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/semconv"
)

// Device is a device whose physics can be read.
type Device interface {
	// Describe is the identity and the limits of the device.
	Describe() gpusamplesextension.Device
	// Read is the state now. Integrals never decrease.
	Read() Reading
}

// Reading is the state of a device at one moment.
type Reading struct {
	Time          time.Time
	Energy        float64 // J
	BusySeconds   float64 // integral of "a kernel runs", s
	SMSeconds     float64 // integral of SM activity (0 to 1), s
	OccSeconds    float64 // integral of occupancy (0 to 1), s
	TensorSeconds float64 // integral of tensor pipe activity (0 to 1), s
	DRAMSeconds   float64 // integral of memory activity (0 to 1), s
	PCIeSent      float64 // By, out of the device
	PCIeReceived  float64 // By, into the device
	ThrottlePower float64 // s in which the power limit held the clock back
	Temperature   float64 // Cel now
	ClockSM       float64 // Hz now
	ClockMemory   float64 // Hz now
	MemoryUsed    int64   // By now
	MemoryLimit   int64   // By; 0 unknown
}

// Describe says of a simulated device what a driver says of a real one.
func Describe(d backend.Device, spec simgpu.Spec) gpusamplesextension.Device {
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
