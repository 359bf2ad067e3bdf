// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// required are the attributes that spans of a type must have, by gpu.operation.type.
var required = sync.OnceValue(func() map[string][]string {
	out := map[string][]string{}
	for _, s := range semconv.Spans() {
		for _, t := range s.Types {
			out[t] = s.Required
		}
	}
	return out
})

// Traces checks resources, scopes, spans, span events and links.
func (r *Report) Traces(td ptrace.Traces) {
	var resource spanfacts.Resource
	var scope spanfacts.Scope
	for i, rs := range td.ResourceSpans().All() {
		r.attributes(rs.Resource().Attributes(), "resource", "resource", fmt.Sprintf("resource %d", i))
		resource.Load(rs.Resource().Attributes())
		for _, ss := range rs.ScopeSpans().All() {
			r.scope(ss.Scope(), ss.SchemaUrl())
			scope.Load(&resource, ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				r.span(s, &scope)
			}
		}
	}
}

// schemas is the prefix of this project's schema URLs.
var schemas = semconv.SchemaURL[:strings.LastIndexByte(semconv.SchemaURL, '/')+1]

// scope checks the scope of any signal and its schema URL.
func (r *Report) scope(s pcommon.InstrumentationScope, schema string) {
	where := fmt.Sprintf("scope %q", s.Name())
	r.attributes(s.Attributes(), "scope", "scope", where)
	if version, ok := strings.CutPrefix(schema, schemas); ok && schema != semconv.SchemaURL {
		r.violation("scope", where, fmt.Sprintf("%q is not a version of the schema", version), "it is "+semconv.SchemaURL)
	}
}

func (r *Report) span(s ptrace.Span, scope *spanfacts.Scope) {
	r.Spans++
	where := fmt.Sprintf("span %q", s.Name())
	r.attributes(s.Attributes(), "span", "span", where)
	for _, e := range s.Events().All() {
		of := fmt.Sprintf("%s, event %q", where, e.Name())
		r.attributes(e.Attributes(), "span", "span event", of)
		r.event("span event "+e.Name(), of, e.Name(), e.Attributes(), true)
	}
	for i, l := range s.Links().All() {
		r.attributes(l.Attributes(), "span", "link", fmt.Sprintf("%s, link %d", where, i))
	}
	violation := func(what, remedy string) { r.violation("span", where, what, remedy) }
	var f spanfacts.Facts
	if !f.Load(s, scope) {
		if _, timed := s.Attributes().Get(string(semconv.GPUDurationKey)); timed {
			violation("attribute gpu.duration: on a span without gpu.operation.type", "its presence makes a span a GPU span")
		}
		return
	}
	r.GPUSpans++
	if f.End < f.Start {
		violation("ends before its start", fmt.Sprintf("by %d ns here", f.Start-f.End))
	}
	requires(s.Attributes(), required()[f.Type], func(name string) {
		violation(fmt.Sprintf("a span of type %s has no %s", f.Type, name), byRegistry)
	})
	if _, timed := s.Attributes().Get(string(semconv.GPUDurationKey)); timed && !f.Kind.Work() {
		violation(fmt.Sprintf("attribute gpu.duration: on a span of type %s, which is not GPU work", f.Type), "leave it out")
	}
	if r.Strict {
		r.outside(s, &f, violation)
	}
}

// outside checks the requirements for telemetry of other producers.
func (r *Report) outside(s ptrace.Span, f *spanfacts.Facts, violation func(what, remedy string)) {
	if s.TraceID().IsEmpty() || s.SpanID().IsEmpty() {
		violation("has no trace ID or no span ID", "it cannot be joined with samples of the device")
	}
	if s.Kind() < ptrace.SpanKindUnspecified || s.Kind() > ptrace.SpanKindConsumer {
		violation(fmt.Sprintf("kind %d is not in OTLP", s.Kind()), "0 to 5; 1 is internal")
	}
	if f.Start == 0 || f.End == 0 {
		violation("has no start or no end", inNanoseconds)
	}
	d := &f.Device
	if f.Kind.Work() && f.Kind != spanfacts.Step && !f.HostTimed() && d.ID == "" && d.BDF == "" && d.Ordinal < 0 {
		violation("names no device", "set hw.id on the instrumentation scope, or on the span")
	}
	if d.ID != "" && strings.Trim(d.ID, "0123456789") == "" {
		violation("attribute hw.id: an index", "the driver's name of the device, GPU- and its UUID, because an index "+
			"does not identify a device")
	}
	const grain = 1e-6 // s: of writers whose clocks count microseconds
	if v, ok := s.Attributes().Get(string(semconv.GPUDurationKey)); ok && f.Kind.Work() && f.Kind != spanfacts.Step &&
		v.Double() > longest*float64(f.End-f.Start)/1e9+grain {
		violation("attribute gpu.duration: longer than the span",
			fmt.Sprintf("seconds, as a double; here %v of %v", v.Double(), float64(f.End-f.Start)/1e9))
	}
}

// longest is gpu.duration ÷ the length of the span beyond which one of the two is wrong: clocks of
// the device and the host run apart by less.
const longest = 1.01

const inNanoseconds = "times are unix nanoseconds"

// TracesFrom does what Traces does for spans of one writer: the registry must name it as a writer
// of every attribute in the registry, including attributes of OpenTelemetry's own conventions, and
// the scopes must have the registry's schema URL.
func TracesFrom(writer string, td ptrace.Traces) error {
	missing := map[string]error{}
	r := Report{each: func(attrs pcommon.Map) {
		for name := range attrs.All() {
			if a, ok := semconv.LookupAttribute(name); ok && !slices.Contains(a.Writers, writer) {
				missing[a.Name] = fmt.Errorf("attribute %s: %s is not among its writers (%s)",
					a.Name, writer, strings.Join(a.Writers, ", "))
			}
		}
	}}
	r.Traces(td)
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			if url := ss.SchemaUrl(); url != semconv.SchemaURL {
				missing["schema"] = fmt.Errorf("scope %q: schema URL %q is not %s", ss.Scope().Name(), url, semconv.SchemaURL)
			}
		}
	}
	return errors.Join(slices.AppendSeq([]error{r.Err()}, maps.Values(missing))...)
}

// Metrics checks resources, scopes, metrics and data points. A histogram may be explicit or
// exponential.
func (r *Report) Metrics(md pmetric.Metrics) {
	for i, rm := range md.ResourceMetrics().All() {
		r.attributes(rm.Resource().Attributes(), "resource", "resource", fmt.Sprintf("resource %d", i))
		for _, sm := range rm.ScopeMetrics().All() {
			r.scope(sm.Scope(), sm.SchemaUrl())
			for _, m := range sm.Metrics().All() {
				r.metric(m)
			}
		}
	}
}

func (r *Report) metric(m pmetric.Metric) {
	where := "metric " + m.Name()
	violation := func(what, remedy string) { r.violation(where, where, what, remedy) }
	var want semconv.Metric
	known := false
	if ours(m.Name()) && !slices.Contains(otherHardwareMetrics, m.Name()) {
		if want, known = semconv.LookupMetric(m.Name()); !known {
			violation(unknown(m.Name(), metricNames()))
		}
	}
	if known {
		if m.Unit() != want.Unit {
			violation(fmt.Sprintf("unit %q, want %q", m.Unit(), want.Unit), "")
		}
		if got := instrument(m); got != want.Instrument {
			violation(fmt.Sprintf("%s, want %s", cmp.Or(string(got), m.Type().String()), want.Instrument), "")
		}
		if t, has := temporality(m); has && t == pmetric.AggregationTemporalityUnspecified {
			violation(fmt.Sprintf("temporality %s, want Delta or Cumulative", t), "")
		}
	}
	points(m, func(p point) {
		r.Points++
		r.attributes(p.attributes, "metric", where, where)
		if !finite(p.value) {
			violation(fmt.Sprintf("value %v is not finite", p.value), "leave the point out")
		}
		if !known {
			return
		}
		if p.faulty != "" {
			violation(p.faulty, "")
		}
		switch {
		case p.empty:
			violation("a point has no value", "leave the point out")
		case want.Instrument == semconv.InstrumentCounter && p.value < 0:
			violation(fmt.Sprintf("a counter is %v", p.value), "counters do not fall below 0")
		case want.Instrument == semconv.InstrumentCounter || isDifference(m):
		default:
			if what, remedy := amount(m.Name(), want.Unit, p.value); what != "" {
				violation("value "+what, remedy)
			}
		}
		switch {
		case r.Strict && p.time == 0:
			violation("a point has no time", inNanoseconds)
		case r.Strict && p.start > p.time:
			violation("a point's start is after its time", "")
		}
		if _, over := p.attributes.Get("otel.metric.overflow"); over {
			return // the overflow point, for series without room for attributes
		}
		requires(p.attributes, want.Required, func(name string) { violation("a point has no "+name, byRegistry) })
		for name := range p.attributes.All() {
			if want.Group == "device" && ours(name) && !slices.Contains(want.Attributes, name) &&
				!slices.Contains(otherHardware, name) {
				violation("attribute "+name+" is not one of the metric's", "")
			}
		}
	})
}

const byRegistry = "the registry requires it"

// requires calls fn for each name that is missing.
func requires(attrs pcommon.Map, names []string, fn func(name string)) {
	for _, name := range names {
		if _, ok := attrs.Get(name); !ok {
			fn(name)
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
	return ""
}

// temporality returns the temporality of a sum or histogram.
func temporality(m pmetric.Metric) (t pmetric.AggregationTemporality, has bool) {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		return m.Sum().AggregationTemporality(), true
	case pmetric.MetricTypeHistogram:
		return m.Histogram().AggregationTemporality(), true
	case pmetric.MetricTypeExponentialHistogram:
		return m.ExponentialHistogram().AggregationTemporality(), true
	}
	return 0, false
}

// isDifference reports whether points are changes of an up-down counter, which may be below 0.
func isDifference(m pmetric.Metric) bool {
	t, _ := temporality(m)
	return m.Type() == pmetric.MetricTypeSum && t == pmetric.AggregationTemporalityDelta
}

type point struct {
	attributes  pcommon.Map
	value       float64 // the sum of a histogram
	start, time pcommon.Timestamp
	empty       bool   // it should have a value
	faulty      string // what is wrong with a histogram
}

// points calls fn for the points of a metric of any kind.
func points(m pmetric.Metric, fn func(point)) {
	numbers := pmetric.NewNumberDataPointSlice()
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		numbers = m.Gauge().DataPoints()
	case pmetric.MetricTypeSum:
		numbers = m.Sum().DataPoints()
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			fn(point{p.Attributes(), p.Sum(), p.StartTimestamp(), p.Timestamp(), false, buckets(p)})
		}
	case pmetric.MetricTypeExponentialHistogram:
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			fn(point{p.Attributes(), p.Sum(), p.StartTimestamp(), p.Timestamp(), false, ""})
		}
	}
	for _, p := range numbers.All() {
		v := p.DoubleValue()
		if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
			v = float64(p.IntValue())
		}
		empty := p.ValueType() == pmetric.NumberDataPointValueTypeEmpty && !p.Flags().NoRecordedValue()
		fn(point{p.Attributes(), v, p.StartTimestamp(), p.Timestamp(), empty, ""})
	}
}

// buckets returns what is wrong with the buckets of an explicit histogram; "" if nothing is, or
// there are none.
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

// Logs checks resources, scopes and log records, event names included.
func (r *Report) Logs(ld plog.Logs) {
	for i, rl := range ld.ResourceLogs().All() {
		r.attributes(rl.Resource().Attributes(), "resource", "resource", fmt.Sprintf("resource %d", i))
		for _, sl := range rl.ScopeLogs().All() {
			r.scope(sl.Scope(), sl.SchemaUrl())
			for _, l := range sl.LogRecords().All() {
				r.record(l)
			}
		}
	}
}

func (r *Report) record(l plog.LogRecord) {
	r.Records++
	where := fmt.Sprintf("log record %q", l.EventName())
	r.attributes(l.Attributes(), "log", "log record", where)
	r.event(where, where, l.EventName(), l.Attributes(), false)
}

// event checks a log record or a span event by its event name; the device of a span event is the
// span's.
func (r *Report) event(kind, where, name string, attrs pcommon.Map, ofSpan bool) {
	if !ours(name) {
		return
	}
	e, ok := semconv.LookupEvent(name)
	if !ok {
		_, remedy := unknown(name, eventNames())
		r.violation(kind, where, "the event name is not in the registry", remedy)
		return
	}
	requires(attrs, e.Required, func(name string) {
		if !ofSpan || name != string(semconv.HWIDKey) {
			r.violation(kind, where, "has no "+name, byRegistry)
		}
	})
}
