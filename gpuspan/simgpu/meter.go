// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"math"
	"slices"
	"time"
)

// Telemetry holds the readings of a device's meters at one time. Integrals count from the device's
// start and never decrease.
type Telemetry struct {
	Time time.Time // of the reading, on the clock of the GPU's host

	Energy        float64 // joules
	BusySeconds   float64 // s with at least one engine at work
	KernelSeconds float64 // s with a kernel running
	SMSeconds     float64 // integral of SM activity (0..1), s
	OccSeconds    float64 // integral of occupancy, s
	TensorSeconds float64 // integral of tensor pipe activity, s
	DRAMSeconds   float64 // integral of memory activity, s
	PCIeReceived  float64 // bytes into the device
	PCIeSent      float64 // bytes out of the device
	ThrottlePower float64 // s below the full SM clock because of the power limit

	Power       float64 // W now
	Temperature float64 // °C now
	ClockSM     float64 // Hz now
	ClockMemory float64 // Hz now
	MemoryUsed  int64   // bytes
}

// segment is one piece of work on the host's time axis (ns since the device's start).
type segment struct {
	start, end int64
	kernel     bool
	rates
}

// meter integrates segments. Pieces that have ended before the reading time are added up and
// dropped.
type meter struct {
	spec     Spec
	last     int64 // everything before is in t
	pieces   []segment
	t        Telemetry
	celsius  float64
	startUTC time.Time
}

// thermalTau is the time constant of the first-order thermal model, in seconds.
const thermalTau = 12.0

// advance integrates to now, piecewise: between two neighbouring boundaries of pieces every rate is
// constant.
func (m *meter) advance(now int64) {
	for m.last < now {
		next := now
		for i := range m.pieces {
			if p := &m.pieces[i]; p.start > m.last && p.start < next {
				next = p.start
			} else if p.end > m.last && p.end < next {
				next = p.end
			}
		}
		m.integrate(m.last, next)
		m.last = next
		m.pieces = slices.DeleteFunc(m.pieces, func(p segment) bool { return p.end <= next })
	}
}

func (m *meter) integrate(from, to int64) {
	dt := float64(to-from) * 1e-9
	r, busy, kernel := m.at(from)
	power := m.spec.IdlePower + r.power
	m.t.Energy += power * dt
	if busy {
		m.t.BusySeconds += dt
	}
	if kernel {
		m.t.KernelSeconds += dt
	}
	m.t.SMSeconds += r.sm * dt
	m.t.OccSeconds += r.occupancy * dt
	m.t.TensorSeconds += r.tensor * dt
	m.t.DRAMSeconds += r.dram * dt
	m.t.PCIeReceived += r.rx * dt
	m.t.PCIeSent += r.tx * dt
	if r.throttled {
		m.t.ThrottlePower += dt
	}
	target := m.spec.Ambient + m.spec.ThermalRise*r.power
	m.celsius = target + (m.celsius-target)*math.Exp(-dt/thermalTau)
}

// at sums what runs at time t. The board's power limit applies to the sum as well.
func (m *meter) at(t int64) (sum rates, busy, kernel bool) {
	sum.clock = 1
	for i := range m.pieces {
		p := &m.pieces[i]
		if p.start > t || p.end <= t {
			continue
		}
		busy = true
		kernel = kernel || p.kernel
		sum.sm += p.sm
		sum.occupancy += p.occupancy
		sum.tensor += p.tensor
		sum.dram += p.dram
		sum.power += p.power
		sum.rx += p.rx
		sum.tx += p.tx
		sum.clock = math.Min(sum.clock, p.clock)
		sum.throttled = sum.throttled || p.throttled
	}
	sum.sm, sum.dram = math.Min(sum.sm, 1), math.Min(sum.dram, 1)
	sum.power = math.Min(sum.power, m.spec.PowerLimit-m.spec.IdlePower)
	return sum, busy, kernel
}

func (m *meter) read(now int64) Telemetry {
	m.advance(now)
	r, _, _ := m.at(now)
	t := m.t
	t.Time = m.startUTC.Add(time.Duration(now))
	t.Power = m.spec.IdlePower + r.power
	t.Temperature = m.celsius
	t.ClockSM = m.spec.ClockSM * r.clock
	t.ClockMemory = m.spec.ClockMemory
	return t
}
