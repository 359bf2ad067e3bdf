// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/simsource"
)

// SimulatedDevice is a device whose physics can be read, for the source `simulated`. The source behaves as a driver
// above it: it quantises, averages, refreshes counters in stairs and samples with jitter of its own, so what is
// sampled is never what the device knows about its work. Methods are called from one goroutine at a time.
type SimulatedDevice = simsource.Device

// SimulatedReading is the state of a SimulatedDevice at one moment. Integrals count from any origin.
type SimulatedReading = simsource.Reading

// DescribeSimulated is what a SimulatedDevice says of itself when it is a device of simgpu.
func DescribeSimulated(d backend.Device, spec simgpu.Spec) gpusamplesextension.Device {
	return simsource.Describe(d, spec)
}
