// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
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
			r.attributes(ss.Scope().Attributes(), "scope", "scope", fmt.Sprintf("scope %q", ss.Scope().Name()))
			scope.Load(&resource, ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				r.span(s, &scope)
			}
		}
	}
}

func (r *Report) span(s ptrace.Span, scope *spanfacts.Scope) {
	r.Spans++
	where := fmt.Sprintf("span %q", s.Name())
	r.attributes(s.Attributes(), "span", "span", where)
	for _, e := range s.Events().All() {
		r.attributes(e.Attributes(), "span", "span event", fmt.Sprintf("%s, event %q", where, e.Name()))
	}
	for i, l := range s.Links().All() {
		r.attributes(l.Attributes(), "span", "link", fmt.Sprintf("%s, link %d", where, i))
	}
	complain := func(what, remedy string) { r.complain("span", where, what, remedy) }
	var f spanfacts.Facts
	if !f.Load(s, scope) {
		if _, timed := s.Attributes().Get(string(semconv.GPUDurationKey)); timed {
			complain("attribute gpu.duration: on a span without gpu.operation.type", "its presence makes a span a GPU span")
		}
		return
	}
	r.GPUSpans++
	if f.End < f.Start {
		complain("ends before its start", fmt.Sprintf("by %d ns here", f.Start-f.End))
	}
	for _, name := range required()[f.Type] {
		if _, ok := s.Attributes().Get(name); !ok {
			complain(fmt.Sprintf("a span of type %s has no %s", f.Type, name), "the registry requires it")
		}
	}
	if _, timed := s.Attributes().Get(string(semconv.GPUDurationKey)); timed && !f.Kind.Work() {
		complain(fmt.Sprintf("attribute gpu.duration: on a span of type %s, which is no GPU work", f.Type), "leave it out")
	}
	if r.Strict {
		r.outside(s, &f, complain)
	}
}

// outside checks what only telemetry from outside can be asked for.
func (r *Report) outside(s ptrace.Span, f *spanfacts.Facts, complain func(what, remedy string)) {
	if s.TraceID().IsEmpty() || s.SpanID().IsEmpty() {
		complain("has no trace ID or no span ID", "it cannot be joined with samples of the device")
	}
	if f.Start == 0 || f.End == 0 {
		complain("has no start or no end", "times are unix nanoseconds")
	}
	d := &f.Device
	if f.Kind.Work() && f.Kind != spanfacts.Step && !f.HostTimed() && d.ID == "" && d.BDF == "" && d.Ordinal < 0 {
		complain("names no device", "set hw.id on the instrumentation scope, or on the span")
	}
}

// TracesFrom is Traces for spans that one writer made: the registry must name it as a writer of every attribute that
// the registry has, those of OpenTelemetry's own conventions included.
func TracesFrom(writer string, td ptrace.Traces) error {
	missing := map[string]error{}
	check := func(attrs pcommon.Map) {
		for name := range attrs.All() {
			if a, ok := semconv.LookupAttribute(name); ok && !slices.Contains(a.Writers, writer) {
				missing[a.Name] = fmt.Errorf("attribute %s: %s is not among its writers (%s)",
					a.Name, writer, strings.Join(a.Writers, ", "))
			}
		}
	}
	for _, rs := range td.ResourceSpans().All() {
		check(rs.Resource().Attributes())
		for _, ss := range rs.ScopeSpans().All() {
			check(ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				check(s.Attributes())
				for _, e := range s.Events().All() {
					check(e.Attributes())
				}
				for _, l := range s.Links().All() {
					check(l.Attributes())
				}
			}
		}
	}
	errs := []error{Traces(td)}
	for _, err := range missing {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
