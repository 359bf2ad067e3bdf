// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// Identity describes the simulated device of a number (from 0) in a machine. It depends on nothing else, so programs
// that simulate devices each for itself, such as a service and the Collector beside it, speak of the same ones. Machine
// 0 is that of [New]; others tell the devices of several hosts apart, up to 2^24.
func Identity(machine uint64, ordinal int, spec Spec) backend.Device {
	return backend.Device{
		Ordinal: ordinal, Model: spec.Model, Vendor: "simulated", DriverVersion: "simgpu",
		UUID:   fmt.Sprintf("GPU-51a0c0de-0000-4000-8000-%06x%06x", machine&0xffffff, ordinal),
		PCIBDF: fmt.Sprintf("0000:%02x:00.0", ordinal+1), MemoryTotal: spec.MemoryTotal,
	}
}
