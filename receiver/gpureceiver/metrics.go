// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
	"github.com/otelgpu/otelgpu/semconv"
)

// metricDef is one metric that the receiver can emit. emit adds the points of one device.
type metricDef struct {
	name, unit, description string
	instrument              instrument
	enabled                 bool
	emit                    func(w *pointWriter, d *deviceState)
}

type instrument uint8

const (
	gauge instrument = iota
	counter
	updown
)

// metricDefs are all metrics, by name. Points have the time of the sample they come from: an instant is the newest
// sample, a ratio the time-weighted mean over the samples since the last emission, a counter what was counted since
// its first sample. Without a new sample there is no point.
var metricDefs = []metricDef{
	{
		semconv.GPUClockFrequencyName, semconv.GPUClockFrequencyUnit, semconv.GPUClockFrequencyDescription, gauge, true,
		func(w *pointWriter, d *deviceState) {
			w.latest(d, gpudata.ClockGraphics, string(semconv.GPUClockTypeKey), semconv.GPUClockTypeGraphics)
			w.latest(d, gpudata.ClockMemory, string(semconv.GPUClockTypeKey), semconv.GPUClockTypeMemory)
			w.latest(d, gpudata.ClockSM, string(semconv.GPUClockTypeKey), semconv.GPUClockTypeSM)
			w.latest(d, gpudata.ClockVideo, string(semconv.GPUClockTypeKey), semconv.GPUClockTypeVideo)
		},
	},
	{
		semconv.GPUDRAMUtilizationName, semconv.GPUDRAMUtilizationUnit, semconv.GPUDRAMUtilizationDescription, gauge, true,
		func(w *pointWriter, d *deviceState) { w.mean(d, gpudata.DRAMUtilization, "", "") },
	},
	{semconv.GPUFLOPRateLimitName, semconv.GPUFLOPRateLimitUnit, semconv.GPUFLOPRateLimitDescription, gauge, false, emitFLOPRateLimit},
	{semconv.GPUMemoryBandwidthLimitName, semconv.GPUMemoryBandwidthLimitUnit, semconv.GPUMemoryBandwidthLimitDescription, gauge, false, emitBandwidthLimit},
	{
		semconv.GPUNVLinkIOName, semconv.GPUNVLinkIOUnit, semconv.GPUNVLinkIODescription, counter, true,
		func(w *pointWriter, d *deviceState) {
			w.countInt(d, gpudata.NVLinkReceive, string(semconv.NetworkIODirectionKey), semconv.NetworkIODirectionReceive)
			w.countInt(d, gpudata.NVLinkTransmit, string(semconv.NetworkIODirectionKey), semconv.NetworkIODirectionTransmit)
		},
	},
	{
		semconv.GPUPCIeIOName, semconv.GPUPCIeIOUnit, semconv.GPUPCIeIODescription, counter, true,
		func(w *pointWriter, d *deviceState) {
			w.countInt(d, gpudata.PCIeReceive, string(semconv.NetworkIODirectionKey), semconv.NetworkIODirectionReceive)
			w.countInt(d, gpudata.PCIeTransmit, string(semconv.NetworkIODirectionKey), semconv.NetworkIODirectionTransmit)
		},
	},
	{
		semconv.GPUPipeUtilizationName, semconv.GPUPipeUtilizationUnit, semconv.GPUPipeUtilizationDescription, gauge, false,
		func(w *pointWriter, d *deviceState) {
			w.mean(d, gpudata.PipeFP16, string(semconv.GPUPipeKey), semconv.GPUPipeFp16)
			w.mean(d, gpudata.PipeFP32, string(semconv.GPUPipeKey), semconv.GPUPipeFp32)
			w.mean(d, gpudata.PipeFP64, string(semconv.GPUPipeKey), semconv.GPUPipeFp64)
			w.mean(d, gpudata.PipeInt, string(semconv.GPUPipeKey), semconv.GPUPipeInt)
			w.mean(d, gpudata.PipeTensorDFMA, string(semconv.GPUPipeKey), semconv.GPUPipeTensorDfma)
			w.mean(d, gpudata.PipeTensorHMMA, string(semconv.GPUPipeKey), semconv.GPUPipeTensorHmma)
			w.mean(d, gpudata.PipeTensorIMMA, string(semconv.GPUPipeKey), semconv.GPUPipeTensorImma)
		},
	},
	{semconv.GPUProcessMemoryUsageName, semconv.GPUProcessMemoryUsageUnit, semconv.GPUProcessMemoryUsageDescription, gauge, false, emitProcesses},
	{
		semconv.GPUSMOccupancyName, semconv.GPUSMOccupancyUnit, semconv.GPUSMOccupancyDescription, gauge, true,
		func(w *pointWriter, d *deviceState) { w.mean(d, gpudata.SMOccupancy, "", "") },
	},
	{
		semconv.GPUSMUtilizationName, semconv.GPUSMUtilizationUnit, semconv.GPUSMUtilizationDescription, gauge, true,
		func(w *pointWriter, d *deviceState) { w.mean(d, gpudata.SMUtilization, "", "") },
	},
	{
		semconv.GPUTensorUtilizationName, semconv.GPUTensorUtilizationUnit, semconv.GPUTensorUtilizationDescription, gauge, true,
		func(w *pointWriter, d *deviceState) { w.mean(d, gpudata.TensorUtilization, "", "") },
	},
	{semconv.GPUThrottleTimeName, semconv.GPUThrottleTimeUnit, semconv.GPUThrottleTimeDescription, counter, true, emitThrottle},
	{
		semconv.HWEnergyName, semconv.HWEnergyUnit, semconv.HWEnergyDescription, counter, true,
		func(w *pointWriter, d *deviceState) { w.count(d, gpudata.Energy) },
	},
	{
		semconv.HWErrorsName, semconv.HWErrorsUnit, semconv.HWErrorsDescription, counter, true,
		func(w *pointWriter, d *deviceState) {
			w.countInt(d, gpudata.ECCCorrected, string(semconv.ErrorTypeKey), semconv.ErrorTypeECCCorrected)
			w.countInt(d, gpudata.ECCUncorrected, string(semconv.ErrorTypeKey), semconv.ErrorTypeECCUncorrected)
			w.countInt(d, gpudata.NVLinkCRC, string(semconv.ErrorTypeKey), semconv.ErrorTypeNVLinkCrc)
			w.countInt(d, gpudata.PCIeReplays, string(semconv.ErrorTypeKey), semconv.ErrorTypePCIeReplay)
			w.countInt(d, gpudata.RetiredCorrected, string(semconv.ErrorTypeKey), semconv.ErrorTypeRetiredPageCorrected)
			w.countInt(d, gpudata.RetiredUncorrected, string(semconv.ErrorTypeKey), semconv.ErrorTypeRetiredPageUncorrected)
			w.countInt(d, gpudata.RemappedCorrected, string(semconv.ErrorTypeKey), semconv.ErrorTypeRowRemapCorrected)
			w.countInt(d, gpudata.RemappedUncorrected, string(semconv.ErrorTypeKey), semconv.ErrorTypeRowRemapUncorrected)
			w.countInt(d, gpudata.XIDs, string(semconv.ErrorTypeKey), semconv.ErrorTypeXID)
		},
	},
	{
		semconv.HWGPUMemoryLimitName, semconv.HWGPUMemoryLimitUnit, semconv.HWGPUMemoryLimitDescription, updown, true,
		func(w *pointWriter, d *deviceState) {
			if s := &d.series[gpudata.MemoryLimit]; s.fresh {
				w.point(s.time, "", "").SetIntValue(int64(s.value))
			}
		},
	},
	{
		semconv.HWGPUMemoryUsageName, semconv.HWGPUMemoryUsageUnit, semconv.HWGPUMemoryUsageDescription, updown, true,
		func(w *pointWriter, d *deviceState) {
			if s := &d.series[gpudata.MemoryUsed]; s.fresh {
				w.present(s.time, "", "").SetIntValue(int64(s.value))
			}
		},
	},
	{
		semconv.HWGPUMemoryUtilizationName, semconv.HWGPUMemoryUtilizationUnit, semconv.HWGPUMemoryUtilizationDescription, gauge, true,
		func(w *pointWriter, d *deviceState) {
			used, limit := &d.series[gpudata.MemoryUsed], &d.series[gpudata.MemoryLimit]
			if used.fresh && limit.value > 0 {
				w.present(used.time, "", "").SetDoubleValue(used.value / limit.value)
			}
		},
	},
	{
		semconv.HWGPUUtilizationName, semconv.HWGPUUtilizationUnit, semconv.HWGPUUtilizationDescription, gauge, true,
		func(w *pointWriter, d *deviceState) {
			w.mean(d, gpudata.DecoderUtilization, string(semconv.HWGPUTaskKey), semconv.HWGPUTaskDecoder)
			w.mean(d, gpudata.EncoderUtilization, string(semconv.HWGPUTaskKey), semconv.HWGPUTaskEncoder)
			w.mean(d, gpudata.Utilization, string(semconv.HWGPUTaskKey), semconv.HWGPUTaskGeneral)
		},
	},
	{
		semconv.HWPowerName, semconv.HWPowerUnit, semconv.HWPowerDescription, gauge, true,
		func(w *pointWriter, d *deviceState) { w.latest(d, gpudata.Power, "", "") },
	},
	{semconv.HWStatusName, semconv.HWStatusUnit, semconv.HWStatusDescription, updown, true, emitStatus},
	{
		semconv.HWTemperatureName, semconv.HWTemperatureUnit, semconv.HWTemperatureDescription, gauge, true,
		func(w *pointWriter, d *deviceState) { w.latest(d, gpudata.Temperature, "", "") },
	},
}

var metricByName = func() map[string]*metricDef {
	m := make(map[string]*metricDef, len(metricDefs))
	for i := range metricDefs {
		m[metricDefs[i].name] = &metricDefs[i]
	}
	return m
}()

func metricNames() []string { return sortedKeys(metricByName) }

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
	if key != "" {
		p.Attributes().PutStr(key, value)
	}
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

func (w *pointWriter) latest(d *deviceState, q gpudata.Quantity, key, value string) {
	if s := &d.series[q]; s.fresh {
		w.present(s.time, key, value).SetDoubleValue(s.value)
	}
}

func (w *pointWriter) mean(d *deviceState, q gpudata.Quantity, key, value string) {
	if s := &d.series[q]; s.fresh {
		w.present(s.time, key, value).SetDoubleValue(s.mean())
	}
}

func (w *pointWriter) count(d *deviceState, q gpudata.Quantity) {
	if s := &d.series[q]; s.fresh {
		p := w.point(s.time, "", "")
		p.SetStartTimestamp(pcommon.Timestamp(s.start))
		p.SetDoubleValue(s.value - s.first)
	}
}

func (w *pointWriter) countInt(d *deviceState, q gpudata.Quantity, key, value string) {
	if s := &d.series[q]; s.fresh {
		p := w.point(s.time, key, value)
		p.SetStartTimestamp(pcommon.Timestamp(s.start))
		p.SetIntValue(int64(s.value - s.first))
	}
}

func emitThrottle(w *pointWriter, d *deviceState) {
	s := &d.series[gpudata.Throttle]
	if !s.fresh {
		return
	}
	d.throttle.seen.Each(func(r gpusamplesextension.ThrottleReason) {
		p := w.point(s.time, string(semconv.GPUThrottleReasonKey), r.String())
		p.SetStartTimestamp(pcommon.Timestamp(d.throttle.start))
		p.SetDoubleValue(d.throttle.seconds[bitIndex(r)])
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
	if !d.hasPeaks || !d.fresh() {
		return
	}
	for _, precision := range peaks.Precisions() {
		if rate := d.peaks.FLOPs.Of(precision); rate > 0 {
			w.limit(d, string(semconv.GPUFLOPPrecisionKey), precision, rate)
		}
	}
}

func emitBandwidthLimit(w *pointWriter, d *deviceState) {
	if d.hasPeaks && d.fresh() && d.peaks.MemoryBandwidth > 0 {
		w.limit(d, "", "", d.peaks.MemoryBandwidth)
	}
}
