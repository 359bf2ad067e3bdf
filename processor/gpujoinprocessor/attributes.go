// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/fairshare"
	"github.com/otelgpu/otelgpu/semconv"
)

// means are the attributes that are time-weighted means over the span. A MIG instance has ratios of its own; the others
// (of the board) are the board's where the instance lacks them.
var means = [...]struct {
	key   string
	field gpusamplesextension.Field
	ratio bool
}{
	{string(semconv.GPUUtilizationKey), gpusamplesextension.Utilization, true},
	{string(semconv.GPUSMUtilizationKey), gpusamplesextension.SMUtilization, true},
	{string(semconv.GPUSMOccupancyKey), gpusamplesextension.SMOccupancy, true},
	{string(semconv.GPUTensorUtilizationKey), gpusamplesextension.TensorUtilization, true},
	{string(semconv.GPUDRAMUtilizationKey), gpusamplesextension.DRAMUtilization, true},
	{string(semconv.GPUClockSMFrequencyKey), gpusamplesextension.ClockSM, false},
	{string(semconv.GPUClockMemoryFrequencyKey), gpusamplesextension.ClockMemory, false},
	{string(semconv.GPUPowerKey), gpusamplesextension.Power, false},
}

// room is made for the 16 attributes that a joined span mostly gains and for those that gpu_derive, the next processor,
// adds to it: pdata's maps are slices, and one growth costs less than two.
const room = 32

// attributes writes what the samples say about a span.
type attributes struct {
	shift       int64
	energyOnMIG bool
	spanEvents  bool
	events      []gpusamplesextension.Event
	to          writer
}

// write joins one span with its device and board in the current view. False: no sample is near.
func (a *attributes) write(g *gpuSpan, at *place, share fairshare.Share, shared bool) bool {
	start, end := g.share.Start+a.shift, g.share.End+a.shift
	dev, b := at.dev, at.board
	boardDev := b.meter.dev
	to := &a.to
	to.open(g.span.Attributes(), room, !g.again)
	defer to.close()

	if at.hwID == "" { // found by another identity: whoever comes next need not search again
		to.str(string(semconv.HWIDKey), dev.Device().ID)
	}
	coverage, samples := dev.Coverage(start, end)
	if coverage > 0 {
		for i := range means {
			m := &means[i]
			d := dev
			if !m.ratio {
				d = either(dev, boardDev, m.field)
			}
			if mean, known := d.Mean(m.field, start, end); known > 0 {
				to.double(m.key, tidy(mean))
			} else if m.field == gpusamplesextension.Power && b.meter.known {
				if watt, known := boardDev.Mean(gpusamplesextension.Energy, start, end); known > 0 {
					to.double(m.key, tidy(watt))
				}
			}
		}
		if !g.hasMemory {
			if used, known := dev.Mean(gpusamplesextension.MemoryUsed, start, end); known > 0 {
				to.int(string(semconv.GPUMemoryUsageKey), int64(math.Round(used)))
			}
		}
		if t, ok := either(dev, boardDev, gpusamplesextension.Temperature).Max(gpusamplesextension.Temperature, start, end); ok {
			to.double(string(semconv.GPUTemperatureMaxKey), tidy(t))
		}
		a.throttle(to, either(dev, boardDev, gpusamplesextension.Throttle), start, end)
		if shared && share.Ended && share.Covered > 0 && (a.energyOnMIG || dev.Device().Parent == "") {
			to.double(string(semconv.GPUEnergyKey), tidy(max(0, share.Value)))
			if share.Own != share.Value {
				to.double(string(semconv.GPUSelfEnergyKey), tidy(max(0, share.Own)))
			}
			// The share knows only what was there when it was dealt out; the quality is that of the worst value.
			if c := float64(share.Covered) / float64(end-start); c < coverage-1e-6 {
				coverage = c
			}
		}
	}
	a.met(g, to, boardDev, start, end)
	if share.Late > 0 {
		to.double(string(semconv.GPUJoinLateDurationKey), tidy(float64(share.Late)*1e-9))
	}
	to.double(string(semconv.GPUJoinCoverageKey), tidy(coverage))
	to.int(string(semconv.GPUJoinSamplesKey), int64(samples))
	if source := dev.Device().Source; source != "" {
		to.str(string(semconv.GPUMeasurementSourceKey), source)
	}
	if coverage > 0 {
		to.str(string(semconv.GPUJoinMethodKey), method(dev, boardDev, end-start))
	}
	return coverage > 0
}

// either is the device when it measures the field, else its board.
func either(dev, board gpusamplesextension.DeviceView, f gpusamplesextension.Field) gpusamplesextension.DeviceView {
	if dev.Has(f) {
		return dev
	}
	return board
}

// method says whether a span is long enough for values of its own.
func method(dev, board gpusamplesextension.DeviceView, length int64) string {
	if length < int64(max(dev.Interval(), board.UpdatePeriod(gpusamplesextension.Energy))) {
		return semconv.GPUJoinMethodCell
	}
	return semconv.GPUJoinMethodInterval
}

func (a *attributes) throttle(to *writer, dev gpusamplesextension.DeviceView, start, end int64) {
	share, known := dev.Mean(gpusamplesextension.Throttle, start, end)
	if known == 0 {
		return
	}
	to.double(string(semconv.GPUThrottleTimeKey), tidy(share*known*float64(end-start)*1e-9))
	mask := gpusamplesextension.ThrottleReason(dev.Mask(gpusamplesextension.Throttle, start, end))
	if mask == 0 {
		return
	}
	reasons := make([]string, 0, 8)
	mask.Each(func(r gpusamplesextension.ThrottleReason) { reasons = append(reasons, r.String()) })
	slices.Sort(reasons)
	list := to.slice(string(semconv.GPUThrottleReasonsKey))
	list.EnsureCapacity(len(reasons))
	for _, r := range reasons {
		list.AppendEmpty().SetStr(r)
	}
}

// met writes the events of the board that fell into the span.
func (a *attributes) met(g *gpuSpan, to *writer, dev gpusamplesextension.DeviceView, start, end int64) {
	a.events = dev.Events(start, end, a.events[:0])
	if len(a.events) == 0 {
		return
	}
	var xids pcommon.Slice
	hasXID := false
	errs := int64(0)
	for _, e := range a.events {
		switch e.Kind {
		case gpusamplesextension.EventXID:
			if !hasXID {
				hasXID = true
				xids = to.slice(string(semconv.GPUXIDKey))
			}
			xids.AppendEmpty().SetInt(e.Code)
		case gpusamplesextension.EventECCCorrected, gpusamplesextension.EventECCUncorrected:
			errs += e.Count
		}
		if a.spanEvents {
			a.spanEvent(g, e)
		}
	}
	if errs > 0 {
		to.int(string(semconv.GPUECCErrorsKey), errs)
	}
}

// spanEvent adds an event by the names that the gpu receiver gives its log records.
func (a *attributes) spanEvent(g *gpuSpan, e gpusamplesextension.Event) {
	ev := g.span.Events().AppendEmpty()
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
