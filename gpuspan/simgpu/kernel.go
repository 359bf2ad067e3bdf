// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"math"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// Kernel is work for the compute engine. Bytes and FLOPs decide how long it runs, unless Duration
// is given.
type Kernel struct {
	// FLOPs are floating-point operations, multiply-add = 2.
	FLOPs float64
	// Precision is the precision of the FLOPs, which selects the peak; FP32's if the device has
	// none for it.
	Precision gpuspan.Precision
	// Bytes are the bytes that move between the kernel and device memory, reads and writes
	// together.
	Bytes int64
	// Efficiency is the part of the peaks that the kernel reaches, in (0, 1]; 0 means 0.75.
	Efficiency float64
	// Occupancy is the ratio of used warp slots while it runs, in (0, 1]; 0 means 0.5.
	Occupancy float64
	// Duration, if positive, replaces the time computed from Bytes and FLOPs.
	Duration time.Duration
}

// Copy is work for a copy engine, or for the compute engine if it is within the device.
type Copy struct {
	Bytes     int64             // bytes that move over the bus, or are read and written once on the device
	Direction gpuspan.Direction // HostToDevice unless stated
	Pageable  bool              // the host's memory is not pinned, which is slower
}

// Fixed costs of the model, as large as in public measurements of data-center devices.
const (
	launchLatency = 4 * time.Microsecond // from the host's call to the earliest start
	kernelFloor   = 2 * time.Microsecond // the shortest kernel
	copyLatency   = 6 * time.Microsecond // set-up of a copy over the bus
	eventGap      = 600 * time.Nanosecond
)

// rates is the effect of a piece of work on the device while it runs: shares of the whole (0..1), W
// above idle, bytes/s.
type rates struct {
	sm, occupancy, tensor, dram float64
	power                       float64
	rx, tx                      float64 // bytes per second over the bus: rx into the device
	clock                       float64 // part of the unthrottled SM clock
	throttled                   bool
}

// plan computes how long a kernel runs and its effect. Symbols: F FLOPs, R FLOP/s, B bytes, W
// bytes/s, e efficiency, c clock factor. Arithmetic takes F/(e R c), memory B/(e W), and the longer
// one decides. Dynamic power grows with the cube of the clock (voltage follows frequency), so a
// demand P above the limit L is met at c = (L/P)^(1/3).
func (s Spec) plan(k Kernel) (time.Duration, rates) {
	e := k.Efficiency
	if e <= 0 || e > 1 {
		e = 0.75
	}
	occ := k.Occupancy
	if occ <= 0 || occ > 1 {
		occ = 0.5
	}
	peak := s.flopRate(k.Precision)
	arithmetic, memory := k.FLOPs/(e*peak), float64(k.Bytes)/(e*s.MemoryBandwidth)
	if k.Duration > 0 {
		return k.Duration, s.activity(k, k.Duration.Seconds(), peak, occ, 1)
	}
	whole := math.Max(arithmetic, memory)
	r := s.activity(k, math.Max(whole, kernelFloor.Seconds()), peak, occ, 1)
	if limit := s.PowerLimit - s.IdlePower; r.power > limit && limit > 0 {
		c := math.Cbrt(limit / r.power)
		whole = math.Max(arithmetic/c, memory)
		r = s.activity(k, math.Max(whole, kernelFloor.Seconds()), peak, occ, c)
		r.power, r.throttled = math.Min(r.power, limit), true
	}
	return max(time.Duration(whole*1e9), kernelFloor), r
}

// activity returns the share of power by what is busy: tensor or vector pipes, memory, and a share
// for any running kernel.
func (s Spec) activity(k Kernel, seconds, peak, occ, clock float64) rates {
	r := rates{sm: 0.95, occupancy: occ, clock: clock}
	if seconds > 0 {
		flop := math.Min(1, k.FLOPs/(peak*seconds))
		r.dram = math.Min(1, float64(k.Bytes)/(s.MemoryBandwidth*seconds))
		pipes := flop
		if tensorPrecision(k.Precision) {
			r.tensor = flop
		}
		dynamic := s.PowerLimit - s.IdlePower
		r.power = dynamic * (0.20 + 0.95*pipes + 0.45*r.dram) * clock * clock * clock
	}
	return r
}

func tensorPrecision(p gpuspan.Precision) bool {
	return p != gpuspan.FP64 && p != gpuspan.FP32 && p != gpuspan.PrecisionUnset
}

func (s Spec) planCopy(c Copy) (time.Duration, rates) {
	if c.Direction == gpuspan.DeviceToDevice { // one read and one write of device memory
		d, r := s.plan(Kernel{Bytes: 2 * c.Bytes, Efficiency: 0.9, Occupancy: 0.1})
		r.sm = 0.05
		return d, r
	}
	bandwidth := s.PCIeBandwidth * 0.87 // protocol overhead of the bus
	if c.Pageable {
		bandwidth *= s.pageableShare()
	}
	d := copyLatency + time.Duration(float64(c.Bytes)/bandwidth*1e9)
	r := rates{clock: 1, power: 0.04 * (s.PowerLimit - s.IdlePower)}
	perSecond := float64(c.Bytes) / d.Seconds()
	r.dram = math.Min(1, perSecond/s.MemoryBandwidth)
	if c.Direction == gpuspan.DeviceToHost {
		r.tx = perSecond
	} else {
		r.rx = perSecond
	}
	return d, r
}
