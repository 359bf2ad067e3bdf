// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package roofline derives rates, utilizations and limits of work on a device from its declared
// work, its time and the peaks of the device.
package roofline

import (
	"math"

	"github.com/otelgpu/otelgpu/internal/busbandwidth"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// The thresholds of the definitions. They are not configurable: a number in a dashboard must mean
// the same everywhere.
const (
	// floorFactor: a section shorter than this many empty sections is mostly the cost of timing.
	floorFactor = semconv.FindingBelowFloorFloor
	// launchShare: the host was still submitting for all but this share of the section's GPU time,
	// so the queue was empty at its end: the GPU waited for the host.
	launchShare = semconv.FindingLaunchBoundQueue
	// launchRoof: a section at or above this share of its roof was not starved, regardless of its
	// delays (an application that synchronizes before End shows the same delay).
	launchRoof = semconv.FindingLaunchBoundRoof
	// latencyRoof: below this share of the roof neither bandwidth nor arithmetic limits.
	latencyRoof = semconv.FindingLaunchBoundLatency
)

// Values has the values derived for a piece of work; fields at NaN or "" are absent.
type Values struct {
	IORate, ReadRate, WriteRate, BusRate float64
	IOUtilization, FLOPRate              float64
	FLOPUtilization                      float64
	Intensity, Utilization, ItemRate     float64
	StepItemRate, MFU, HFU               float64
	Basis, Bound, PeakSource             string
	Declaration, RateStatus              string
}

var absent = func() Values {
	nan := math.NaN()
	return Values{
		IORate: nan, ReadRate: nan, WriteRate: nan, BusRate: nan, IOUtilization: nan, FLOPRate: nan, FLOPUtilization: nan,
		Intensity: nan, Utilization: nan, ItemRate: nan, StepItemRate: nan, MFU: nan, HFU: nan,
	}
}()

// Share returns the part of its roof that the work attained: Utilization, otherwise the larger of
// the two other utilizations; NaN if none is known.
func (d *Values) Share() float64 {
	if math.IsNaN(d.Utilization) {
		return larger(d.IOUtilization, d.FLOPUtilization)
	}
	return d.Utilization
}

// Outcome is why values are or are not known.
type Outcome uint8

// Outcomes.
const (
	Derived Outcome = iota
	BelowFloor
	Untimed
	Undeclared
	Outcomes
)

// Derive computes everything that the facts allow for a roof (nil: unknown device). floor is the
// duration of an empty section in seconds, for spans that do not state it.
func (d *Values) Derive(f *spanfacts.Facts, r *Roof, floor float64) Outcome {
	*d = absent
	if f.Kind == spanfacts.Step {
		return d.step(f, r)
	}
	if f.Size == 0 && f.FLOPs == 0 && f.Items == 0 {
		return Undeclared
	}
	if f.Size > 0 && f.FLOPs > 0 {
		d.Intensity = f.FLOPs / f.Size // of the declared values; needs no time
	}
	t := f.Time
	if t == 0 {
		return Untimed
	}
	switch {
	case f.Recorded():
		floor = 0 // a record of the profiler, not a pair of events
	case f.HasFloor:
		floor = f.Floor
	}
	if t < floorFactor*floor {
		d.RateStatus = semconv.GPURateStatusBelowFloor
		return BelowFloor
	}
	d.RateStatus = semconv.GPURateStatusOk
	d.rates(f, t)
	if r != nil {
		d.utilization(f, r, t)
		d.roofline(f, r, t)
	}
	return Derived
}

func (d *Values) rates(f *spanfacts.Facts, t float64) {
	d.IORate = rate(f.Size, t)
	d.ReadRate = rate(f.Read, t)
	d.WriteRate = rate(f.Write, t)
	d.FLOPRate = rate(f.FLOPs, t)
	d.ItemRate = rate(f.Items, t)
	if factor := busbandwidth.Factor(f.Collective, f.GroupSize); f.Kind == spanfacts.Collective && factor > 0 {
		d.BusRate = d.IORate * factor
	}
}

// rate returns amount per second, or NaN if amount is absent.
func rate(amount, t float64) float64 {
	if amount == 0 {
		return math.NaN()
	}
	return amount / t
}

// utilization compares the rates with the peak of the link that the bytes used and with the peak of
// the precision.
func (d *Values) utilization(f *spanfacts.Facts, r *Roof, t float64) {
	var used Peak
	var attained float64
	switch {
	case f.Kind == spanfacts.Collective:
		if f.GroupSize <= float64(r.Domain) {
			used, attained, d.Basis = r.Interconnect, d.BusRate, semconv.GPUIOBasisBusBandwidth
		}
	case f.Direction == semconv.GPUCopyDirectionHostToDevice, f.Direction == semconv.GPUCopyDirectionDeviceToHost:
		used, attained = r.Host, d.IORate
	case f.Direction == semconv.GPUCopyDirectionDeviceToDevice:
		used, attained, d.Basis = r.Memory, 2*d.IORate, semconv.GPUIOBasisReadAndWrite
	case f.Direction != "", f.Kind == spanfacts.Copy:
		// peer to peer, host to host, or an unspecified copy: the path is unknown
	case f.L2Hit > 0:
		used, attained, d.Basis = r.Memory, d.IORate*(1-f.L2Hit), semconv.GPUIOBasisL2Misses
	default:
		used, attained = r.Memory, d.IORate
	}
	var source Source
	if used.Rate > 0 && !math.IsNaN(attained) {
		d.IOUtilization = attained / used.Rate
		source = used.Source
	} else {
		d.Basis = ""
	}
	if flops := r.FLOPs[f.Precision]; flops.Rate > 0 && f.FLOPs > 0 {
		d.FLOPUtilization = d.FLOPRate / flops.Rate
		source = max(source, flops.Source)
	}
	d.PeakSource = source.String()
	switch {
	case d.IOUtilization > 1 || d.FLOPUtilization > 1:
		d.Declaration = semconv.GPUDeclarationStatusExceedsPeak
	case source != Unknown:
		d.Declaration = semconv.GPUDeclarationStatusOk
	}
}

// roofline classifies work on device memory (Williams, Waterman, Patterson: Roofline, CACM 52(4),
// 2009): with arithmetic intensity I, peak bandwidth B and peak P of the precision, the roof is
// min(P, I·B), the ridge P/B.
func (d *Values) roofline(f *spanfacts.Facts, r *Roof, t float64) {
	if f.Kind == spanfacts.Collective || f.Kind == spanfacts.Copy || f.Direction != "" {
		return
	}
	flops := r.FLOPs[f.Precision]
	dram := f.Size * (1 - f.L2Hit)
	var attained float64
	var bound string
	switch {
	case f.FLOPs > 0 && f.Size > 0 && flops.Rate > 0 && r.Memory.Rate > 0:
		// Written without I, so that no DRAM traffic at all (every byte a hit) is the flat part of
		// the roof.
		roofTime := max(f.FLOPs/flops.Rate, dram/r.Memory.Rate)
		attained = roofTime / t
		d.Utilization = attained
		bound = semconv.GPURooflineBoundMemory
		if f.FLOPs*r.Memory.Rate >= dram*flops.Rate {
			bound = semconv.GPURooflineBoundCompute
		}
	case f.Kind == spanfacts.Memset && !math.IsNaN(d.IOUtilization):
		attained, bound = d.IOUtilization, semconv.GPURooflineBoundMemory // nothing is computed: intensity 0
	default:
		attained = larger(d.IOUtilization, d.FLOPUtilization)
	}
	if math.IsNaN(attained) {
		return
	}
	switch {
	case attained < launchRoof && starved(f, t):
		d.Bound = semconv.GPURooflineBoundLaunch
	case bound != "" && attained < latencyRoof:
		d.Bound = semconv.GPURooflineBoundLatency
	default:
		d.Bound = bound // with half of the declaration missing the side of the ridge is unknown
	}
}

// starved reports whether the queue was almost empty when the host reached the end of a section of
// t seconds.
func starved(f *spanfacts.Facts, t float64) bool {
	return f.HasEndDelay && f.TimingError < launchShare*t && f.EndDelay < launchShare*t
}

// step derives throughput, MFU (Chowdhery et al.: PaLM, appendix B) and HFU of a step.
func (d *Values) step(f *spanfacts.Facts, r *Roof) Outcome {
	t := f.StepTime()
	if f.StepItems == 0 && f.ModelFLOPs == 0 && f.FLOPs == 0 {
		return Undeclared
	}
	if t == 0 {
		return Untimed
	}
	d.StepItemRate = rate(f.StepItems, t)
	if r == nil {
		return Derived
	}
	if flops := r.FLOPs[f.Precision]; flops.Rate > 0 {
		model := f.ModelFLOPs / max(f.Devices, 1) // of one device
		if model > 0 {
			d.MFU = model / (t * flops.Rate)
		}
		// Hardware cannot do less than the model needs: fewer FLOPs mean that only some sections
		// declare any.
		if f.FLOPs > 0 && f.FLOPs >= model*(1-1e-9) {
			// The sections below a step belong to this process and its device;
			// gpu.step.device.count applies to the model's FLOPs, which the application may state
			// for all ranks together.
			d.HFU = f.FLOPs / (t * flops.Rate)
		}
		if !math.IsNaN(d.MFU) || !math.IsNaN(d.HFU) {
			d.PeakSource = flops.Source.String()
		}
	}
	return Derived
}

// larger returns the larger of two values that may be absent; absent only if both are.
func larger(a, b float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return max(a, b)
}
