// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package semconvtest

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
)

// CheckTraces returns every deviation from the registry in resources, scopes, spans, span events and links, joined; nil
// when there is none. A GPU span must not end before its start.
func CheckTraces(td ptrace.Traces) error {
	var errs []error
	for i, rs := range td.ResourceSpans().All() {
		errs = append(errs, checkAttributes(rs.Resource().Attributes(), "resource", fmt.Sprintf("resource %d", i)))
		for _, ss := range rs.ScopeSpans().All() {
			errs = append(errs, checkAttributes(ss.Scope().Attributes(), "scope", fmt.Sprintf("scope %q", ss.Scope().Name())))
			for _, s := range ss.Spans().All() {
				errs = append(errs, checkSpan(s))
			}
		}
	}
	return errors.Join(errs...)
}

func checkSpan(s ptrace.Span) error {
	where := fmt.Sprintf("span %q", s.Name())
	errs := []error{checkAttributes(s.Attributes(), "span", where)}
	for _, e := range s.Events().All() {
		errs = append(errs, checkAttributes(e.Attributes(), "span", fmt.Sprintf("%s, event %q", where, e.Name())))
	}
	for i, l := range s.Links().All() {
		errs = append(errs, checkAttributes(l.Attributes(), "span", fmt.Sprintf("%s, link %d", where, i)))
	}
	if _, gpu := s.Attributes().Get(string(semconv.GPUOperationTypeKey)); gpu && s.EndTimestamp() < s.StartTimestamp() {
		errs = append(errs, fmt.Errorf("%s: ends %d ns before its start", where, s.StartTimestamp()-s.EndTimestamp()))
	}
	return errors.Join(errs...)
}
