// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"iter"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// ValidTraces makes all texts of traces valid UTF-8. Receivers of OTLP accept other bytes, but
// strict stores reject the whole request that has them, with the spans of others.
func ValidTraces(td ptrace.Traces) {
	for _, rs := range td.ResourceSpans().All() {
		validGroup(rs, rs.Resource())
		for _, ss := range rs.ScopeSpans().All() {
			validScope(ss, ss.Scope())
			for _, s := range ss.Spans().All() {
				validSpan(s)
			}
		}
	}
}

func validSpan(s ptrace.Span) {
	validText(s.Name(), s.SetName)
	validText(s.TraceState().AsRaw(), s.TraceState().FromRaw)
	validText(s.Status().Message(), s.Status().SetMessage)
	ValidMap(s.Attributes())
	for _, e := range s.Events().All() {
		validText(e.Name(), e.SetName)
		ValidMap(e.Attributes())
	}
	for _, l := range s.Links().All() {
		validText(l.TraceState().AsRaw(), l.TraceState().FromRaw)
		ValidMap(l.Attributes())
	}
}

// ValidMetrics is ValidTraces for metrics.
func ValidMetrics(md pmetric.Metrics) {
	for _, rm := range md.ResourceMetrics().All() {
		validGroup(rm, rm.Resource())
		for _, sm := range rm.ScopeMetrics().All() {
			validScope(sm, sm.Scope())
			for _, m := range sm.Metrics().All() {
				validMetric(m)
			}
		}
	}
}

// ValidLogs is ValidTraces for logs.
func ValidLogs(ld plog.Logs) {
	for _, rl := range ld.ResourceLogs().All() {
		validGroup(rl, rl.Resource())
		for _, sl := range rl.ScopeLogs().All() {
			validScope(sl, sl.Scope())
			for _, r := range sl.LogRecords().All() {
				validText(r.SeverityText(), r.SetSeverityText)
				validText(r.EventName(), r.SetEventName)
				validValue(r.Body(), 0)
				ValidMap(r.Attributes())
			}
		}
	}
}

// group is what a resource or a scope has.
type group interface {
	SchemaUrl() string
	SetSchemaUrl(string)
}

func validGroup(g group, of interface{ Attributes() pcommon.Map }) {
	validText(g.SchemaUrl(), g.SetSchemaUrl)
	ValidMap(of.Attributes())
}

func validScope(g group, s pcommon.InstrumentationScope) {
	validText(s.Name(), s.SetName)
	validText(s.Version(), s.SetVersion)
	validGroup(g, s)
}

func validMetric(m pmetric.Metric) {
	validText(m.Name(), m.SetName)
	validText(m.Description(), m.SetDescription)
	validText(m.Unit(), m.SetUnit)
	ValidMap(m.Metadata())
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		validPoints(m.Gauge().DataPoints().All())
	case pmetric.MetricTypeSum:
		validPoints(m.Sum().DataPoints().All())
	case pmetric.MetricTypeHistogram:
		validPoints(m.Histogram().DataPoints().All())
	case pmetric.MetricTypeExponentialHistogram:
		validPoints(m.ExponentialHistogram().DataPoints().All())
	case pmetric.MetricTypeSummary:
		for _, p := range m.Summary().DataPoints().All() {
			ValidMap(p.Attributes())
		}
	}
}

// point is a point of any form but a summary's.
type point interface {
	Attributes() pcommon.Map
	Exemplars() pmetric.ExemplarSlice
}

func validPoints[P point](points iter.Seq2[int, P]) {
	for _, p := range points {
		ValidMap(p.Attributes())
		for _, e := range p.Exemplars().All() {
			ValidMap(e.FilteredAttributes())
		}
	}
}

func validText(s string, set func(string)) {
	if !utf8.ValidString(s) {
		set(strings.ToValidUTF8(s, replacement))
	}
}

// maxDepth is how deep values may be nested. Protocol buffers' readers reject messages that are
// nested in 100 others, and a map in an attribute of an event in a span is three more each time.
const (
	maxDepth = 24
	tooDeep  = "…"
)

// ValidMap makes the names and texts of attributes valid UTF-8, and replaces values that are nested
// too deep.
func ValidMap(m pcommon.Map) { validMap(m, 0) }

func validMap(m pcommon.Map, depth int) {
	var bad []string
	for k, v := range m.All() {
		validValue(v, depth)
		if !utf8.ValidString(k) {
			bad = append(bad, k)
		}
	}
	for _, k := range bad {
		v, _ := m.Get(k)
		moved := pcommon.NewValueEmpty()
		v.MoveTo(moved)
		m.Remove(k)
		moved.MoveTo(m.PutEmpty(strings.ToValidUTF8(k, replacement)))
	}
}

func validValue(v pcommon.Value, depth int) {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		validText(v.Str(), v.SetStr)
	case pcommon.ValueTypeMap, pcommon.ValueTypeSlice:
		if depth++; depth > maxDepth {
			v.SetStr(tooDeep)
			return
		}
		if v.Type() == pcommon.ValueTypeMap {
			validMap(v.Map(), depth)
			return
		}
		for _, x := range v.Slice().All() {
			validValue(x, depth)
		}
	}
}
