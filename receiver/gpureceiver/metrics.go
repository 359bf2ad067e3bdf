// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"math/bits"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
	"github.com/otelgpu/otelgpu/semconv"
)

// metricDef is one metric that the receiver can emit; unit, instrument and description are the registry's. emit adds
// the points of one device; nil: those of the quantities.
type metricDef struct {
	semconv.Metric
	name       string
	off        bool   // emitted only where the configuration says so
	key        string // of the attribute by which the quantities differ
	quantities []valueOf
	emit       func(w *pointWriter, d *deviceState)
}

// valueOf is a quantity with its value of the metric's attribute.
type valueOf struct {
	gpudata.Quantity
	value string
}

func only(q gpudata.Quantity) []valueOf { return []valueOf{{Quantity: q}} }

var directions = string(semconv.NetworkIODirectionKey)

// metricDefs are all metrics, by name. Points have the time of the sample they come from: an instant is the newest
// sample, a ratio the time-weighted mean over the samples since the last emission, a counter what was counted since
// its first sample. Without a new sample there is no point.
var metricDefs = []metricDef{
	{name: semconv.GPUClockFrequencyName, key: string(semconv.GPUClockTypeKey), quantities: []valueOf{
		{gpudata.ClockGraphics, semconv.GPUClockTypeGraphics},
		{gpudata.ClockMemory, semconv.GPUClockTypeMemory},
		{gpudata.ClockSM, semconv.GPUClockTypeSM},
		{gpudata.ClockVideo, semconv.GPUClockTypeVideo},
	}},
	{name: semconv.GPUDRAMUtilizationName, quantities: only(gpudata.DRAMUtilization)},
	{name: semconv.GPUFLOPRateLimitName, off: true, emit: emitFLOPRateLimit},
	{name: semconv.GPUMemoryBandwidthLimitName, off: true, emit: emitBandwidthLimit},
	{name: semconv.GPUNVLinkIOName, key: directions, quantities: []valueOf{
		{gpudata.NVLinkReceive, semconv.NetworkIODirectionReceive},
		{gpudata.NVLinkTransmit, semconv.NetworkIODirectionTransmit},
	}},
	{name: semconv.GPUPCIeIOName, key: directions, quantities: []valueOf{
		{gpudata.PCIeReceive, semconv.NetworkIODirectionReceive}, {gpudata.PCIeTransmit, semconv.NetworkIODirectionTransmit},
	}},
	{name: semconv.GPUPipeUtilizationName, key: string(semconv.GPUPipeKey), quantities: []valueOf{
		{gpudata.PipeFP16, semconv.GPUPipeFp16},
		{gpudata.PipeFP32, semconv.GPUPipeFp32},
		{gpudata.PipeFP64, semconv.GPUPipeFp64},
		{gpudata.PipeInt, semconv.GPUPipeInt},
		{gpudata.PipeTensorDFMA, semconv.GPUPipeTensorDfma},
		{gpudata.PipeTensorHMMA, semconv.GPUPipeTensorHmma},
		{gpudata.PipeTensorIMMA, semconv.GPUPipeTensorImma},
	}, off: true},
	{name: semconv.GPUProcessMemoryUsageName, off: true, emit: emitProcesses},
	{name: semconv.GPUSMOccupancyName, quantities: only(gpudata.SMOccupancy)},
	{name: semconv.GPUSMUtilizationName, quantities: only(gpudata.SMUtilization)},
	{name: semconv.GPUTensorUtilizationName, quantities: only(gpudata.TensorUtilization)},
	{name: semconv.GPUThrottleTimeName, emit: emitThrottle},
	{name: semconv.HWEnergyName, quantities: only(gpudata.Energy)},
	{name: semconv.HWErrorsName, key: string(semconv.ErrorTypeKey), quantities: []valueOf{
		{gpudata.ECCCorrected, semconv.ErrorTypeECCCorrected},
		{gpudata.ECCUncorrected, semconv.ErrorTypeECCUncorrected},
		{gpudata.NVLinkCRC, semconv.ErrorTypeNVLinkCrc},
		{gpudata.PCIeReplays, semconv.ErrorTypePCIeReplay},
		{gpudata.RetiredCorrected, semconv.ErrorTypeRetiredPageCorrected},
		{gpudata.RetiredUncorrected, semconv.ErrorTypeRetiredPageUncorrected},
		{gpudata.RemappedCorrected, semconv.ErrorTypeRowRemapCorrected},
		{gpudata.RemappedUncorrected, semconv.ErrorTypeRowRemapUncorrected},
		{gpudata.XIDs, semconv.ErrorTypeXID},
	}},
	{name: semconv.HWGPUMemoryLimitName, emit: func(w *pointWriter, d *deviceState) {
		if s := &d.series[gpudata.MemoryLimit]; s.fresh {
			w.point(s.time, "", "").SetIntValue(int64(s.value))
		}
	}},
	{name: semconv.HWGPUMemoryUsageName, emit: func(w *pointWriter, d *deviceState) {
		if s := &d.series[gpudata.MemoryUsed]; s.fresh {
			w.present(s.time, "", "").SetIntValue(int64(s.value))
		}
	}},
	{name: semconv.HWGPUMemoryUtilizationName, emit: func(w *pointWriter, d *deviceState) {
		used, limit := &d.series[gpudata.MemoryUsed], &d.series[gpudata.MemoryLimit]
		if used.fresh && limit.value > 0 {
			w.present(used.time, "", "").SetDoubleValue(used.value / limit.value)
		}
	}},
	{name: semconv.HWGPUUtilizationName, key: string(semconv.HWGPUTaskKey), quantities: []valueOf{
		{gpudata.DecoderUtilization, semconv.HWGPUTaskDecoder},
		{gpudata.EncoderUtilization, semconv.HWGPUTaskEncoder},
		{gpudata.Utilization, semconv.HWGPUTaskGeneral},
	}},
	{name: semconv.HWPowerName, quantities: only(gpudata.Power)},
	{name: semconv.HWStatusName, emit: emitStatus},
	{name: semconv.HWTemperatureName, quantities: only(gpudata.Temperature)},
}

// write adds the points of one device.
func (def *metricDef) write(w *pointWriter, d *deviceState) {
	if def.emit != nil {
		def.emit(w, d)
		return
	}
	for _, q := range def.quantities {
		s := &d.series[q.Quantity]
		if !s.fresh {
			continue
		}
		if def.Instrument == semconv.InstrumentGauge {
			v := s.value
			if q.Kind() != gpusamplesextension.KindInstant {
				v = s.mean()
			}
			w.present(s.time, def.key, q.value).SetDoubleValue(v)
			continue
		}
		p := w.point(s.time, def.key, q.value)
		p.SetStartTimestamp(pcommon.Timestamp(s.start))
		if n := s.value - s.first; q.Quantity == gpudata.Energy {
			p.SetDoubleValue(n)
		} else {
			p.SetIntValue(int64(n))
		}
	}
}

var metricByName = func() map[string]*metricDef {
	m := make(map[string]*metricDef, len(metricDefs))
	for i := range metricDefs {
		def := &metricDefs[i]
		def.Metric, _ = semconv.LookupMetric(def.name) // a test holds all of them against the registry
		m[def.name] = def
	}
	return m
}()

// pointWriter adds data points to one metric.
type pointWriter struct {
	points   pmetric.NumberDataPointSlice
	identity pcommon.Map // of the present device
	now      time.Time
	pod      podresources.Pod // that holds the present device
	hasPod   bool
}

func (w *pointWriter) point(t int64, key, value string) pmetric.NumberDataPoint {
	p := w.points.AppendEmpty()
	w.identity.CopyTo(p.Attributes())
	sharedcomponent.PutText(p.Attributes(), key, value)
	p.SetTimestamp(pcommon.Timestamp(t))
	return p
}

// limit is a data-sheet value: it has no source that measured it.
func (w *pointWriter) limit(d *deviceState, key, value string, v float64) {
	p := w.point(d.newest, key, value)
	p.Attributes().Remove(string(semconv.GPUMeasurementSourceKey))
	p.SetDoubleValue(v)
}

// present is a point of a value of now, which belongs to the pod that holds the device now. Counters have counted for
// others too.
func (w *pointWriter) present(t int64, key, value string) pmetric.NumberDataPoint {
	p := w.point(t, key, value)
	if w.hasPod {
		p.Attributes().PutStr(string(semconv.K8sNamespaceNameKey), w.pod.Namespace)
		p.Attributes().PutStr(string(semconv.K8sPodNameKey), w.pod.Name)
		p.Attributes().PutStr(string(semconv.K8sContainerNameKey), w.pod.Container)
	}
	return p
}

func emitThrottle(w *pointWriter, d *deviceState) {
	s := &d.series[gpudata.Throttle]
	if !s.fresh {
		return
	}
	d.throttles.Each(func(r gpusamplesextension.ThrottleReason) {
		p := w.point(s.time, string(semconv.GPUThrottleReasonKey), r.String())
		p.SetStartTimestamp(pcommon.Timestamp(s.start))
		p.SetDoubleValue(d.throttled[bits.TrailingZeros64(uint64(r))])
	})
}

func emitProcesses(w *pointWriter, d *deviceState) {
	for _, x := range d.processes {
		if x.Bytes == gpudata.BytesUnknown {
			continue
		}
		p := w.point(x.Time, "", "")
		p.Attributes().PutInt(string(semconv.ProcessPidKey), x.PID)
		p.SetIntValue(x.Bytes)
	}
}

// emitStatus writes all states, for one that is missing looks like one that is unknown.
func emitStatus(w *pointWriter, d *deviceState) {
	t, health := d.newest, d.health
	switch health {
	case gpudata.HealthFailed, gpudata.HealthSilent:
		t, health = w.now.UnixNano(), gpudata.HealthFailed
	case gpudata.HealthUnknown:
		return
	default:
		if !d.fresh() {
			return
		}
	}
	for h, state := range states {
		if state == "" {
			continue
		}
		var v int64
		if gpudata.Health(h) == health {
			v = 1
		}
		w.point(t, string(semconv.HWStateKey), state).SetIntValue(v)
	}
}

var states = [...]string{
	gpudata.HealthOK:               semconv.HWStateOk,
	gpudata.HealthDegraded:         semconv.HWStateDegraded,
	gpudata.HealthPredictedFailure: semconv.HWStatePredictedFailure,
	gpudata.HealthFailed:           semconv.HWStateFailed,
}

func emitFLOPRateLimit(w *pointWriter, d *deviceState) {
	p, ok := d.peaks()
	if !ok || !d.fresh() {
		return
	}
	for _, precision := range peaks.Precisions() {
		if rate := p.FLOPs.Of(precision); rate > 0 {
			w.limit(d, string(semconv.GPUFLOPPrecisionKey), precision, rate)
		}
	}
}

func emitBandwidthLimit(w *pointWriter, d *deviceState) {
	if p, ok := d.peaks(); ok && d.fresh() && p.MemoryBandwidth > 0 {
		w.limit(d, "", "", p.MemoryBandwidth)
	}
}
