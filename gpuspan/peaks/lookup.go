// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package peaks is the table of device models with their peak rates, from the vendors' data sheets.
//
// All comparisons of a rate with a peak use it: the in-process report, the gpu receiver
// (gpu.memory.bandwidth.limit, gpu.flop.rate.limit) and the gpu_derive processor. It imports the
// standard library only.
//
// Definitions:
//
//   - FLOP rates are dense, at boost clock. Rates that vendors quote with 2:4 structured sparsity are halved.
//   - The rate of a precision is the rate of the fastest engine that computes in it. On NVIDIA, fp32 is the rate of
//     the vector units (tensor cores round the operands: that is tf32), fp64 of the FP64 tensor cores if the chip has
//     them; on AMD, fp32 and fp64 are rates of the matrix cores. On GeForce cards, fp16 accumulates in fp16, and bf16
//     in fp32 at half the rate.
//   - A device is what the driver reports as one: an MI250X is two devices, and its row is for one of the two dies.
//   - Link rates are for one direction. Data sheets quote NVLink and Infinity Fabric as the sum of both.
//   - A zero field is unknown. Rates are not compared with unknown peaks.
//
// A power-capped device never reaches its boost clock, so its share of peak is below 1 even if its
// engines never wait. This is not corrected.
package peaks

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Lookup returns the row of a model by the driver's name ("NVIDIA H100 80GB HBM3", "Tesla
// V100-SXM2-16GB", "AMD Instinct MI300X"), and false if there is none. Vendor words, case and
// separators are ignored; otherwise names must match in full: "NVIDIA H100" or "… Laptop GPU" match
// no row. A MIG suffix, as CUDA appends it ("NVIDIA A100-SXM4-40GB MIG 1g.5gb"), selects the
// instance's part; it returns false for an unknown profile. The name of a vGPU ("GRID A100-10C",
// "NVIDIA A100-3-20C") selects its board, with the vGPU's memory, or the instance's part.
//
// It allocates; callers on hot paths keep the result.
func Lookup(model string) (Device, bool) {
	base, profile := SplitMIG(model)
	name := normalise(strings.ToLower(base))
	i, ok := index()[name]
	if !ok && profile == "" {
		return vgpu(name)
	}
	if !ok {
		return Device{}, false
	}
	if profile == "" {
		return rows()[i], true
	}
	return rows()[i].Profile(profile)
}

// vgpuBoards are the boards whose vGPUs have another short name, by NVIDIA's list of vGPU types
// (https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/).
var vgpuBoards = map[string]string{
	"a100": "a100-pcie-40gb", "a100d": "a100-80gb-pcie", "h100": "h100-pcie", "h100xm": "h100-80gb-hbm3",
	"h100l": "h100-nvl",
	"v100":  "v100-pcie-16gb", "v100d": "v100-pcie-32gb", "v100x": "v100-sxm2-16gb", "v100dx": "v100-sxm2-32gb",
	"rtxa6000": "rtx-a6000", "rtxa5000": "rtx-a5000", "rtx6000": "quadro-rtx-6000",
}

// vgpu returns the device of the normalised name of a vGPU: the board, its slices if it is a MIG
// instance, and its memory in GB with the letter of its series. Without slices vGPUs alternate on
// the whole board.
func vgpu(name string) (Device, bool) {
	parts := strings.Split(strings.TrimPrefix(name, "grid-"), "-")
	last := parts[len(parts)-1]
	if len(parts) < 2 || len(parts) > 3 || len(last) < 2 || !strings.ContainsAny(last[len(last)-1:], "abcq") {
		return Device{}, false
	}
	gb, err := strconv.Atoi(last[:len(last)-1])
	board, ok := vgpuBoards[parts[0]]
	if !ok {
		board = parts[0]
	}
	i, ok := index()[board]
	if err != nil || !ok {
		return Device{}, false
	}
	d := rows()[i]
	if len(parts) == 3 {
		return d.Profile(parts[1] + "g." + strconv.Itoa(gb) + "gb")
	}
	if size := float64(gb) * giga; gb <= 0 || size > gibi*d.MemorySize {
		return Device{}, false
	} else if size < d.MemorySize {
		d.MemorySize = size
	}
	d.Name += " vGPU " + last
	d.Interconnect, d.Domain, d.Power, d.mig = 0, 0, 0, nil
	return d, true
}

// All returns the table, ordered by vendor and generation.
func All() []Device { return slices.Clone(rows()) }

var index = sync.OnceValue(func() map[string]int {
	m := make(map[string]int)
	for i, row := range rows() {
		for _, n := range row.names {
			m[normalise(strings.ToLower(n))] = i
		}
	}
	return m
})

// SplitMIG splits the MIG suffix from a model as CUDA writes it: "NVIDIA L4 MIG 1g.5gb" is "NVIDIA
// L4" and "1g.5gb". The profile is empty for a whole device.
func SplitMIG(model string) (base, profile string) {
	for i := 0; i+5 <= len(model); i++ {
		if strings.EqualFold(model[i:i+5], " mig ") {
			return model[:i], strings.ToLower(strings.TrimSpace(model[i+5:]))
		}
	}
	return model, ""
}

// normalise returns the words of a lower-case model name that distinguish devices, joined by one
// hyphen.
func normalise(model string) string {
	var b strings.Builder
	for _, w := range strings.FieldsFunc(model, func(r rune) bool {
		return r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}) {
		switch w {
		case "nvidia", "tesla", "amd", "instinct", "geforce", "corporation", "inc.", "gpu", "oam", "vf":
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('-')
		}
		b.WriteString(w)
	}
	return b.String()
}

// HostLink is the path between a device and its host: PCIe of a generation and width, or a
// chip-to-chip link whose rate is stated. The zero value is an unknown link.
type HostLink struct {
	Generation int     // of PCIe; 0 if the link is not PCIe
	Lanes      int     // of PCIe
	C2C        float64 // bytes per second in one direction of NVLink-C2C, if that is the link
}

// Rate returns the peak in bytes per second of one direction; zero if unknown.
func (l HostLink) Rate() float64 {
	if l.C2C > 0 {
		return l.C2C
	}
	return PCIeRate(l.Generation, l.Lanes)
}

// PCIeRate returns the peak of one direction of a PCIe link in bytes per second, without line
// coding: 8b/10b up to generation 2, 128b/130b up to 5, and 242 of the 256 bytes of a flit in 6.
// Packet headers, another 5 to 15 % depending on payload size, are not subtracted. It returns 0 for
// a generation or width that does not exist.
//
// Source: PCI Express Base Specification, revisions 1.1, 2.1, 3.1, 4.0, 5.0 and 6.0.
func PCIeRate(generation, lanes int) float64 {
	switch lanes {
	case 1, 2, 4, 8, 12, 16, 32:
	default:
		return 0
	}
	if generation < 0 || generation >= len(laneRates) {
		return 0
	}
	return laneRates[generation] / 8 * float64(lanes)
}

// laneRates are the rates of one lane in bits per second, by generation.
var laneRates = [...]float64{
	1: 2.5e9 * 8 / 10, 2: 5e9 * 8 / 10, 3: 8e9 * 128 / 130, 4: 16e9 * 128 / 130, 5: 32e9 * 128 / 130, 6: 64e9 * 242 / 256,
}

// memorySlices is the number of slices into which MIG cuts the memory and its bandwidth. The A30
// has four; they are counted as eighths by twos.
const memorySlices = 8

// gibi is the factor by which a driver may exceed the data sheet's GB: sheets of the H200 and of
// Blackwell mean GiB.
const gibi = 1.08

// Instance returns the part of the device that a MIG instance has: FLOP rates in proportion to its
// SMs, memory bandwidth and size in proportion to its memory slices (eighths of the device's
// memory). NVLink cannot be used with MIG and becomes unknown; the host link is shared and keeps
// its full rate.
//
// memory is the instance's size in bytes from the driver or the profile's name; it is rounded to
// whole slices, because drivers reserve a part of each slice. It returns false if sms or memory do
// not fit the device, or if the device's are unknown.
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

// Profile returns the instance that a MIG profile such as "1g.10gb" names, and false if the device
// has no such profile. Suffixes (+me, +gfx) add engines and change neither SMs nor memory. Compute
// instances ("1c.3g.20gb") share the memory of others and are not scaled.
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
