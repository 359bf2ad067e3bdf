// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"math"

	"github.com/otelgpu/otelgpu/internal/busbandwidth"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// The thresholds of the definitions. They are not configurable: a number in a dashboard must mean the same everywhere.
const (
	// floorFactor: a section shorter than this many empty sections is mostly the cost of timing.
	floorFactor = semconv.FindingBelowFloorFloor
	// launchShare: the host was still submitting for all but this share of the section's GPU time, so the queue was empty
	// at its end: the GPU waited for the host.
	launchShare = semconv.FindingLaunchBoundQueue
	// launchRoof: a section at or above this share of its roof was not starved, regardless of its delays (an application
	// that synchronizes before End shows the same delay).
	launchRoof = semconv.FindingLaunchBoundRoof
	// latencyRoof: below this share of the roof neither bandwidth nor arithmetic limits.
	latencyRoof = semconv.FindingLaunchBoundLatency
)

// derived has the values derived for a span; fields at NaN or "" are absent.
type derived struct {
	ioRate, readRate, writeRate, busRate float64
	ioUtil, flopRate, flopUtil           float64
	intensity, roofUtil, itemRate        float64
	stepItemRate, mfu, hfu               float64
	basis, bound, peakSource             string
	declaration, rateStatus              string
}

var absent = derived{
	ioRate: math.NaN(), readRate: math.NaN(), writeRate: math.NaN(), busRate: math.NaN(),
	ioUtil: math.NaN(), flopRate: math.NaN(), flopUtil: math.NaN(),
	intensity: math.NaN(), roofUtil: math.NaN(), itemRate: math.NaN(),
	stepItemRate: math.NaN(), mfu: math.NaN(), hfu: math.NaN(),
}

// outcome is counted by the processor's own telemetry.
type outcome uint8

const (
	outcomeDerived outcome = iota
	outcomeBelowFloor
	outcomeUntimed
	outcomeUndeclared
	outcomes
)

// derive computes everything that the facts allow for a roof (nil: unknown device). floor is the duration of an empty
// section in seconds, for spans that do not state it.
func (d *derived) derive(f *spanfacts.Facts, r *roof, floor float64) outcome {
	*d = absent
	if f.Kind == spanfacts.Step {
		return d.step(f, r)
	}
	if f.Size == 0 && f.FLOPs == 0 && f.Items == 0 {
		return outcomeUndeclared
	}
	if f.Size > 0 && f.FLOPs > 0 {
		d.intensity = f.FLOPs / f.Size // of the declared values; needs no time
	}
	t := f.Time
	if t == 0 {
		return outcomeUntimed
	}
	switch {
	case f.Recorded():
		floor = 0 // a record of the profiler, not a pair of events
	case f.HasFloor:
		floor = f.Floor
	}
	if t < floorFactor*floor {
		d.rateStatus = semconv.GPURateStatusBelowFloor
		return outcomeBelowFloor
	}
	d.rateStatus = semconv.GPURateStatusOk
	d.rates(f, t)
	if r != nil {
		d.utilization(f, r, t)
		d.roofline(f, r, t)
	}
	return outcomeDerived
}

func (d *derived) rates(f *spanfacts.Facts, t float64) {
	d.ioRate = rate(f.Size, t)
	d.readRate = rate(f.Read, t)
	d.writeRate = rate(f.Write, t)
	d.flopRate = rate(f.FLOPs, t)
	d.itemRate = rate(f.Items, t)
	if factor := busbandwidth.Factor(f.Collective, f.GroupSize); f.Kind == spanfacts.Collective && factor > 0 {
		d.busRate = d.ioRate * factor
	}
}

// rate returns amount per second, or NaN if amount is absent.
func rate(amount, t float64) float64 {
	if amount == 0 {
		return math.NaN()
	}
	return amount / t
}

// utilization compares the rates with the peak of the link that the bytes used and with the peak of the precision.
func (d *derived) utilization(f *spanfacts.Facts, r *roof, t float64) {
	var used peak
	var attained float64
	switch {
	case f.Kind == spanfacts.Collective:
		if f.GroupSize <= float64(r.domain) {
			used, attained, d.basis = r.interconnect, d.busRate, semconv.GPUIOBasisBusBandwidth
		}
	case f.Direction == semconv.GPUCopyDirectionHostToDevice, f.Direction == semconv.GPUCopyDirectionDeviceToHost:
		used, attained = r.host, d.ioRate
	case f.Direction == semconv.GPUCopyDirectionDeviceToDevice:
		used, attained, d.basis = r.memory, 2*d.ioRate, semconv.GPUIOBasisReadAndWrite
	case f.Direction != "", f.Kind == spanfacts.Copy:
		// peer to peer, host to host, or an unspecified copy: the path is unknown
	case f.L2Hit > 0:
		used, attained, d.basis = r.memory, d.ioRate*(1-f.L2Hit), semconv.GPUIOBasisL2Misses
	default:
		used, attained = r.memory, d.ioRate
	}
	var source peakSource
	if used.rate > 0 && !math.IsNaN(attained) {
		d.ioUtil = attained / used.rate
		source = used.source
	} else {
		d.basis = ""
	}
	if flops := r.flops[f.Precision]; flops.rate > 0 && f.FLOPs > 0 {
		d.flopUtil = d.flopRate / flops.rate
		source = max(source, flops.source)
	}
	d.peakSource = source.String()
	switch {
	case d.ioUtil > 1 || d.flopUtil > 1:
		d.declaration = semconv.GPUDeclarationStatusExceedsPeak
	case source != peakUnknown:
		d.declaration = semconv.GPUDeclarationStatusOk
	}
}

// roofline classifies work on device memory (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009): with
// arithmetic intensity I, peak bandwidth B and peak P of the precision, the roof is min(P, I·B), the ridge P/B.
func (d *derived) roofline(f *spanfacts.Facts, r *roof, t float64) {
	if f.Kind == spanfacts.Collective || f.Kind == spanfacts.Copy || f.Direction != "" {
		return
	}
	flops := r.flops[f.Precision]
	dram := f.Size * (1 - f.L2Hit)
	var attained float64
	var bound string
	switch {
	case f.FLOPs > 0 && f.Size > 0 && flops.rate > 0 && r.memory.rate > 0:
		// Written without I, so that no DRAM traffic at all (every byte a hit) is the flat part of the roof.
		roofTime := max(f.FLOPs/flops.rate, dram/r.memory.rate)
		attained = roofTime / t
		d.roofUtil = attained
		bound = semconv.GPURooflineBoundMemory
		if f.FLOPs*r.memory.rate >= dram*flops.rate {
			bound = semconv.GPURooflineBoundCompute
		}
	case f.Kind == spanfacts.Memset && !math.IsNaN(d.ioUtil):
		attained, bound = d.ioUtil, semconv.GPURooflineBoundMemory // nothing is computed: intensity 0
	default:
		attained = larger(d.ioUtil, d.flopUtil)
	}
	if math.IsNaN(attained) {
		return
	}
	switch {
	case attained < launchRoof && starved(f, t):
		d.bound = semconv.GPURooflineBoundLaunch
	case bound != "" && attained < latencyRoof:
		d.bound = semconv.GPURooflineBoundLatency
	default:
		d.bound = bound // with half of the declaration missing the side of the ridge is unknown
	}
}

// starved reports whether the queue was almost empty when the host reached the end of a section of t seconds.
func starved(f *spanfacts.Facts, t float64) bool {
	return f.HasEndDelay && f.TimingError < launchShare*t && f.EndDelay < launchShare*t
}

// step derives throughput, MFU (Chowdhery et al.: PaLM, appendix B) and HFU of a step.
func (d *derived) step(f *spanfacts.Facts, r *roof) outcome {
	t := f.StepTime()
	if f.StepItems == 0 && f.ModelFLOPs == 0 && f.FLOPs == 0 {
		return outcomeUndeclared
	}
	if t == 0 {
		return outcomeUntimed
	}
	d.stepItemRate = rate(f.StepItems, t)
	if r == nil {
		return outcomeDerived
	}
	if flops := r.flops[f.Precision]; flops.rate > 0 {
		model := f.ModelFLOPs / max(f.Devices, 1) // of one device
		if model > 0 {
			d.mfu = model / (t * flops.rate)
		}
		// Hardware cannot do less than the model needs: fewer FLOPs mean that only some sections declare any.
		if f.FLOPs > 0 && f.FLOPs >= model*(1-1e-9) {
			// The sections below a step belong to this process and its device; gpu.step.device.count applies to the model's
			// FLOPs, which the application may state for all ranks together.
			d.hfu = f.FLOPs / (t * flops.rate)
		}
		if !math.IsNaN(d.mfu) || !math.IsNaN(d.hfu) {
			d.peakSource = flops.source.String()
		}
	}
	return outcomeDerived
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
