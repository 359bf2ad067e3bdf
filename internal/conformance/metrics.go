// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/semconv"
)

// Metrics checks resources, scopes, metrics and data points. A histogram may be explicit or exponential.
func (r *Report) Metrics(md pmetric.Metrics) {
	for i, rm := range md.ResourceMetrics().All() {
		r.attributes(rm.Resource().Attributes(), "resource", "resource", fmt.Sprintf("resource %d", i))
		for _, sm := range rm.ScopeMetrics().All() {
			r.attributes(sm.Scope().Attributes(), "scope", "scope", fmt.Sprintf("scope %q", sm.Scope().Name()))
			for _, m := range sm.Metrics().All() {
				r.metric(m)
			}
		}
	}
}

func (r *Report) metric(m pmetric.Metric) {
	where := "metric " + m.Name()
	complain := func(what, remedy string) { r.complain(where, where, what, remedy) }
	var want semconv.Metric
	known := false
	if ours(m.Name()) {
		if want, known = semconv.LookupMetric(m.Name()); !known {
			complain(unknown(m.Name(), metricNames()))
		}
	}
	if known {
		if m.Unit() != want.Unit {
			complain(fmt.Sprintf("unit %q, want %q", m.Unit(), want.Unit), "")
		}
		if got := instrument(m); got != want.Instrument {
			complain(fmt.Sprintf("%s, want %s", shape(m), want.Instrument), "")
		}
	}
	for p := range points(m) {
		r.Points++
		r.attributes(p.attributes, "metric", where, where)
		if !finite(p.value) {
			complain(fmt.Sprintf("value %v is not finite", p.value), "leave the point out")
		}
		if !known {
			continue
		}
		if p.faulty != "" {
			complain(p.faulty, "")
		}
		if want.Instrument == semconv.InstrumentCounter && p.value < 0 {
			complain(fmt.Sprintf("a counter is %v", p.value), "counters do not fall below 0")
		}
		if r.Strict && p.start > p.time && p.start > 0 {
			complain("a point's start is after its time", "")
		}
		if _, over := p.attributes.Get("otel.metric.overflow"); over {
			continue // the point of what had no room for attributes
		}
		for _, name := range want.Required {
			if _, ok := p.attributes.Get(name); !ok {
				complain("a point has no "+name, "the registry requires it")
			}
		}
		for name := range p.attributes.All() {
			if want.Group == "device" && ours(name) && !slices.Contains(want.Attributes, name) {
				complain("attribute "+name+" is not one of the metric's", "")
			}
		}
	}
}

func instrument(m pmetric.Metric) semconv.Instrument {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return semconv.InstrumentGauge
	case pmetric.MetricTypeSum:
		if m.Sum().IsMonotonic() {
			return semconv.InstrumentCounter
		}
		return semconv.InstrumentUpDownCounter
	case pmetric.MetricTypeHistogram, pmetric.MetricTypeExponentialHistogram:
		return semconv.InstrumentHistogram
	}
	return 0
}

// shape says what the metric is on the wire, for messages.
func shape(m pmetric.Metric) string {
	if i := instrument(m); i != 0 {
		return i.String()
	}
	return m.Type().String()
}

type point struct {
	attributes  pcommon.Map
	value       float64 // the sum of a histogram
	start, time pcommon.Timestamp
	faulty      string // what is wrong with a histogram
}

// points yields the points of a metric of any kind.
func points(m pmetric.Metric) func(func(point) bool) {
	return func(yield func(point) bool) {
		var numbers pmetric.NumberDataPointSlice
		switch m.Type() {
		case pmetric.MetricTypeGauge:
			numbers = m.Gauge().DataPoints()
		case pmetric.MetricTypeSum:
			numbers = m.Sum().DataPoints()
		case pmetric.MetricTypeHistogram:
			for _, p := range m.Histogram().DataPoints().All() {
				if !yield(point{p.Attributes(), p.Sum(), p.StartTimestamp(), p.Timestamp(), buckets(p)}) {
					return
				}
			}
			return
		case pmetric.MetricTypeExponentialHistogram:
			for _, p := range m.ExponentialHistogram().DataPoints().All() {
				if !yield(point{p.Attributes(), p.Sum(), p.StartTimestamp(), p.Timestamp(), ""}) {
					return
				}
			}
			return
		default:
			return
		}
		for _, p := range numbers.All() {
			v := p.DoubleValue()
			if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
				v = float64(p.IntValue())
			}
			if !yield(point{p.Attributes(), v, p.StartTimestamp(), p.Timestamp(), ""}) {
				return
			}
		}
	}
}

// buckets says what is wrong with the buckets of an explicit histogram; "" where nothing is, or there are none.
func buckets(p pmetric.HistogramDataPoint) string {
	counts, bounds := p.BucketCounts(), p.ExplicitBounds()
	if counts.Len() == 0 && bounds.Len() == 0 {
		return ""
	}
	if counts.Len() != bounds.Len()+1 {
		return fmt.Sprintf("%d buckets for %d bounds, want one more than bounds", counts.Len(), bounds.Len())
	}
	var sum uint64
	for _, n := range counts.All() {
		sum += n
	}
	if sum != p.Count() {
		return "the buckets do not sum to the count"
	}
	if b := bounds.AsRaw(); !slices.IsSorted(b) {
		return "the bounds are not in order"
	}
	return ""
}
