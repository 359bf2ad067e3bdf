// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simsource

import (
	"cmp"
	"math"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// load is the activity of a device: a cycle of phases that repeats forever, from a fixed origin of
// the wall clock, so that two processes with the same seed see the same device. All integrals are
// closed forms of the time.
type load struct {
	index int
	seed  uint64
	now   func() time.Time
}

// phase is one part of the cycle; rates are constant in it.
type phase struct {
	length                            time.Duration
	watts                             float64
	busy, sm, occupancy, tensor, dram float64
	sent, received                    float64 // By/s
	throttled                         bool
	memory                            int64
}

var cycle = [...]phase{
	{length: 2 * time.Second, watts: 78, memory: 6 << 30},
	{
		length: time.Second, watts: 210, busy: 0.35, sm: 0.2, occupancy: 0.1, dram: 0.15, received: 21e9, sent: 1e9,
		memory: 40 << 30,
	},
	{
		length: 4 * time.Second, watts: 690, busy: 1, sm: 0.93, occupancy: 0.42, tensor: 0.61, dram: 0.44, received: 2e8,
		sent: 1e8, throttled: true, memory: 58 << 30,
	},
	{
		length: 3 * time.Second, watts: 455, busy: 0.98, sm: 0.81, occupancy: 0.27, tensor: 0.09, dram: 0.79, received: 4e8,
		sent: 3e8, memory: 58 << 30,
	},
}

const (
	idleCelsius = 34.0
	celsiusPerW = 0.055
	fullClock   = 1980e6
	slowClock   = 1755e6
	memoryClock = 2619e6
)

// epoch makes the counters of a load as large as on a machine that has been running for days.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Loads returns n devices under the built-in load.
func Loads(n int, seed uint64, now func() time.Time) []Device {
	devices := make([]Device, n)
	for i := range devices {
		devices[i] = &load{index: i, seed: seed, now: now}
	}
	return devices
}

func (l *load) Describe() devicesamples.Device {
	spec := simgpu.DefaultSpec()
	return describe(simgpu.Identity(l.seed-1, l.index, spec), spec)
}

// into returns the number of whole cycles before a time, and the time into the present one.
func (l *load) into(now time.Time) (cycles float64, rest time.Duration) {
	// Each device is at another point of the cycle.
	t := now.Sub(epoch) + time.Duration((uint64(l.index)*2654435761+l.seed*40503)%10000)*time.Millisecond
	var period time.Duration
	for i := range cycle {
		period += cycle[i].length
	}
	cycles = math.Floor(float64(t) / float64(period))
	return cycles, t - time.Duration(cycles)*period
}

// integrate returns the integral in seconds of a rate by phase up to a time.
func (l *load) integrate(to time.Time, rate func(phase int) float64) (sum float64) {
	cycles, rest := l.into(to)
	for i := range cycle {
		part := min(max(rest, 0), cycle[i].length)
		rest -= cycle[i].length
		sum += rate(i) * (cycles*cycle[i].length.Seconds() + part.Seconds())
	}
	return sum
}

// Read sums whole cycles and the part of the present one.
func (l *load) Read() simgpu.Telemetry {
	now := l.now()
	cycles, rest := l.into(now)
	r := simgpu.Telemetry{Time: now, ClockMemory: memoryClock}
	var present *phase
	for i := range cycle {
		p := &cycle[i]
		part := min(max(rest, 0), p.length)
		if rest >= 0 && rest < p.length {
			present = p
		}
		rest -= p.length
		s := cycles*p.length.Seconds() + part.Seconds()
		r.Energy += p.watts * s
		r.BusySeconds += p.busy * s
		r.SMSeconds += p.sm * s
		r.OccSeconds += p.occupancy * s
		r.TensorSeconds += p.tensor * s
		r.DRAMSeconds += p.dram * s
		r.PCIeSent += p.sent * s
		r.PCIeReceived += p.received * s
		if p.throttled {
			r.ThrottlePower += s
		}
	}
	present = cmp.Or(present, &cycle[len(cycle)-1])
	r.Temperature = idleCelsius + celsiusPerW*(present.watts-cycle[0].watts)
	r.ClockSM = fullClock
	if present.throttled {
		r.ClockSM = slowClock
	}
	r.MemoryUsed = present.memory
	return r
}
