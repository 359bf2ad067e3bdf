// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
	"github.com/otelgpu/otelgpu/semconv"
)

// measured are the attributes of the catalogue: means over the span, time-weighted, and highest values. A MIG instance
// has its own ratios; other values are its physical GPU's if it lacks them.
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

// attributes writes a span's values from the samples.
type attributes struct {
	shift       int64
	energyOnMIG bool
	spanEvents  bool
	level       spanfacts.Level
	loads       *loads
	events      []gpusamplesextension.Event // of the span's boards
	values      []float64                   // of a span of several devices, by measured: sums and highest values
	weights     []float64                   // and of how many devices
}

// room returns how many attributes a span of a target usually gains here and from gpu_derive, the next processor:
// pdata's maps are slices, and one growth costs less than two.
func (a *attributes) room(g *gpuSpan, at *target) int {
	switch {
	case g.fault != sound || at.outcome != found:
		return 0
	case a.level == spanfacts.Full:
		return 32
	case at.method(g.end-g.start) == semconv.GPUJoinMethodInterval:
		return 7 + int(g.derives) // energy, power, SMs, tensor pipes, memory, clock, throttle reasons
	}
	return 4 + int(g.derives) // energy, power, SMs, throttle reasons
}

// write joins one span with its device and physical GPU in the current view. False: no sample is near.
func (a *attributes) write(
	span ptrace.Span, g *gpuSpan, at *target, share attribution.Share, shared bool, in *scope,
) bool {
	start, end := g.start+a.shift, g.end+a.shift
	dev, b := at.dev, at.board
	boardDev := b.meter.dev
	how := at.method(end - start)
	to := span.Attributes()
	to.EnsureCapacity(to.Len() + a.room(g, at))
	lean, marked := a.level == spanfacts.Lean, in.source != ""

	if at.hwID == "" { // found by another identity: later processors need not search again
		to.PutStr(string(semconv.HWIDKey), dev.Device().ID)
	}
	coverage, samples := dev.Coverage(start, end)
	if coverage > 0 {
		// Measured values are first: an attribute limit truncates the others.
		if shared && share.Ended && share.Covered > 0 && (a.energyOnMIG || dev.Device().Parent == "") {
			to.PutDouble(string(semconv.GPUEnergyKey), spanfacts.Round12(max(0, share.Value)))
			a.bound(g, at, to)
			whole, _ := boardDev.Integral(b.meter.field, start, end)
			a.energyError(to, share.Value, whole, b.energyError(start, end))
			if share.Own != share.Value {
				to.PutDouble(string(semconv.GPUSelfEnergyKey), spanfacts.Round12(max(0, share.Own)))
			}
			// The share covers only the counter as known when it was attributed; the quality is the worst value's.
			if c := float64(share.Covered) / float64(end-start); c < coverage-1e-6 {
				coverage = c
			}
		}
		var h holdback
		h.add(either(dev, boardDev, gpusamplesextension.Throttle), start, end)
		throttled := a.throttle(to, &h, end-start)
		if lean {
			a.leanMeans(to, at, start, end, how, throttled)
		} else {
			a.fullMeans(g, to, at, start, end)
		}
	}
	a.events = boardDev.Events(start, end, a.events[:0])
	a.met(span)
	if share.Late > 0 {
		to.PutDouble(string(semconv.GPUJoinLateDurationKey), spanfacts.Round12(float64(share.Late)*1e-9))
	}
	if !lean || coverage < wholeCoverage || !marked {
		to.PutDouble(string(semconv.GPUJoinCoverageKey), spanfacts.Round12(coverage))
	}
	if !lean {
		to.PutInt(string(semconv.GPUJoinSamplesKey), int64(samples))
	}
	if source := dev.Device().Source; source != "" && !marked {
		to.PutStr(string(semconv.GPUMeasurementSourceKey), source)
	}
	if coverage > 0 && (!lean || how != in.method) {
		to.PutStr(string(semconv.GPUJoinMethodKey), how)
	}
	return coverage > 0
}

// fullMeans writes everything that the device and its physical GPU measure.
func (a *attributes) fullMeans(g *gpuSpan, to pcommon.Map, at *target, start, end int64) {
	dev := at.dev
	for i := range measured {
		m := &measured[i]
		if x, ok := at.board.measure(dev, m.quantity, start, end); ok {
			to.PutDouble(m.key, spanfacts.Round12(x))
		}
	}
	if !g.hasMemory {
		if used, known := dev.Mean(gpusamplesextension.MemoryUsed, start, end); known > 0 {
			to.PutInt(string(semconv.GPUMemoryUsageKey), int64(math.Round(used)))
		}
	}
}

// measure returns the value of a quantity over a span, from a device of the physical GPU or from the GPU if the device
// lacks it; power also from the energy counter, for GPUs that do not sample it.
func (b *board) measure(dev gpusamplesextension.DeviceView, f gpuquantity.Quantity, start, end int64,
) (x float64, ok bool) {
	span := &f.Info().Span
	if !span.OwnOnly {
		dev = either(dev, b.meter.dev, f)
	}
	if span.Max {
		return dev.Max(f, start, end)
	}
	x, known := dev.Mean(f, start, end)
	if known == 0 && f == gpusamplesextension.Power && b.meter.known {
		x, known = b.meter.dev.Mean(gpusamplesextension.Energy, start, end)
	}
	return x, known > 0
}

// leanMeans writes what shows whether the device computed, moved data or was throttled. A span shorter than a sample
// has the values of its surroundings, of which only power and the utilization of the SMs are relevant; the clock is
// written if it was throttled.
func (a *attributes) leanMeans(to pcommon.Map, at *target, start, end int64, how string, throttled bool) {
	put := func(q gpuquantity.Quantity) bool {
		x, ok := at.board.measure(at.dev, q, start, end)
		if ok {
			to.PutDouble(string(q.Info().Span.Key), spanfacts.Round5(x))
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
func either(dev, board gpusamplesextension.DeviceView, f gpusamplesextension.Field) gpusamplesextension.DeviceView {
	if dev.Has(f) {
		return dev
	}
	return board
}

// holdback is how long and why any of a span's devices was throttled.
type holdback struct {
	known bool
	part  float64 // of the span, on the device where it is most
	mask  gpusamplesextension.ThrottleReason
}

func (h *holdback) add(dev gpusamplesextension.DeviceView, start, end int64) {
	share, known := dev.Mean(gpusamplesextension.Throttle, start, end)
	h.known = h.known || known > 0
	h.part = max(h.part, share*known)
	if share > 0 {
		h.mask |= gpusamplesextension.ThrottleReason(dev.Mask(gpusamplesextension.Throttle, start, end))
	}
}

// throttle writes for how long and why a device was throttled; it reports whether it was. At level lean a time of 0 is
// not stated, and one of the whole span only by its reasons.
func (a *attributes) throttle(to pcommon.Map, h *holdback, length int64) bool {
	if !h.known {
		return false
	}
	if a.level == spanfacts.Full || h.part > 0 && (h.part < wholeCoverage || h.mask == 0) {
		to.PutDouble(string(semconv.GPUThrottleTimeKey), spanfacts.Round12(h.part*float64(length)*1e-9))
	}
	if h.mask == 0 {
		return h.part > 0
	}
	reasons := make([]string, 0, 8)
	h.mask.Each(func(r gpusamplesextension.ThrottleReason) { reasons = append(reasons, r.String()) })
	slices.Sort(reasons)
	list := to.PutEmptySlice(string(semconv.GPUThrottleReasonsKey))
	list.EnsureCapacity(len(reasons))
	for _, r := range reasons {
		list.AppendEmpty().SetStr(r)
	}
	return true
}

// met writes the events of its physical GPUs that occurred during the span.
func (a *attributes) met(span ptrace.Span) {
	to := span.Attributes()
	var xids pcommon.Slice
	hasXID := false
	errs := int64(0)
	for _, e := range a.events {
		switch e.Kind {
		case gpusamplesextension.EventXID:
			if !hasXID {
				hasXID = true
				xids = to.PutEmptySlice(string(semconv.GPUXIDKey))
			}
			xids.AppendEmpty().SetInt(e.Code)
		case gpusamplesextension.EventECCCorrected, gpusamplesextension.EventECCUncorrected:
			errs += e.Count
		}
		if a.spanEvents {
			a.spanEvent(span, e)
		}
	}
	if errs > 0 {
		to.PutInt(string(semconv.GPUECCErrorsKey), errs)
	}
}

// spanEvent adds an event with the names that the gpu receiver uses in its log records.
func (a *attributes) spanEvent(span ptrace.Span, e gpusamplesextension.Event) {
	ev := span.Events().AppendEmpty()
	ev.SetTimestamp(pcommon.Timestamp(e.Time - a.shift))
	switch e.Kind {
	case gpusamplesextension.EventXID:
		ev.SetName(string(semconv.GPUXIDKey))
		ev.Attributes().PutInt(string(semconv.GPUEventCodeKey), e.Code)
	case gpusamplesextension.EventECCCorrected:
		ev.SetName("gpu.ecc")
		ev.Attributes().PutStr(string(semconv.ErrorTypeKey), semconv.ErrorTypeECCCorrected)
	case gpusamplesextension.EventECCUncorrected:
		ev.SetName("gpu.ecc")
		ev.Attributes().PutStr(string(semconv.ErrorTypeKey), semconv.ErrorTypeECCUncorrected)
	case gpusamplesextension.EventThrottleStart, gpusamplesextension.EventThrottleEnd:
		ev.SetName("gpu.throttle")
		ev.Attributes().PutStr(string(semconv.GPUThrottleReasonKey), gpusamplesextension.ThrottleReason(e.Code).String())
	}
}
