// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/instrument"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/semconv"
)

// maxScratch is the number of samples for which memory is kept between reads.
const maxScratch = 4096

// take adds a batch to the states of its devices and to gpu_samples. Values arrive in order of time
// for each device and quantity; values of one device with the same time become one sample.
func (r *gpuReceiver) take(b *gpudata.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, d := range r.current {
		r.takeDevice(b, uint16(i), d)
	}
	if r.logs.LogRecordCount() > 0 {
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
	answered, ahead := false, time.Now().Add(clockSlack).UnixNano()
	for i := range b.Values {
		v := &b.Values[i]
		if v.Device != index {
			continue
		}
		before := d.series[v.Quantity]
		growth, ok := d.series[v.Quantity].add(*v, r.cfg.SamplingInterval, ahead)
		if !ok {
			continue
		}
		if v.Quantity != gpuquantity.XIDs { // which are counted, not measured
			answered = true
			if d.newest = max(d.newest, v.Time); before.time > v.Time { // the clock was set back
				d.newest, d.reported = v.Time, 0
			}
		}
		if r.processReader != nil {
			r.processReader.meter.Value(d.desc.ID, v.Quantity, v.Time, v.V)
		}
		switch v.Quantity {
		case gpuquantity.Throttle:
			r.throttled(d, v, before)
		case gpuquantity.ECCCorrected:
			r.ecc(d, v.Time, devicesamples.EventECCCorrected, growth)
		case gpuquantity.ECCUncorrected:
			r.ecc(d, v.Time, devicesamples.EventECCUncorrected, growth)
		}
		if v.Quantity.HasRing() && d.writer != nil {
			r.sample(v.Time).Set(v.Quantity, v.V)
		}
	}
	for _, v := range b.Wrong {
		if v.Device == index {
			devicesamples.ContradictRatio(r.samples, &d.desc, v.Quantity, v.V)
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
	if d.writer != nil {
		if r.ordered < len(r.scratch) {
			slices.SortStableFunc(r.scratch, func(a, b devicesamples.Sample) int { return cmp.Compare(a.Time, b.Time) })
		}
		d.writer.Write(r.scratch)
		if len(r.events) > 0 {
			d.writer.WriteEvents(r.events)
		}
	}
}

// sample returns the sample of the present device at time t. Sources give all values of one moment
// together, or field by field in order of time: then the moments of the first field are found again
// by binary search. Other moments of a field are appended and sorted later.
func (r *gpuReceiver) sample(t int64) *devicesamples.Sample {
	ordered := r.scratch[:r.ordered]
	after := func(s devicesamples.Sample, t int64) int { return cmp.Compare(s.Time, t) }
	if i, ok := slices.BinarySearchFunc(ordered, t, after); ok {
		return &ordered[i]
	}
	n := len(r.scratch)
	if n > 0 && r.scratch[n-1].Time == t {
		return &r.scratch[n-1]
	}
	if r.ordered == n && (n == 0 || r.scratch[n-1].Time < t) {
		r.ordered++
	}
	r.scratch = append(r.scratch, devicesamples.Sample{Time: t})
	return &r.scratch[n]
}

// throttled integrates the mask and records starts and ends.
func (r *gpuReceiver) throttled(d *deviceState, v *gpudata.Value, last seriesState) {
	mask, before := devicesamples.ThrottleReason(v.V), devicesamples.ThrottleReason(last.value)
	if last.time > v.Time {
		d.throttled = [64]float64{} // the clock was set back, and the stream starts over
	} else if gap := last.covers(v.Time, r.cfg.SamplingInterval); gap > 0 {
		mask.Each(func(reason devicesamples.ThrottleReason) {
			d.throttled[bits.TrailingZeros64(uint64(reason))] += float64(gap) * 1e-9
		})
	}
	d.throttles |= mask
	event := func(kind devicesamples.EventKind) func(devicesamples.ThrottleReason) {
		return func(reason devicesamples.ThrottleReason) {
			r.event(d, devicesamples.Event{Time: v.Time, Kind: kind, Code: int64(reason), Count: 1})
		}
	}
	(mask &^ before).Each(event(devicesamples.EventThrottleStart))
	(before &^ mask).Each(event(devicesamples.EventThrottleEnd))
}

func (r *gpuReceiver) ecc(d *deviceState, t int64, kind devicesamples.EventKind, growth float64) {
	if growth > 0 {
		r.event(d, devicesamples.Event{Time: t, Kind: kind, Count: int64(growth)})
	}
}

func (r *gpuReceiver) event(d *deviceState, e devicesamples.Event) {
	r.events = append(r.events, e)
	r.log(d, e)
}

// prepare gives m the definition's name and kind and returns its empty points.
func (def *metricDef) prepare(m pmetric.Metric) pmetric.NumberDataPointSlice {
	m.SetName(def.Name)
	m.SetUnit(def.Unit)
	m.SetDescription(def.Description())
	if def.Instrument == semconv.InstrumentGauge {
		return m.SetEmptyGauge().DataPoints()
	}
	sum := m.SetEmptySum()
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	sum.SetIsMonotonic(def.Instrument == semconv.InstrumentCounter)
	return sum.DataPoints()
}

// deviceState is the receiver's state of one device between two emissions. It is kept by hw.id, so
// counters continue when a source is opened again.
type deviceState struct {
	desc     devicesamples.Device
	writer   devicesamples.DeviceWriter // nil without gpu_samples
	present  bool
	health   gpudata.Health
	newest   int64 // time of the newest value
	reported int64 // newest at the last emission
	series   [gpuquantity.Num]seriesState
	// throttles are the reasons for throttling that applied at any time, throttled the seconds of
	// each, by bit.
	throttles devicesamples.ThrottleReason
	throttled [64]float64
	// labels were on the last emission, while labeled is set.
	labels  labels
	labeled bool
}

// seriesState is one quantity of one device.
type seriesState struct {
	time  int64
	value float64
	fresh bool // newer than the last emission
	gap   int64

	// Since the last emission, for quantities that are means over an interval.
	integral float64
	covered  int64

	// For counters: the emitted stream. A decrease of the raw value, or of the time, begins a new
	// one.
	start int64
	first float64
	fall  instrument.Fall
}

// gapFactor: time between two samples further apart than this many intervals is not covered by
// them.
const gapFactor = 3

// clockSlack: a source's clock may be ahead of this machine's by this much.
const clockSlack = time.Second

// add adds a newer value and returns a counter's increase and whether the value was accepted. If
// the last one is in the future (beyond ahead) and this one is not, the clock was set back.
func (s *seriesState) add(v gpudata.Value, sampling time.Duration, ahead int64) (growth float64, ok bool) {
	back := s.time > ahead && v.Time <= ahead
	if back && v.Quantity.Kind() == gpuquantity.Counter {
		growth = max(0, v.V-s.value)
	}
	if back || s.time == 0 {
		*s = seriesState{time: v.Time, value: v.V, fresh: true, start: v.Time, first: v.V}
		return growth, true
	}
	if v.Time <= s.time {
		return 0, false
	}
	switch v.Quantity.Kind() {
	case devicesamples.KindInterval:
		gap := s.covers(v.Time, sampling)
		s.integral += v.V * float64(gap)
		s.covered += gap
	case devicesamples.KindCounter:
		if growth = v.V - s.value; growth < 0 {
			growth = 0
			s.start, s.first = v.Time, v.V
		}
		if more, ok := s.fall.Returns(s.value, v.V); ok && v.Quantity == gpuquantity.Energy {
			s.first += growth - more // the counter was not reset
			growth = more
		}
	}
	s.gap = v.Time - s.time
	s.time, s.value, s.fresh = v.Time, v.V, true
	return growth, true
}

// covers returns the time since the value before one at t, or 0 if the two are too far apart to
// cover it.
func (s *seriesState) covers(t int64, sampling time.Duration) int64 {
	if gap := t - s.time; s.time > 0 && gap <= gapFactor*max(int64(sampling), s.gap) {
		return gap
	}
	return 0
}

// mean returns the time-weighted mean since the last emission, or the newest value when there was
// only one.
func (s *seriesState) mean() float64 {
	if s.covered == 0 {
		return s.value
	}
	return s.integral / float64(s.covered)
}

// emitted begins the next emission.
func (s *seriesState) emitted() { s.fresh, s.integral, s.covered = false, 0, 0 }

// giveUp stops writing samples.
func (d *deviceState) giveUp() {
	if d.writer != nil {
		d.writer.Close()
		d.writer = nil
	}
}

// peaks returns the row of the device table, scaled for a MIG instance; false if it, or the
// instance's share, is not known.
func (d *deviceState) peaks() (peaks.Device, bool) {
	p, ok := peaks.Lookup(d.desc.Model)
	switch mig := d.desc.MIG; {
	case !ok || d.desc.Parent == "":
		return p, ok
	case mig.SMs > 0 && d.desc.Limits.Memory > 0:
		return p.Instance(mig.SMs, float64(d.desc.Limits.Memory))
	default:
		return p.Profile(mig.Profile)
	}
}

// fresh reports whether there is anything newer than the last emission.
func (d *deviceState) fresh() bool { return d.newest > d.reported }
