// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

import (
	"math"
	"strconv"
	"strings"
)

// memorySlices is the number of slices into which MIG cuts the memory and its bandwidth. The A30 has four; they are
// counted as eighths by twos.
const memorySlices = 8

// gibi is how much more than the data sheet's GB a driver may report: sheets of the H200 and of Blackwell mean GiB.
const gibi = 1.08

// Instance is what a MIG instance has of its device: FLOP rates in proportion to its SMs, memory bandwidth and size in
// proportion to its memory slices (eighths of the device's memory, as MIG cuts it). NVLink cannot be used under MIG and
// is unknown then; the host link is shared and left whole.
//
// memory is the instance's size in bytes as the driver or the profile's name says; it is rounded to whole slices,
// for drivers keep a part of each slice. The second value is false when sms or memory do not fit the device or the
// device's own are unknown.
func (d Device) Instance(sms int, memory float64) (Device, bool) {
	if sms <= 0 || d.SMs <= 0 || sms > d.SMs || d.MemorySize <= 0 || !(memory > 0) {
		return Device{}, false
	}
	if memory > d.MemorySize && memory < gibi*d.MemorySize {
		memory = d.MemorySize
	}
	slices := math.Round(memory / d.MemorySize * memorySlices)
	if slices < 1 || slices > memorySlices {
		return Device{}, false
	}
	d.FLOPs = d.FLOPs.Scale(float64(sms) / float64(d.SMs))
	d.MemoryBandwidth *= slices / memorySlices
	d.MemorySize *= slices / memorySlices
	d.SMs = sms
	d.Interconnect, d.Domain = 0, 0
	d.Power = 0
	d.mig = nil
	return d, true
}

// Profile returns the instance that a MIG profile such as "1g.10gb" names. Suffixes (+me, +gfx) add engines and
// change neither SMs nor memory. Compute instances ("1c.3g.20gb") share the memory of others and are not scaled.
func (d Device) Profile(name string) (Device, bool) {
	name, _, _ = strings.Cut(name, "+")
	_, size, ok := strings.Cut(name, "g.")
	if !ok {
		return Device{}, false
	}
	gb, err := strconv.ParseFloat(strings.TrimSuffix(size, "gb"), 64)
	if err != nil {
		return Device{}, false
	}
	i, ok := d.Instance(d.mig[name], gb*1e9)
	if ok {
		i.Name = d.Name + " MIG " + name
	}
	return i, ok
}
