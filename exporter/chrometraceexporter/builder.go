// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"cmp"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
	"github.com/otelgpu/otelgpu/semconv"
)

// builder converts pdata to events and counters, and reuses its memory.
type builder struct {
	events   []chrometrace.Event
	counters []chrometrace.Counter
	args     []chrometrace.Arg
	marks    []chrometrace.Mark
}

func (b *builder) reset() {
	clear(b.events)
	clear(b.counters)
	clear(b.args)
	clear(b.marks)
	b.events, b.counters, b.args, b.marks = b.events[:0], b.counters[:0], b.args[:0], b.marks[:0]
}

func (b *builder) traces(td ptrace.Traces) {
	for _, rs := range td.ResourceSpans().All() {
		resource := b.attributes(rs.Resource().Attributes())
		process := chrometrace.ProcessOf(resource)
		for _, ss := range rs.ScopeSpans().All() {
			scope := b.attributes(ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				b.span(process, scope, s)
			}
		}
	}
}

func (b *builder) span(process chrometrace.Process, scope []chrometrace.Arg, s ptrace.Span) {
	args, mark := b.attributes(s.Attributes()), len(b.marks)
	for _, e := range s.Events().All() {
		b.marks = append(b.marks, chrometrace.Mark{
			Name: e.Name(), Time: int64(e.Timestamp()), Args: b.attributes(e.Attributes()),
		})
	}
	b.events = append(b.events, chrometrace.Event{
		Process: process, Name: s.Name(), Start: int64(s.StartTimestamp()), End: int64(s.EndTimestamp()),
		Trace: s.TraceID(), Span: s.SpanID(), Parent: s.ParentSpanID(), Scope: scope,
		Args: args, Marks: b.marks[mark:len(b.marks):len(b.marks)],
	})
	e := &b.events[len(b.events)-1]
	if k := s.Kind(); k != ptrace.SpanKindInternal {
		e.Kind = trace.SpanKind(k).String() // of the same numbers
	}
	switch st := s.Status(); st.Code() {
	case ptrace.StatusCodeError:
		e.Status, e.Message = "ERROR", st.Message()
	case ptrace.StatusCodeOk:
		e.Status = "OK"
	}
	for _, l := range s.Links().All() {
		e.Link(l.TraceID(), l.SpanID())
	}
	e.Classify()
}

// attributes returns arguments in the builder's memory.
func (b *builder) attributes(m pcommon.Map) []chrometrace.Arg {
	from := len(b.args)
	for k, v := range m.All() {
		b.args = append(b.args, chrometrace.Arg{Key: k, Value: value(v)})
	}
	return b.args[from:len(b.args):len(b.args)]
}

func value(v pcommon.Value) chrometrace.Value {
	switch v.Type() {
	case pcommon.ValueTypeInt:
		return chrometrace.Int(v.Int())
	case pcommon.ValueTypeDouble:
		return chrometrace.Float(v.Double())
	case pcommon.ValueTypeBool:
		return chrometrace.Bool(v.Bool())
	case pcommon.ValueTypeSlice:
		list := make([]chrometrace.Value, 0, v.Slice().Len())
		for _, e := range v.Slice().All() {
			list = append(list, value(e))
		}
		return chrometrace.List(list)
	case pcommon.ValueTypeMap:
		keys, list := make([]string, 0, v.Map().Len()), make([]chrometrace.Value, 0, v.Map().Len())
		for k, e := range v.Map().All() {
			keys, list = append(keys, k), append(list, value(e))
		}
		return chrometrace.Map(keys, list)
	case pcommon.ValueTypeBytes:
		return chrometrace.Bytes(v.Bytes().AsRaw())
	case pcommon.ValueTypeEmpty:
		return chrometrace.Value{}
	}
	return chrometrace.String(v.AsString())
}

// metrics adds the gauges and non-monotonic sums named in the configuration that have a device.
func (b *builder) metrics(md pmetric.Metrics, names map[string]bool) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if !names[m.Name()] {
					continue
				}
				switch m.Type() {
				case pmetric.MetricTypeGauge:
					b.points(m, m.Gauge().DataPoints())
				case pmetric.MetricTypeSum:
					if !m.Sum().IsMonotonic() {
						b.points(m, m.Sum().DataPoints())
					}
				}
			}
		}
	}
}

// identity lists the attributes that identify the device of a point; the others distinguish the
// streams of a metric.
var identity = map[string]bool{
	string(semconv.HWIDKey): true, string(semconv.HWNameKey): true, string(semconv.HWModelKey): true,
	string(semconv.HWTypeKey): true, string(semconv.HWVendorKey): true, string(semconv.HWParentKey): true,
	string(semconv.HWDriverVersionKey): true, string(semconv.GPUPCIBDFKey): true,
	string(semconv.GPUDeviceOrdinalKey):     true,
	string(semconv.GPUMeasurementSourceKey): true,
}

func (b *builder) points(m pmetric.Metric, ps pmetric.NumberDataPointSlice) {
	for _, p := range ps.All() {
		if p.Flags().NoRecordedValue() {
			continue
		}
		c := chrometrace.Counter{
			Name: m.Name(), Unit: unit(m.Unit()), Start: int64(p.StartTimestamp()),
			Time: int64(p.Timestamp()),
		}
		for k, v := range p.Attributes().All() {
			switch {
			case k == string(semconv.HWIDKey):
				c.Device = v.AsString()
			case k == string(semconv.HWNameKey):
				c.Label = v.AsString()
			case !identity[k]:
				c.Name += " " + v.AsString()
			}
		}
		if c.Device == "" {
			continue
		}
		c.Label = cmp.Or(c.Label, c.Device)
		switch p.ValueType() {
		case pmetric.NumberDataPointValueTypeInt:
			c.Value = float64(p.IntValue())
		case pmetric.NumberDataPointValueTypeDouble:
			c.Value = p.DoubleValue()
		default:
			continue
		}
		b.counters = append(b.counters, c)
	}
}

// unit returns the key of a counter's value, which viewers show as its unit.
func unit(u string) string {
	if u == "1" || u == "" {
		return "ratio"
	}
	return u
}
