// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
	"github.com/otelgpu/otelgpu/semconv"
)

// measured are the attributes of the catalogue: means over the span, time-weighted, and highest
// values. A MIG instance has its own ratios; other values are its physical GPU's if it lacks them.
var measured = func() (list []spanValue) {
	for _, q := range gpuquantity.All() {
		if span := &q.Info().Span; span.Key != "" {
			list = append(list, spanValue{span, string(span.Key), q})
		}
	}
	return list
}()

// spanValue is a quantity for which a span has an attribute.
type spanValue struct {
	*gpuquantity.Span
	key      string
	quantity gpuquantity.Quantity
}

// wholeCoverage is the coverage from which it counts as complete.
const wholeCoverage = 0.99

// attributes finds a span's values in the samples.
type attributes struct {
	shift       int64
	energyOnMIG bool
	spanEvents  bool
	level       spanfacts.Level
	loads       *loads
	events      []devicesamples.Event // of the span's boards
	spots       []spot                // the span's devices
}

// write joins one span with its devices in the current view: energy is the sum over their physical
// GPUs, and known only if each one's is; means are over all devices that measure; memory is the sum,
// temperature and throttle time are the worst. more has the span's handles on further devices. False:
// no sample is near one of them.
func (a *attributes) write(
	to *results, g *gpuSpan, x *target, more []attribution.Handle, share attribution.Share, shared bool,
	further, furtherBound float64, in *scope,
) bool {
	start, end := g.start+a.shift, g.end+a.shift
	several := more != nil
	lean, marked := a.level == spanfacts.Lean, in.source != ""

	a.spots, a.events = append(a.spots[:0], spot{board: x.board, dev: x.dev}), a.events[:0]
	if several {
		a.spots = append(a.spots, x.more...)
	}
	coverage, samples, known := 1.0, math.MaxInt, shared
	energy, bound, own, late := further, furtherBound, 0.0, int64(0)
	var held holdback
	for i := range a.spots {
		s := &a.spots[i]
		c, n := s.dev.Coverage(start, end)
		coverage, samples = min(coverage, c), min(samples, n)
		held.add(either(s.dev, s.board.meter.dev, devicesamples.Throttle), start, end)
		known = known && (a.energyOnMIG || s.dev.Device().Parent == "")
		if s.again {
			continue
		}
		if i > 0 {
			share, shared = s.board.dev.Share(g.Key, more[i-1])
			known = known && shared
		}
		known = known && share.Ended && share.Covered > 0
		s.own = max(0, share.Own)
		energy, own, late = energy+max(0, share.Value), own+s.own, max(late, share.Late)
		bound += s.board.boundOf(start, end, share.Value) + share.Short
		bound += s.board.meter.shareError(x.res, start, end, share.Value)
		// The share covers only the counter as known when it was attributed; the quality is the worst
		// value's.
		if c := max(float64(share.Covered)/float64(end-start), 0); (known || several) && c < coverage-1e-6 {
			coverage = c
		}
		a.events = s.board.meter.dev.Events(start, end, a.events)
	}
	if x.ahead {
		a.withhold()
		return true
	}
	switch {
	case several:
		to.putInt(string(semconv.GPUDeviceCountKey), int64(len(a.spots)))
	case x.hwID == "": // found by another identity: later processors need not search again
		to.putStr(string(semconv.HWIDKey), x.dev.Device().ID)
	}
	how := x.method(end - start)
	if coverage > 0 {
		// Measured values are first: an attribute limit truncates the others.
		switch {
		case known && energy > 0 && bound > energy:
			to.withheld++
			a.withhold()
		case known:
			a.energy(g, x, to, energy, own, bound)
		}
		throttled := a.throttle(to, &held, end-start)
		if lean {
			a.leanMeans(to, start, end, how, throttled)
		} else {
			a.fullMeans(g, to, start, end)
		}
	}
	to.putEvents(a.events)
	if late > 0 {
		to.putDouble(string(semconv.GPUJoinLateDurationKey), spanfacts.Round12(float64(late)*1e-9))
	}
	if !lean || coverage < wholeCoverage || !marked {
		to.putDouble(string(semconv.GPUJoinCoverageKey), spanfacts.Round12(coverage))
	}
	if !lean {
		to.putInt(string(semconv.GPUJoinSamplesKey), int64(samples))
	}
	if source := x.dev.Device().Source; source != "" && !marked {
		to.putStr(string(semconv.GPUMeasurementSourceKey), source)
	}
	if coverage > 0 && (!lean || how != in.method) {
		to.putStr(string(semconv.GPUJoinMethodKey), how)
	}
	return coverage > 0
}

// withhold counts the energy of a span that is not shown because it, or the span's time, is too
// uncertain.
func (a *attributes) withhold() {
	for i := range a.spots {
		a.spots[i].board.energy.withheld += a.spots[i].own
	}
}

// energy writes a span's energy with its own part and its error.
func (a *attributes) energy(g *gpuSpan, at *target, to *results, energy, own, bound float64) {
	to.putDouble(string(semconv.GPUEnergyKey), spanfacts.Round12(energy))
	if at.behind != 0 {
		bound = min(bound+at.misplaced(g.start+a.shift, g.end+a.shift, energy), energy)
	}
	if at.request {
		most, contradicted := a.countError(at.res.server, g.end-g.start)
		bound = min(bound+energy*most, energy) // the sum over requests is still right
		if contradicted || !a.loads.known(at.res, g.start+a.shift, g.end+a.shift) {
			to.putStr(string(semconv.GPUEnergyBoundKey), semconv.GPUEnergyBoundUpper)
		}
	}
	if energy > 0 && bound >= leastError*energy {
		to.putDouble(string(semconv.GPUEnergyErrorKey), spanfacts.Round5(bound))
	}
	if own != energy {
		to.putDouble(string(semconv.GPUSelfEnergyKey), spanfacts.Round12(own))
	}
}

// fullMeans writes everything that the devices and their physical GPUs measure.
func (a *attributes) fullMeans(g *gpuSpan, to *results, start, end int64) {
	for i := range measured {
		m := &measured[i]
		if x, ok := a.measure(m.quantity, start, end); ok {
			to.putDouble(m.key, spanfacts.Round12(x))
		}
	}
	if g.hasMemory {
		return
	}
	memory := 0.0
	for i := range a.spots {
		used, known := a.spots[i].dev.Mean(devicesamples.MemoryUsed, start, end)
		if memory += used; known == 0 {
			return
		}
	}
	to.putInt(string(semconv.GPUMemoryUsageKey), int64(math.Round(memory)))
}

// measure returns the mean of a quantity over the span's devices that measure it, or the highest
// value.
func (a *attributes) measure(q gpuquantity.Quantity, start, end int64) (x float64, ok bool) {
	n := 0.0
	for i := range a.spots {
		v, known := a.spots[i].board.measure(a.spots[i].dev, q, start, end)
		switch {
		case !known:
		case n > 0 && q.Info().Span.Max:
			x = max(x, v)
		default:
			x, n = x+v, n+1
		}
	}
	return x / max(n, 1), n > 0
}

// measure returns the value of a quantity over a span, from a device of the physical GPU or from
// the GPU if the device lacks it; power also from the energy counter, for GPUs that do not sample
// it.
func (b *board) measure(dev devicesamples.DeviceView, f gpuquantity.Quantity, start, end int64,
) (x float64, ok bool) {
	if b.checks.idle && (f == devicesamples.Utilization || f == devicesamples.SMUtilization) {
		return 0, false
	}
	span := &f.Info().Span
	if !span.OwnOnly {
		dev = either(dev, b.meter.dev, f)
	}
	if span.Max {
		return dev.Max(f, start, end)
	}
	x, known := dev.Mean(f, start, end)
	if known == 0 && f == devicesamples.Power {
		x, known = b.meter.dev.Mean(devicesamples.Energy, start, end)
	}
	return x, known > 0
}

// leanMeans writes what shows whether the device computed, moved data or was throttled. A span
// shorter than a sample has the values of its surroundings, of which only power and the utilization
// of the SMs are relevant; the clock is written if it was throttled.
func (a *attributes) leanMeans(to *results, start, end int64, how string, throttled bool) {
	put := func(q gpuquantity.Quantity) bool {
		x, ok := a.measure(q, start, end)
		if ok {
			to.putDouble(string(q.Info().Span.Key), spanfacts.Round5(x))
		}
		return ok
	}
	put(gpuquantity.Power)
	if !put(gpuquantity.SMUtilization) {
		put(gpuquantity.Utilization) // what NVML has
	}
	if how == semconv.GPUJoinMethodInterval {
		for i := range measured {
			if m := &measured[i]; m.Lean && m.quantity != gpuquantity.Power && m.quantity != gpuquantity.SMUtilization {
				put(m.quantity)
			}
		}
		if throttled {
			put(gpuquantity.ClockSM)
		}
	}
}

// either returns the device if it measures the field, otherwise its physical GPU.
func either(dev, board devicesamples.DeviceView, f devicesamples.Field) devicesamples.DeviceView {
	if dev.Has(f) {
		return dev
	}
	return board
}

// holdback is how long and why any of a span's devices was throttled.
type holdback struct {
	known bool
	part  float64 // of the span, on the device where it is most
	mask  devicesamples.ThrottleReason
}

func (h *holdback) add(dev devicesamples.DeviceView, start, end int64) {
	share, known := dev.Mean(devicesamples.Throttle, start, end)
	h.known = h.known || known > 0
	h.part = max(h.part, share*known)
	if share > 0 {
		h.mask |= devicesamples.ThrottleReason(dev.Mask(devicesamples.Throttle, start, end))
	}
}

// throttle writes for how long and why a device was throttled; it reports whether it was. At level
// lean a time of 0 is not stated, and one of the whole span only by its reasons.
func (a *attributes) throttle(to *results, h *holdback, length int64) bool {
	if !h.known {
		return false
	}
	if a.level == spanfacts.Full || h.part > 0 && (h.part < wholeCoverage || h.mask == 0) {
		to.putDouble(string(semconv.GPUThrottleTimeKey), spanfacts.Round12(h.part*float64(length)*1e-9))
	}
	if h.mask == 0 {
		return h.part > 0
	}
	to.putReasons(h.mask)
	return true
}
