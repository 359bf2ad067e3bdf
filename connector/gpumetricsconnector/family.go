// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/semconv"
)

// overflowKey is defined by the OpenTelemetry metrics SDK's specification.
const overflowKey = "otel.metric.overflow"

// family is the streams of one metric under one resource.
type family struct {
	id       metricID
	byKey    map[string]*stream
	streams  []*stream // in order of creation
	overflow *stream   // also in streams
}

// settings are shared by all families.
type settings struct {
	cfg      *Config
	instance string
	bounds   []float64 // s

	series  int // of all resources
	bundles int // likewise
}

func (st *settings) newHistogram() histogram {
	if e := st.cfg.Histogram.Exponential.Get(); e != nil {
		return newExponentialHistogram(e.MaxSize)
	}
	return newExplicitHistogram(st.bounds)
}

// get returns the stream with these attributes, makes it, or returns the overflow stream when there are too many.
// start is the time from which a new stream counts. attrs is only read.
func (f *family) get(st *settings, attrs pcommon.Map, start uint64) *stream {
	key := canonical(attrs)
	if s := f.byKey[key]; s != nil {
		return s
	}
	// One of the limit's series is the overflow, as in the SDKs.
	if len(f.byKey) >= st.cfg.CardinalityLimit-1 || st.series >= st.cfg.MaxSeries {
		if f.overflow == nil {
			none := pcommon.NewMap()
			none.PutBool(overflowKey, true)
			f.overflow = f.append(st, none, start)
		}
		return f.overflow
	}
	s := f.append(st, attrs, start)
	if f.byKey == nil {
		f.byKey = make(map[string]*stream)
	}
	f.byKey[key] = s
	return s
}

func (f *family) append(st *settings, attrs pcommon.Map, start uint64) *stream {
	s := &stream{attrs: pcommon.NewMap(), start: start}
	attrs.CopyTo(s.attrs)
	s.attrs.PutStr(string(semconv.CollectorInstanceIDKey), st.instance)
	switch {
	case definitions[f.id].form == formHistogram:
		s.histogram = st.newHistogram()
		s.exemplars = make([]exemplar, 0, st.cfg.MaxExemplars)
	case f.id == metricStragglerScore || f.id == metricStragglerDelay:
		s.exemplars = make([]exemplar, 0, min(1, st.cfg.MaxExemplars))
	}
	f.streams = append(f.streams, s)
	st.series++
	return s
}

// expire drops the streams that were last seen before a time; it returns how many.
func (f *family) expire(before int64) int {
	n := len(f.streams)
	f.streams = slices.DeleteFunc(f.streams, func(s *stream) bool {
		if s.seen >= before || s.changed {
			return false
		}
		if s == f.overflow {
			f.overflow = nil
		}
		return true
	})
	if len(f.streams) < n {
		for k, s := range f.byKey {
			if s.seen < before && !s.changed {
				delete(f.byKey, k)
			}
		}
	}
	return n - len(f.streams)
}

// write adds the metric, if it has points.
func (f *family) write(st *settings, out pmetric.MetricSlice, ts uint64) {
	if len(f.streams) == 0 {
		return
	}
	def := &definitions[f.id]
	delta := st.cfg.Temporality == TemporalityDelta
	temporality := pmetric.AggregationTemporalityCumulative
	if delta {
		temporality = pmetric.AggregationTemporalityDelta
	}
	m := out.AppendEmpty()
	m.SetName(def.name)
	m.SetUnit(def.unit)
	m.SetDescription(def.description)
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
	for _, s := range f.streams {
		s.write(m, def.form, delta, ts)
	}
	if points(m) == 0 {
		out.RemoveIf(func(x pmetric.Metric) bool { return x == m })
	}
}

func points(m pmetric.Metric) int {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return m.Gauge().DataPoints().Len()
	case pmetric.MetricTypeSum:
		return m.Sum().DataPoints().Len()
	case pmetric.MetricTypeHistogram:
		return m.Histogram().DataPoints().Len()
	default:
		return m.ExponentialHistogram().DataPoints().Len()
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
