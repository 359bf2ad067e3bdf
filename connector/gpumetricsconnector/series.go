// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/zerofirst"
	"github.com/otelgpu/otelgpu/semconv"
)

// overflowKey is defined by the OpenTelemetry metrics SDK's specification.
const overflowKey = "otel.metric.overflow"

// settings are shared by all series.
type settings struct {
	cfg      *Config
	instance string
	bounds   []float64 // s

	series     int // of all resources
	operations int // likewise: those that are kept
	// makeRoom gives up what has been silent for long, when there is no room for more.
	makeRoom func()
	begun    []*series // by the last output: with a point of 0
}

func (st *settings) newHistogram() histogram {
	if e := st.cfg.Histogram.Exponential.Get(); e != nil {
		return newExponentialHistogram(e.MaxSize)
	}
	return newExplicitHistogram(st.bounds)
}

func (st *settings) delta() bool { return st.cfg.Temporality == TemporalityDelta }

// begins says whether the next point of a series is of 0.
func (st *settings) begins(s *series, f form) bool { return !s.begun && f != formGauge && !st.delta() }

// family is the series of one metric under one resource.
type family struct {
	id       metricID
	byKey    map[string]*series
	list     []*series // in order of creation
	overflow *series   // also in list
}

// get returns the series with these attributes, makes it, or returns the overflow series when there are too many.
// start is the time from which a new series counts. attrs is only read.
func (f *family) get(st *settings, attrs pcommon.Map, start uint64) *series {
	key := canonical(attrs)
	if s := f.byKey[key]; s != nil {
		return s
	}
	// One of the limit's series is the overflow, as in the SDKs.
	full := func() bool { return len(f.byKey) >= st.cfg.CardinalityLimit-1 || st.series >= st.cfg.MaxSeries }
	if full() {
		st.makeRoom()
	}
	if full() {
		if f.overflow == nil {
			none := pcommon.NewMap()
			none.PutBool(overflowKey, true)
			f.overflow = f.append(st, none, start)
		}
		return f.overflow
	}
	s := f.append(st, attrs, start)
	if f.byKey == nil {
		f.byKey = make(map[string]*series)
	}
	f.byKey[key] = s
	return s
}

func (f *family) append(st *settings, attrs pcommon.Map, start uint64) *series {
	s := &series{attrs: pcommon.NewMap(), start: start}
	attrs.CopyTo(s.attrs)
	s.attrs.PutStr(string(semconv.CollectorInstanceIDKey), st.instance)
	switch {
	case definitions[f.id].form == formHistogram:
		s.distribution = newDistribution(st.newHistogram())
		s.exemplars = make([]exemplar, 0, st.cfg.MaxExemplars)
	case f.id == metricStragglerScore || f.id == metricStragglerDelay:
		s.exemplars = make([]exemplar, 0, min(1, st.cfg.MaxExemplars))
	}
	f.list = append(f.list, s)
	st.series++
	return s
}

// expire gives up the series that were last seen before a time; it returns how many.
func (f *family) expire(before int64) int {
	gone := func(s *series) bool { return s.seen < before && !s.changed }
	n := len(f.list)
	f.list = slices.DeleteFunc(f.list, func(s *series) bool {
		if gone(s) && s == f.overflow {
			f.overflow = nil
		}
		return gone(s)
	})
	if len(f.list) < n {
		for k, s := range f.byKey {
			if gone(s) {
				delete(f.byKey, k)
			}
		}
	}
	return n - len(f.list)
}

// write adds the metric, if it has points.
func (f *family) write(st *settings, out pmetric.MetricSlice, ts pointTime) {
	if len(f.list) == 0 {
		return
	}
	def := &definitions[f.id]
	temporality := pmetric.AggregationTemporalityCumulative
	if st.delta() {
		temporality = pmetric.AggregationTemporalityDelta
	}
	m := pmetric.NewMetric()
	registered, _ := semconv.LookupMetric(def.name)
	m.SetName(def.name)
	m.SetUnit(registered.Unit)
	m.SetDescription(registered.Description())
	switch {
	case def.form == formGauge:
		m.SetEmptyGauge()
	case def.form != formHistogram:
		m.SetEmptySum().SetIsMonotonic(true)
		m.Sum().SetAggregationTemporality(temporality)
	case st.cfg.Histogram.Exponential.HasValue():
		m.SetEmptyExponentialHistogram().SetAggregationTemporality(temporality)
	default:
		m.SetEmptyHistogram().SetAggregationTemporality(temporality)
	}
	some := false
	for _, s := range f.list {
		some = s.write(st, m, def.form, ts) || some
	}
	if some {
		m.MoveTo(out.AppendEmpty())
	}
}

// canonical is a text that is the same for maps of the same names and values. Names are in order as they were put,
// for all maps of a family are made by one function.
func canonical(attrs pcommon.Map) string {
	var b []byte
	for k, v := range attrs.All() {
		b = append(b, k...)
		b = append(b, 0)
		b = append(b, v.AsString()...)
		b = append(b, 0)
	}
	return string(b)
}

// pointBase is what all kinds of points share.
type pointBase interface {
	SetStartTimestamp(pcommon.Timestamp)
	SetTimestamp(pcommon.Timestamp)
	Attributes() pcommon.Map
}

// pointTime is when the points of a resource are, unix ns.
type pointTime struct {
	at     uint64
	before uint64 // of the points before; 0: none
}

// millisecond is what Prometheus tells times apart by. Two values of a series at one time make it refuse the whole
// request.
const millisecond = uint64(time.Millisecond)

// next is the first time that Prometheus tells apart from t.
func next(t uint64) uint64 { return (t/millisecond + 1) * millisecond }

// series is one time series: its attributes and its state.
type series struct {
	attrs   pcommon.Map
	start   uint64 // unix ns
	seen    int64  // wall clock of the last change, unix ns
	changed bool   // since the last output
	begun   bool   // a point was written

	total   float64 // of a sum: all; of a gauge, which is a quotient of sums since the last output: the numerator
	divisor float64 // of a gauge
	written float64 // of a delta sum: what was written of total

	distribution distribution // of a histogram
	exemplars    []exemplar   // slot = binary magnitude modulo their number, so that they spread over the buckets
}

type exemplar struct {
	value float64
	time  uint64
	trace pcommon.TraceID
	span  pcommon.SpanID
}

func (s *series) touch(now int64) { s.seen, s.changed = now, true }

// add adds to a sum.
func (s *series) add(v float64, now int64) {
	if x := s.total + v; x <= math.MaxFloat64 {
		s.total = x
	}
	s.touch(now)
}

// ratio adds to a gauge that is a quotient.
func (s *series) ratio(numerator, divisor float64, now int64) {
	if !s.changed {
		s.total, s.divisor = 0, 0
	}
	s.total += numerator
	s.divisor += divisor
	s.touch(now)
}

// example makes a span the gauge's exemplar.
func (s *series) example(v float64, span spanfacts.Key, end uint64) {
	if cap(s.exemplars) > 0 && !span.Trace.IsEmpty() {
		s.exemplars = append(s.exemplars[:0], exemplar{v, end, span.Trace, span.Span})
	}
}

// record adds to a distribution.
func (s *series) record(v, weight float64, f *facts, now int64) {
	s.distribution.record(v, weight)
	if n := cap(s.exemplars); n > 0 && !f.Key.Trace.IsEmpty() {
		s.exemplars = s.exemplars[:n]
		s.exemplars[magnitude(v)%n] = exemplar{v, f.End, f.Key.Trace, f.Key.Span}
	}
	s.touch(now)
}

// magnitude is the exponent of a value, from 0.
func magnitude(v float64) int {
	_, exponent := math.Frexp(v)
	return exponent + 1100 // of the smallest number it is -1073
}

// write adds the series' point to a metric of its form; false where there is none to write. A cumulative series begins
// with a point of 0, without which nobody sees its first increase, and is written again also when nothing has changed.
func (s *series) write(st *settings, m pmetric.Metric, f form, ts pointTime) bool {
	delta := st.delta()
	if !s.changed && (delta || f == formGauge) {
		return false
	}
	if st.begins(s, f) {
		s.writeZero(st, m, f, ts)
		st.begun = append(st.begun, s)
	}
	s.begun = true
	wrote := true
	switch f {
	case formGauge:
		v := s.total / s.divisor
		if wrote = v >= 0 && v <= math.MaxFloat64; wrote { // false for NaN
			p := m.Gauge().DataPoints().AppendEmpty()
			p.SetDoubleValue(v)
			s.dress(p, 0, ts.at)
			s.writeExemplars(p.Exemplars())
		}
	case formHistogram:
		p := s.distribution.write(m)
		s.dress(p, s.start, ts.at)
		s.writeExemplars(p.Exemplars())
		if delta {
			s.distribution.reset()
		}
	default:
		s.writeSum(m.Sum().DataPoints().AppendEmpty(), f, delta, ts.at)
	}
	s.changed = false
	if delta {
		s.start = ts.at
	}
	if delta || f == formGauge {
		clear(s.exemplars)
		s.exemplars = s.exemplars[:0]
	}
	return wrote
}

// writeZero adds a point of 0 where the series begins, but at most zerofirst.Before its first point.
func (s *series) writeZero(st *settings, m pmetric.Metric, f form, ts pointTime) {
	at := max(s.start, ts.at-min(ts.at, uint64(zerofirst.Before(st.cfg.FlushInterval))))
	if at/millisecond <= ts.before/millisecond {
		at = next(ts.before)
	}
	if s.start == 0 || at/millisecond >= ts.at/millisecond {
		at = ts.at - min(ts.at, millisecond)
	}
	if at == 0 || at/millisecond <= ts.before/millisecond {
		return
	}
	switch f {
	case formHistogram:
		empty := newDistribution(st.newHistogram())
		s.dress(empty.write(m), min(s.start, at), at)
	case formCount:
		p := m.Sum().DataPoints().AppendEmpty()
		p.SetIntValue(0)
		s.dress(p, min(s.start, at), at)
	default:
		p := m.Sum().DataPoints().AppendEmpty()
		p.SetDoubleValue(0)
		s.dress(p, min(s.start, at), at)
	}
}

func (s *series) writeSum(p pmetric.NumberDataPoint, f form, delta bool, ts uint64) {
	v := s.total
	if f == formCount {
		v = math.Round(v)
	}
	out := v
	if delta {
		out = v - s.written
		s.written = v
	}
	if f == formCount {
		p.SetIntValue(toInt(out))
	} else {
		p.SetDoubleValue(out)
	}
	s.dress(p, s.start, ts)
}

func (s *series) dress(p pointBase, start, ts uint64) {
	if start > 0 {
		p.SetStartTimestamp(pcommon.Timestamp(min(start, ts)))
	}
	p.SetTimestamp(pcommon.Timestamp(ts))
	s.attrs.CopyTo(p.Attributes())
}

// writeExemplars writes those that there are. They stay on a cumulative series until others take their place, for a
// scrape comes at its own time.
func (s *series) writeExemplars(out pmetric.ExemplarSlice) {
	for i := range s.exemplars {
		x := &s.exemplars[i]
		if x.trace.IsEmpty() {
			continue
		}
		e := out.AppendEmpty()
		e.SetDoubleValue(x.value)
		e.SetTimestamp(pcommon.Timestamp(x.time))
		e.SetTraceID(x.trace)
		e.SetSpanID(x.span)
	}
}

// toInt is a whole number as int64, at most the largest.
func toInt(v float64) int64 {
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(v)
}
