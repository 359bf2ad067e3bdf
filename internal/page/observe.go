// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spansums"
	"github.com/otelgpu/otelgpu/semconv"
)

// Traces adds spans to the model. It keeps no reference to td.
func (m *Model) Traces(td ptrace.Traces) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation++
	now := m.now()
	m.latest = now.Unix() + maxSkew
	m.profiled(td, now, m.visit)
	m.health.LastSpan = now.UnixMilli()
}

// visit adds a span.
func (m *Model) visit(s ptrace.Span, f *spanfacts.Facts, r *spanfacts.Resource, gpu bool) {
	m.health.Spans++
	m.traces.add(s, f, r, gpu)
	if gpu {
		if f.Kind.Work() {
			m.health.GPUSpans++
		}
		m.span(f, r, s)
	} else if v, ok := s.Attributes().Get(string(semconv.GPURequestQueueDurationKey)); ok {
		q := m.request(f, r) // the span of a request's queue
		q.Queue = max(q.Queue, spanfacts.Positive(v))
	} else if s.Kind() != ptrace.SpanKindServer {
		m.straggler(f, r, s)
	}
	if s.Kind() == ptrace.SpanKindServer {
		m.served(f)
	}
}

func (m *Model) span(f *spanfacts.Facts, r *spanfacts.Resource, s ptrace.Span) {
	switch {
	case f.Kind == spanfacts.Share:
		m.share(f, r, s)
		return
	case f.Kind == spanfacts.Step:
		m.step(f, r)
		return
	case f.Kind == spanfacts.Request:
		m.engine(f, r)
		return
	case !f.Kind.Work():
		return
	}
	at := int64(f.End / uint64(time.Second))
	if at > m.latest {
		m.health.FutureDropped++
		return
	}
	o := m.operation(operationKey{r.Service, f.Name, f.Type}, at)
	update(&o.category, f.Category)
	update(&o.precision, f.Precision)
	update(&o.direction, f.Direction)
	update(&o.itemType, f.ItemType)
	update(&o.model, f.Device.Model)
	update(&o.hostMemory, f.HostMemory)
	update(&o.throttle, f.Throttle)
	if f.Time > o.slowest {
		o.slowest, o.trace = f.Time, f.Key.Trace.String()
	}
	m.peak(f)
	if b := m.bucketAt(o, at/bucketSeconds); b != nil {
		one := spansums.Of(f)
		b.Add(&one, 1)
	}
	if f.Time > 0 && f.Duration > 0 || f.Recorded() {
		if d := m.device(&f.Device, r.HostName); d != nil {
			d.cover(f.Start, f.End, m.latest)
			d.recent.put(recent{f.Start, f.End, f.Name, f.Key.Trace}, maxRecent)
			if len(d.services) < maxServices && r.Service != "" && !slices.Contains(d.services, r.Service) {
				d.services = append(d.services, r.Service)
			}
		}
	}
}

// update sets a text to the latest one that a span states.
func update(text *string, stated string) {
	if stated != "" && stated != *text {
		*text = stated
	}
}

// peak learns the device's roof from a span that states its share of it, which is the roof that
// gpu_derive used, from the table, the device or the configuration.
func (m *Model) peak(f *spanfacts.Facts) {
	switch {
	case f.Device.Model == "" || f.Time <= 0 || f.BelowFloor || !f.HasRoofline || f.Roofline <= 0:
		return
	case f.Type == semconv.GPUOperationTypeCopy, f.Type == semconv.GPUOperationTypeCollective:
		return
	}
	byFLOPs := f.FLOPs > 0 && (f.Bound == semconv.GPURooflineBoundCompute || f.Size == 0)
	byBytes := f.Size > 0 && (f.Bound == semconv.GPURooflineBoundMemory || f.FLOPs == 0)
	if !byFLOPs && !byBytes { // launch and latency do not state which of the two is nearer
		return
	}
	model, precision := f.Device.Model, f.Precision
	r := m.roofs[model]
	if r == nil {
		if len(m.roofs) >= maxDevices {
			return
		}
		r = &Roof{Model: model, FLOPs: map[string]float64{}}
		m.roofs[model] = r
	}
	work := f.FLOPs
	if byBytes {
		work = f.Size
	}
	switch rate := work / f.Time / f.Roofline; {
	case math.IsInf(rate, 0):
	case byBytes:
		r.Bandwidth = rate
	case precision != "" && (len(r.FLOPs) < 16 || r.FLOPs[precision] > 0):
		r.FLOPs[precision] = rate
	}
}

func millis(ns uint64) float64 { return float64(ns) / 1e6 }

func (m *Model) step(f *spanfacts.Facts, r *spanfacts.Resource) {
	m.health.Steps++
	st := Step{
		Time: millis(f.End), Name: f.Name, Service: r.Service, Index: f.StepIndex,
		Rank: r.Rank, Job: r.JobID,
		Device: f.Device.ID, Duration: f.StepTime(),
		Exposed: f.Exposed(), Other: f.StepOther, Overlap: f.StepOverlap, Items: f.StepItems,
		ItemType: f.StepItemType,
		MFU:      f.MFU, Energy: f.Energy, Trace: f.Key.Trace.String(), Span: f.Key.Span.String(),
	}
	for _, p := range f.Phases() {
		st.Phases = append(st.Phases, Phase{p.Name, p.Duration})
	}
	m.steps.put(st, maxSteps)
}

// request returns the usage record of the request in whose trace a span of gpu_requests is.
func (m *Model) request(f *spanfacts.Facts, r *spanfacts.Resource) *Request {
	q := m.requests.Get(f.Key.Trace)
	if q == nil {
		q = &Request{Trace: f.Key.Trace.String(), Start: millis(f.Start), Duration: m.lengths.Get(f.Key.Trace)}
		if gone, full := m.requests.Put(f.Key.Trace, q); full {
			m.health.RequestsDropped++
			if x := m.slowest; x == nil || gone.Duration > x.Duration || x.End < q.Start-keptSeconds*1e3 {
				m.slowest = gone
			}
		}
		m.health.Requests++
	}
	q.Service = cmp.Or(r.Service, q.Service)
	q.Start, q.End = min(q.Start, millis(f.Start)), max(q.End, millis(f.End))
	return q
}

// engine adds the span of a request that its engine times on the host. Work within it has a
// separate usage record.
func (m *Model) engine(f *spanfacts.Facts, r *spanfacts.Resource) {
	q := m.request(f, r)
	q.Model = cmp.Or(f.RequestModel, q.Model)
	if f.HasEnergy {
		q.Energy += f.SelfEnergy
		q.meter(f.SelfEnergy, f.Items)
	}
	q.joined.add(f.Coverage, f.Joined)
	if !q.shared {
		q.Items, q.ItemType = q.Items+f.Items, cmp.Or(f.ItemType, q.ItemType)
	}
	q.Queue, q.FirstItem = max(q.Queue, f.Queue), max(q.FirstItem, f.TimeToFirstItem)
	q.Duration = max(q.Duration, spanfacts.Elapsed(f.Start, f.End))
}

// meter counts the energy and the items of a span that has both, as the metric of joules per item
// does.
func (q *Request) meter(energy, items float64) {
	if items > 0 {
		q.metered, q.meteredItems = q.metered+energy, q.meteredItems+items
	}
}

// share adds a span of gpu_requests to its request's usage record.
func (m *Model) share(f *spanfacts.Facts, r *spanfacts.Resource, s ptrace.Span) {
	q := m.request(f, r)
	q.Model = cmp.Or(f.RequestModel, q.Model)
	if !q.shared { // counts of batches precede the engine's own
		q.Items, q.ItemType, q.shared, q.metered, q.meteredItems = 0, "", true, 0, 0
	}
	if f.HasEnergy {
		q.Energy += f.Energy
	}
	q.ItemType = cmp.Or(q.ItemType, f.ItemType)
	if f.ItemType == "" || f.ItemType == q.ItemType { // items of other types have no sum with them
		q.Items += f.Items
		if f.HasEnergy {
			q.meter(f.Energy, f.Items)
		}
	}
	q.FirstItem = max(q.FirstItem, f.TimeToFirstItem)
	duration := 0.0
	if v, ok := s.Attributes().Get(string(semconv.GPURequestDurationKey)); ok {
		duration, _ = spanfacts.Number(v)
	}
	q.GPUTime += duration
	name := spanfacts.Clip(s.Name())
	for i := range q.Parts {
		if q.Parts[i].Name == name {
			q.Parts[i].Duration += duration
			return
		}
	}
	if len(q.Parts) < 16 {
		q.Parts = append(q.Parts, Phase{name, duration})
	}
}

// Metrics adds the metrics of devices and jobs.
func (m *Model) Metrics(md pmetric.Metrics) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation++
	now := m.now()
	m.latest, m.health.LastMetric = now.Unix()+maxSkew, now.UnixMilli()
	for _, rm := range md.ResourceMetrics().All() {
		var r spanfacts.Resource
		r.Load(rm.Resource().Attributes())
		for _, sm := range rm.ScopeMetrics().All() {
			for _, x := range sm.Metrics().All() {
				m.metric(x, &r, rm.Resource().Attributes())
			}
		}
	}
}

func (m *Model) metric(x pmetric.Metric, r *spanfacts.Resource, resource pcommon.Map) {
	var points pmetric.NumberDataPointSlice
	delta := false
	switch x.Type() {
	case pmetric.MetricTypeGauge:
		points = x.Gauge().DataPoints()
	case pmetric.MetricTypeSum:
		points = x.Sum().DataPoints()
		delta = x.Sum().AggregationTemporality() == pmetric.AggregationTemporalityDelta
	default:
		return
	}
	measure, measured := measureOf[x.Name()]
	for _, p := range points.All() {
		switch {
		case p.Flags().NoRecordedValue(): // the series has ended
		case measured:
			m.point(x.Name(), measure, p, delta, r.HostName)
		case x.Name() == semconv.HWErrorsName:
			m.errorPoint(p, delta)
		case x.Name() == semconv.GPUSectionTimeName:
			m.sectionPoint(r.Service, resource, p, delta)
		case x.Name() == semconv.GPUJobTimeName, x.Name() == semconv.GPUJobRestartsName:
			m.jobPoint(x.Name(), p)
		}
	}
}

// measureOf maps metrics of a device to measures; the limit of its memory has no time.
var measureOf = map[string]int{
	semconv.HWGPUUtilizationName: busy, semconv.HWPowerName: power, semconv.HWEnergyName: energy,
	semconv.HWTemperatureName: temperature, semconv.HWGPUMemoryUsageName: memory,
	semconv.GPUThrottleTimeName: throttled, semconv.HWGPUMemoryLimitName: measures,
}

func (m *Model) point(name string, measure int, p pmetric.NumberDataPoint, delta bool, host string) {
	id := gpuOf(p)
	task := cmp.Or(text(p, string(semconv.HWGPUTaskKey)), semconv.HWGPUTaskGeneral)
	if id == "" || task != semconv.HWGPUTaskGeneral {
		return
	}
	d := m.deviceOf(id, text(p, string(semconv.HWNameKey)), text(p, string(semconv.HWModelKey)))
	if d == nil {
		return
	}
	d.host = cmp.Or(host, d.host)
	v := number(p)
	at := int64(p.Timestamp() / pcommon.Timestamp(time.Second))
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return
	case at > m.latest:
		m.health.FutureDropped++
		return
	}
	if d.sampled == 0 || at < d.sampled {
		d.sampled = at
	}
	if t := p.Timestamp(); at > int64(d.newest/1e9) {
		d.before, d.newest = d.newest, t
	}
	if measure == measures {
		d.memory = v
		return
	}
	s := &d.samples[at%keptSeconds]
	switch {
	case s.at > at && s.at <= m.latest:
		return
	case s.at != at:
		*s = sample{at: at}
	}
	switch measure {
	case energy, throttled:
		ok := false
		if v, ok = d.rate(name+" "+text(p, string(semconv.GPUThrottleReasonKey)), measure, p, delta); !ok {
			if measure == energy && d.metered == 0 { // the first of a counter; the power is known from the second on
				d.metered, s.known[power] = at, false
			}
			return
		}
		if measure == energy { // exact, while a reading of power says nothing of the time between two readings
			measure, d.metered = power, at
		} else {
			v = min(v, 1)
		}
	case power:
		if d.metered > 0 && at-d.metered < maxBetween {
			return
		}
	}
	if !s.known[measure] || v > s.value[measure] || measure == power && d.metered == at {
		s.value[measure], s.known[measure] = v, true
	}
}

// gpuOf returns the ID of a point's GPU. Other hardware has metrics of these names, too.
func gpuOf(p pmetric.NumberDataPoint) string {
	if part := text(p, string(semconv.HWTypeKey)); part != "" && part != semconv.HWTypeGPU {
		return ""
	}
	return text(p, string(semconv.HWIDKey))
}

// rate returns the mean rate of a counter since its previous reading, per second. Of several
// readings in one second the first counts, so that each rate is of the whole time before it. A
// reason's counter may start with its first occurrence: then it counts from 0 at the device's
// previous reading.
func (d *device) rate(key string, measure int, p pmetric.NumberDataPoint, delta bool) (float64, bool) {
	now := counter{p.Timestamp(), number(p)}
	before, known := d.counters[key]
	switch {
	case delta:
		before = counter{time: p.StartTimestamp()}
	case known && now.time/1e9 <= before.time/1e9, !d.keep(key, now):
		return 0, false
	case !known && measure == throttled:
		before = counter{time: d.before}
		if s := &d.samples[int64(d.before/1e9)%keptSeconds]; s.at == int64(d.before/1e9) {
			s.known[throttled] = true // with 0, unless another reason has a value
		}
	}
	elapsed, rise := (float64(now.time)-float64(before.time))/1e9, now.value-before.value
	if before.time == 0 || elapsed <= 0 || elapsed > maxBetween || rise < 0 {
		return 0, false
	}
	return rise / elapsed, true
}

// keep stores the newest reading of a counter, unless there are too many counters.
func (d *device) keep(key string, now counter) bool {
	if _, known := d.counters[key]; !known && len(d.counters) == maxCounters {
		maps.DeleteFunc(d.counters, func(_ string, c counter) bool { return c.time+keptSeconds*1e9 < now.time })
		if len(d.counters) == maxCounters {
			return false
		}
	}
	d.counters[key] = now
	return true
}

// increase returns the increase of a counter since the previous point; a point that is not newer is
// repeated or late. A reason's counter may start with its first occurrence: then it counts from 0,
// unless the device itself is new.
func (d *device) increase(key string, p pmetric.NumberDataPoint, delta bool) float64 {
	now := counter{p.Timestamp(), number(p)}
	before, known := d.counters[key]
	if known && now.time <= before.time || !d.keep(key, now) {
		return 0
	}
	switch {
	case delta:
		return now.value
	case now.value > before.value && (known || d.sampled < int64(now.time/1e9)):
		return now.value - before.value
	}
	return 0
}

// number returns the value of a point.
func number(p pmetric.NumberDataPoint) float64 {
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		return float64(p.IntValue())
	}
	return p.DoubleValue()
}

func text(p pmetric.NumberDataPoint, key string) string {
	if v, ok := p.Attributes().Get(key); ok && v.Type() == pcommon.ValueTypeStr {
		return spanfacts.Clip(v.Str())
	}
	return ""
}
