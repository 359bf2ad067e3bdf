// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package simsource is the source `simulated`: a driver above devices whose physics can be read.
package simsource

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/semconv"
)

// Device is a device whose physics can be read. Methods are called from one goroutine at a time.
type Device interface {
	// Describe is the identity and the limits of the device.
	Describe() devicesamples.Device
	// Read is the state now. Integrals count from any origin and never decrease.
	Read() simgpu.Telemetry
}

// device is one of a simulated GPU's.
type device struct {
	gpu  *simgpu.GPU
	info backend.Device
}

// Of returns the devices of a simulated GPU; none if it is closed.
func Of(gpu *simgpu.GPU) []Device {
	infos, _ := gpu.Devices()
	devices := make([]Device, len(infos))
	for i, info := range infos {
		devices[i] = device{gpu, info}
	}
	return devices
}

func (d device) Describe() devicesamples.Device {
	spec, _ := d.gpu.Spec(d.info.Ordinal)
	return describe(d.info, spec)
}

func (d device) Read() simgpu.Telemetry {
	t, _ := d.gpu.Telemetry(d.info.Ordinal)
	return t
}

// describe returns for a simulated device what a driver reports for a real one.
func describe(d backend.Device, spec simgpu.Spec) devicesamples.Device {
	rates := make(map[string]float64, len(spec.FLOPRate))
	for p, r := range spec.FLOPRate {
		rates[p.String()] = r
	}
	return devicesamples.Device{
		ID: d.UUID, Name: fmt.Sprintf("gpu%d", d.Ordinal), Model: d.Model, Vendor: d.Vendor, DriverVersion: d.DriverVersion,
		PCIBDF: d.PCIBDF, Ordinal: d.Ordinal, Source: semconv.GPUMeasurementSourceSimulated,
		Limits: devicesamples.Limits{
			Memory: spec.MemoryTotal, MemoryBandwidth: spec.MemoryBandwidth, PCIeBandwidth: spec.PCIeBandwidth, FLOPRate: rates,
			Power: spec.PowerLimit,
		},
	}
}

// How a driver distorts true values; the figures are typical of data-center GPUs.
const (
	energyPeriod = 20 * time.Millisecond // the energy counter is refreshed this often
	energyStep   = 1e-3                  // J: it counts millijoules
	powerStep    = 1e-3                  // W
	powerNoise   = 0.004                 // relative standard deviation of the power meter
	ratioNoise   = 0.003                 // standard deviation of hardware ratios
	clockStep    = 15e6                  // Hz
	memoryStep   = 1 << 20               // By
	percent      = 0.01
)

// source is the driver.
type source struct {
	pace    time.Duration
	devices []Device
	desc    []devicesamples.Device
	state   []state
	rng     *rand.Rand
}

type state struct {
	last   simgpu.Telemetry
	energy float64 // as the counter shows
}

// New returns a source of the devices; pace is the sampling interval. The noise is the same for the
// same seed.
func New(devices []Device, pace time.Duration, seed uint64) *source {
	return &source{pace: pace, devices: devices, rng: rand.New(rand.NewPCG(seed, 0x73616d706c65))}
}

func (*source) Name() string { return "simulated" }

func (s *source) Open() error {
	s.state = make([]state, len(s.devices))
	s.desc = nil
	for _, d := range s.devices {
		desc := d.Describe()
		desc.Source = "simulated"
		desc.Interval = s.pace
		s.desc = append(s.desc, desc)
	}
	return nil
}

func (s *source) Devices() []devicesamples.Device { return s.desc }

func (s *source) Pace() time.Duration { return s.pace }

func (*source) Close() error { return nil }

func (s *source) Read(b *gpudata.Batch) error {
	for i, d := range s.devices {
		s.sample(b, i, d.Read())
		b.Health = append(b.Health, gpudata.HealthOK)
	}
	return nil
}

func (s *source) sample(b *gpudata.Batch, i int, r simgpu.Telemetry) {
	st := &s.state[i]
	t := r.Time.UnixNano()
	b.Add(i, gpuquantity.Temperature, t, math.Round(r.Temperature))
	b.Add(i, gpuquantity.ClockSM, t, quantise(r.ClockSM, clockStep))
	b.Add(i, gpuquantity.ClockMemory, t, r.ClockMemory)
	b.Add(i, gpuquantity.MemoryUsed, t, quantise(float64(r.MemoryUsed), memoryStep))
	if limit := s.desc[i].Limits.Memory; limit > 0 {
		b.Add(i, gpuquantity.MemoryLimit, t, float64(limit))
	}
	b.Add(i, gpuquantity.PCIeTransmit, t, math.Floor(r.PCIeSent))
	b.Add(i, gpuquantity.PCIeReceive, t, math.Floor(r.PCIeReceived))
	if st.last.Time.IsZero() {
		*st = state{last: r, energy: quantise(r.Energy, energyStep)}
		b.Add(i, gpuquantity.Energy, t, st.energy)
		return
	}
	dt := r.Time.Sub(st.last.Time).Seconds()
	if dt <= 0 {
		return
	}
	// The counter has its value of the last refresh, up to one period ago.
	if refresh := float64(t%int64(energyPeriod)) * 1e-9; refresh < dt {
		shown := quantise(r.Energy-(r.Energy-st.last.Energy)*refresh/dt, energyStep)
		st.energy = math.Max(st.energy, shown)
	}
	b.Add(i, gpuquantity.Energy, t, st.energy)
	watts := (r.Energy - st.last.Energy) / dt
	b.Add(i, gpuquantity.Power, t, quantise(watts*(1+powerNoise*s.rng.NormFloat64()), powerStep))
	b.Add(i, gpuquantity.Utilization, t, quantise(ratio(r.BusySeconds, st.last.BusySeconds, dt), percent))
	b.Add(i, gpuquantity.SMUtilization, t, s.noisy(ratio(r.SMSeconds, st.last.SMSeconds, dt)))
	b.Add(i, gpuquantity.SMOccupancy, t, s.noisy(ratio(r.OccSeconds, st.last.OccSeconds, dt)))
	b.Add(i, gpuquantity.TensorUtilization, t, s.noisy(ratio(r.TensorSeconds, st.last.TensorSeconds, dt)))
	b.Add(i, gpuquantity.DRAMUtilization, t, s.noisy(ratio(r.DRAMSeconds, st.last.DRAMSeconds, dt)))
	var mask devicesamples.ThrottleReason
	if r.ThrottlePower > st.last.ThrottlePower {
		mask = devicesamples.ThrottleSWPowerCap
	}
	b.Add(i, gpuquantity.Throttle, t, float64(mask))
	st.last = r
}

func ratio(now, before, dt float64) float64 { return math.Min(math.Max((now-before)/dt, 0), 1) }

// noisy returns a hardware ratio with its error; an idle unit reads exactly 0.
func (s *source) noisy(v float64) float64 {
	if v == 0 {
		return 0
	}
	return math.Min(math.Max(v+ratioNoise*s.rng.NormFloat64(), 0), 1)
}

func quantise(v, step float64) float64 { return math.Floor(v/step+0.5) * step }
