// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
	"github.com/otelgpu/otelgpu/semconv"
)

// metricDef is one metric that the receiver can emit; unit, instrument and description are the
// registry's. emit adds the points of one device; nil: the points of the quantities.
type metricDef struct {
	semconv.Metric
	name       string
	off        bool                   // emitted only where the configuration enables it
	quantities []gpuquantity.Quantity // by the attribute by which they differ
	emit       func(w *pointWriter, d *deviceState)
}

// metricDefs are all metrics, by name: from the catalogue, and metrics computed from more than one
// value. Points have the time of their sample: an instant is the newest sample, a ratio the
// time-weighted mean over the samples since the last emission, a counter the count since its first
// sample. Without a new sample there is no point.
var metricDefs = func() []metricDef {
	defs := []metricDef{
		{name: semconv.GPUFLOPRateLimitName, off: true, emit: emitFLOPRateLimit},
		{name: semconv.GPUMemoryBandwidthLimitName, off: true, emit: emitBandwidthLimit},
		{name: semconv.GPUIdleEnergyName, emit: emitElsewhere},
		{name: semconv.GPUProcessEnergyName, emit: emitElsewhere},
		{name: semconv.GPUProcessEnergyErrorName, emit: emitElsewhere},
		{name: semconv.GPUProcessMemoryUsageName, emit: emitElsewhere},
		{name: semconv.GPUProcessUtilizationName, emit: emitElsewhere},
		{name: semconv.GPUUnattributedEnergyName, emit: emitElsewhere},
		{name: semconv.GPUThrottleTimeName, emit: emitThrottle},
		{name: semconv.HWGPUMemoryUtilizationName, emit: emitMemoryUtilization},
		{name: semconv.HWStatusName, emit: emitStatus},
	}
	for _, q := range gpuquantity.All() {
		m := &q.Info().Metric
		if m.Name == "" {
			continue
		}
		i := slices.IndexFunc(defs, func(def metricDef) bool { return def.name == m.Name })
		if i < 0 {
			i, defs = len(defs), append(defs, metricDef{name: m.Name, off: m.Off})
		}
		defs[i].quantities = append(defs[i].quantities, q)
	}
	for i := range defs {
		slices.SortFunc(defs[i].quantities, func(a, b gpuquantity.Quantity) int {
			return cmp.Compare(a.Info().Metric.Value, b.Info().Metric.Value)
		})
	}
	slices.SortFunc(defs, func(a, b metricDef) int { return cmp.Compare(a.name, b.name) })
	return defs
}()

// write adds the points of one device.
func (def *metricDef) write(w *pointWriter, d *deviceState) {
	if def.emit != nil {
		def.emit(w, d)
		return
	}
	for _, q := range def.quantities {
		s, m := &d.series[q], &q.Info().Metric
		if !s.fresh {
			continue
		}
		p := w.point(s.time, string(m.Key), m.Value)
		v := s.value
		switch {
		case def.Instrument == semconv.InstrumentCounter:
			p.SetStartTimestamp(pcommon.Timestamp(s.start))
			v -= s.first
		case !m.NoPod:
			w.ofPod(p)
		}
		switch {
		case def.Instrument != semconv.InstrumentGauge && !m.Float:
			p.SetIntValue(int64(v))
		case q.Kind() == gpuquantity.Interval:
			p.SetDoubleValue(s.mean())
		default:
			p.SetDoubleValue(v)
		}
	}
}

var metricByName = func() map[string]*metricDef {
	m := make(map[string]*metricDef, len(metricDefs))
	for i := range metricDefs {
		def := &metricDefs[i]
		def.Metric, _ = semconv.LookupMetric(def.name) // a test compares all of them with the registry
		m[def.name] = def
	}
	return m
}()

// pointWriter adds data points to one metric.
type pointWriter struct {
	labels // of the present device
	points pmetric.NumberDataPointSlice
	now    time.Time
}

// labels are the attributes that all points of a device have at one emission.
type labels struct {
	identity pcommon.Map
	pod      podresources.Pod // that uses the device
	hasPod   bool
}

func (w *pointWriter) point(t int64, key, value string) pmetric.NumberDataPoint {
	p := w.points.AppendEmpty()
	w.identity.CopyTo(p.Attributes())
	sharedcomponent.PutText(p.Attributes(), key, value)
	p.SetTimestamp(pcommon.Timestamp(t))
	return p
}

// limit writes a data-sheet value, which has no measurement source.
func (w *pointWriter) limit(d *deviceState, key, value string, v float64) {
	p := w.point(d.newest, key, value)
	p.Attributes().Remove(string(semconv.GPUMeasurementSourceKey))
	p.SetDoubleValue(v)
}

// present adds a point of a value of now, which belongs to the pod that uses the device now.
// Counters have counted for others too.
func (w *pointWriter) present(t int64, key, value string) pmetric.NumberDataPoint {
	p := w.point(t, key, value)
	w.ofPod(p)
	return p
}

func (w *pointWriter) ofPod(p pmetric.NumberDataPoint) {
	if w.hasPod {
		p.Attributes().PutStr(string(semconv.K8sNamespaceNameKey), w.pod.Namespace)
		p.Attributes().PutStr(string(semconv.K8sPodNameKey), w.pod.Name)
		p.Attributes().PutStr(string(semconv.K8sContainerNameKey), w.pod.Container)
	}
}

func emitMemoryUtilization(w *pointWriter, d *deviceState) {
	used, limit := &d.series[gpuquantity.MemoryUsed], &d.series[gpuquantity.MemoryLimit]
	if used.fresh && limit.value > 0 {
		w.present(used.time, "", "").SetDoubleValue(used.value / limit.value)
	}
}

func emitThrottle(w *pointWriter, d *deviceState) {
	s := &d.series[gpuquantity.Throttle]
	if !s.fresh {
		return
	}
	d.throttles.Each(func(r devicesamples.ThrottleReason) {
		p := w.point(s.time, string(semconv.GPUThrottleReasonKey), r.String())
		p.SetStartTimestamp(pcommon.Timestamp(s.start))
		p.SetDoubleValue(d.throttled[bits.TrailingZeros64(uint64(r))])
	})
}

// emitElsewhere is for metrics of processes, which processWriter writes.
func emitElsewhere(*pointWriter, *deviceState) {}

// emitStatus writes all states, because a missing one would look like an unknown one.
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
