// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver"
)

// device lets the gpu receiver read the meters of a simulated device, as it would read a driver's. It knows nothing of
// sections or spans.
type device struct {
	gpu     *simgpu.GPU
	ordinal int
	info    backend.Device
}

// devices are the GPU's devices as the receiver wants them.
func devices(gpu *simgpu.GPU) ([]gpureceiver.SimulatedDevice, error) {
	infos, err := gpu.Devices()
	if err != nil {
		return nil, err
	}
	out := make([]gpureceiver.SimulatedDevice, len(infos))
	for i, info := range infos {
		out[i] = device{gpu: gpu, ordinal: i, info: info}
	}
	return out, nil
}

func (d device) Describe() gpusamplesextension.Device {
	spec, _ := d.gpu.Spec(d.ordinal)
	return gpureceiver.DescribeSimulated(d.info, spec)
}

func (d device) Read() gpureceiver.SimulatedReading {
	t, _ := d.gpu.Telemetry(d.ordinal)
	return gpureceiver.SimulatedReading{
		Time: t.Time, Energy: t.Energy, BusySeconds: t.BusySeconds, SMSeconds: t.SMSeconds, OccSeconds: t.OccSeconds,
		TensorSeconds: t.TensorSeconds, DRAMSeconds: t.DRAMSeconds, PCIeSent: t.PCIeSent, PCIeReceived: t.PCIeReceived,
		ThrottlePower: t.ThrottlePower, Temperature: t.Temperature, ClockSM: t.ClockSM, ClockMemory: t.ClockMemory,
		MemoryUsed: t.MemoryUsed, MemoryLimit: d.info.MemoryTotal,
	}
}
