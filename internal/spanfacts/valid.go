// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// ValidTraces makes all texts of traces valid UTF-8. Receivers of OTLP accept other bytes, but strict stores reject the
// whole request that has them, with the spans of others.
func ValidTraces(td ptrace.Traces) {
	for _, rs := range td.ResourceSpans().All() {
		ValidMap(rs.Resource().Attributes())
		validText(rs.SchemaUrl(), rs.SetSchemaUrl)
		for _, ss := range rs.ScopeSpans().All() {
			scope := ss.Scope()
			validText(scope.Name(), scope.SetName)
			validText(scope.Version(), scope.SetVersion)
			validText(ss.SchemaUrl(), ss.SetSchemaUrl)
			ValidMap(scope.Attributes())
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

func validText(s string, set func(string)) {
	if !utf8.ValidString(s) {
		set(strings.ToValidUTF8(s, replacement))
	}
}

// maxDepth is how deep values may be nested. Protocol buffers' readers reject messages that are nested in 100 others,
// and a map in an attribute of an event in a span is three more each time.
const (
	maxDepth = 24
	tooDeep  = "…"
)

// ValidMap makes the names and texts of attributes valid UTF-8, and replaces values that are nested too deep.
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
