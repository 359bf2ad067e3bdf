// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package semconvtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
)

// CheckTracesFrom is CheckTraces for spans that one writer made: the registry must name it as a writer of every attribute that
// the registry has, those of OpenTelemetry's own conventions included.
func CheckTracesFrom(writer string, td ptrace.Traces) error {
	missing := map[string]error{}
	check := func(attrs pcommon.Map) {
		for name := range attrs.All() {
			if a, ok := semconv.LookupAttribute(name); ok && !slices.Contains(a.Writers, writer) {
				missing[a.Name] = fmt.Errorf("attribute %s: %s is not among its writers (%s)", a.Name, writer, strings.Join(a.Writers, ", "))
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
	errs := []error{CheckTraces(td)}
	for _, err := range missing {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
