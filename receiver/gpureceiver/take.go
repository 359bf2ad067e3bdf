// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"cmp"
	"math/bits"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/semconv"
)

// maxScratch is the number of samples for which memory is kept between reads.
const maxScratch = 4096

// take puts a batch into the states of its devices and into gpu_samples. Values come in order of time for each device
// and quantity; those of one device with the same time become one sample.
func (r *gpuReceiver) take(b *gpudata.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, d := range r.current {
		r.takeDevice(b, uint16(i), d)
	}
	if r.logsN > 0 {
		select {
		case r.wakeLogs <- struct{}{}:
		default:
		}
	}
}

func (r *gpuReceiver) takeDevice(b *gpudata.Batch, index uint16, d *deviceState) {
	if cap(r.scratch) > maxScratch {
		r.scratch = nil // of a backlog; ordinary reads need a few
	}
	r.scratch, r.ordered, r.events = r.scratch[:0], 0, r.events[:0]
	answered := false
	for i := range b.Values {
		v := &b.Values[i]
		if v.Device != index {
			continue
		}
		before := d.series[v.Quantity].value
		started := d.series[v.Quantity].time != 0
		previous := d.series[v.Quantity].time
		growth, ok := d.series[v.Quantity].add(*v, r.cfg.SamplingInterval)
		if !ok {
			continue
		}
		if v.Quantity != gpudata.XIDs { // which are counted, not measured
			answered = true
			d.newest = max(d.newest, v.Time)
		}
		switch v.Quantity {
		case gpudata.Throttle:
			r.throttled(d, v, gpusamplesextension.ThrottleReason(before), started, previous)
		case gpudata.ECCCorrected:
			r.ecc(d, v.Time, gpusamplesextension.EventECCCorrected, growth)
		case gpudata.ECCUncorrected:
			r.ecc(d, v.Time, gpusamplesextension.EventECCUncorrected, growth)
		}
		if f, ok := v.Quantity.Field(); ok && d.writer != nil {
			r.sample(v.Time).Set(f, v.V)
		}
	}
	for _, e := range b.Events {
		if e.Device == index {
			r.event(d, e.Event)
		}
	}
	switch {
	case int(index) < len(b.Health) && b.Health[index] != gpudata.HealthUnknown:
		r.judge(d, b.Health[index])
	case answered:
		r.judge(d, gpudata.HealthOK)
	}
	for _, p := range b.Processes {
		if p.Device == index {
			d.processes = replaceProcess(d.processes, p)
		}
	}
	if d.writer != nil {
		if r.ordered < len(r.scratch) {
			slices.SortStableFunc(r.scratch, func(a, b gpusamplesextension.Sample) int { return cmp.Compare(a.Time, b.Time) })
		}
		d.writer.Write(r.scratch)
		if len(r.events) > 0 {
			d.writer.WriteEvents(r.events)
		}
	}
}

func replaceProcess(list []gpudata.Process, p gpudata.Process) []gpudata.Process {
	for i := range list {
		if list[i].PID == p.PID {
			list[i] = p
			return list
		}
	}
	return append(list, p)
}

// sample is the sample of the present device at time t. Sources give all values of one moment together, or field by
// field in order of time: then the moments of the first field are found again by binary search. Moments of a field of
// its own are appended and sorted later.
func (r *gpuReceiver) sample(t int64) *gpusamplesextension.Sample {
	ordered := r.scratch[:r.ordered]
	if i, ok := slices.BinarySearchFunc(ordered, t, func(s gpusamplesextension.Sample,
		t int64,
	) int {
		return cmp.Compare(s.Time, t)
	}); ok {
		return &ordered[i]
	}
	n := len(r.scratch)
	if n > 0 && r.scratch[n-1].Time == t {
		return &r.scratch[n-1]
	}
	if r.ordered == n && (n == 0 || r.scratch[n-1].Time < t) {
		r.ordered++
	}
	r.scratch = append(r.scratch, gpusamplesextension.Sample{Time: t})
	return &r.scratch[n]
}

// throttled integrates the mask and notes what began and what ended.
func (r *gpuReceiver) throttled(d *deviceState, v *gpudata.Value, before gpusamplesextension.ThrottleReason,
	started bool, previous int64,
) {
	mask := gpusamplesextension.ThrottleReason(v.V) & gpusamplesextension.ThrottleReasons
	before &= gpusamplesextension.ThrottleReasons
	t := &d.throttle
	if !started {
		t.start = v.Time
	} else {
		gap := v.Time - previous
		if gap <= gapFactor*max(int64(r.cfg.SamplingInterval), t.gap) {
			mask.Each(func(reason gpusamplesextension.ThrottleReason) {
				t.seconds[bits.TrailingZeros64(uint64(reason))] += float64(gap) * 1e-9
			})
		}
		t.gap = gap
	}
	t.seen |= mask
	event := func(kind gpusamplesextension.EventKind) func(gpusamplesextension.ThrottleReason) {
		return func(reason gpusamplesextension.ThrottleReason) {
			r.event(d, gpusamplesextension.Event{Time: v.Time, Kind: kind, Code: int64(reason), Count: 1})
		}
	}
	(mask &^ before).Each(event(gpusamplesextension.EventThrottleStart))
	(before &^ mask).Each(event(gpusamplesextension.EventThrottleEnd))
}

func (r *gpuReceiver) ecc(d *deviceState, t int64, kind gpusamplesextension.EventKind, growth float64) {
	if growth > 0 {
		r.event(d, gpusamplesextension.Event{Time: t, Kind: kind, Count: int64(growth)})
	}
}

func (r *gpuReceiver) event(d *deviceState, e gpusamplesextension.Event) {
	r.events = append(r.events, e)
	r.log(d, e)
}

// newIdentities are the attributes of each device's points.
func newIdentities(devices []*deviceState) []pcommon.Map {
	maps := make([]pcommon.Map, len(devices))
	for i, d := range devices {
		maps[i] = pcommon.NewMap()
		identify(maps[i], &d.desc)
	}
	return maps
}

// prepare gives m the definition's name and kind and returns its empty points.
func (def *metricDef) prepare(m pmetric.Metric) pmetric.NumberDataPointSlice {
	m.SetName(def.Name)
	m.SetUnit(def.Unit)
	m.SetDescription(def.description)
	if def.Instrument == semconv.InstrumentGauge {
		return m.SetEmptyGauge().DataPoints()
	}
	sum := m.SetEmptySum()
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	sum.SetIsMonotonic(def.Instrument == semconv.InstrumentCounter)
	return sum.DataPoints()
}

func points(m pmetric.Metric) pmetric.NumberDataPointSlice {
	if m.Type() == pmetric.MetricTypeGauge {
		return m.Gauge().DataPoints()
	}
	return m.Sum().DataPoints()
}
