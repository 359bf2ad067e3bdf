// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
	"github.com/otelgpu/otelgpu/semconv"
)

// restorable reports whether the format that a file states is one whose events can be made spans of.
func restorable(v []byte) bool {
	n, ok := chromejson.Int(v)
	return ok && n == chrometrace.FormatVersion
}

// readOrigins reads the top-level field otelgpuOrigins.
func (r *restorer) readOrigins(v []byte) {
	chromejson.Elements(v, func(v []byte) bool {
		rs := ptrace.NewResourceSpans()
		ss := rs.ScopeSpans().AppendEmpty()
		chromejson.Fields(v, func(k, v []byte) bool {
			switch string(k) {
			case "resource":
				r.values.exactAttributes(rs.Resource().Attributes(), v)
			case "resource_schema":
				rs.SetSchemaUrl(text(v))
			case "scope":
				ss.Scope().SetName(text(v))
			case "version":
				ss.Scope().SetVersion(text(v))
			case "attributes":
				r.values.exactAttributes(ss.Scope().Attributes(), v)
			case "scope_schema":
				ss.SetSchemaUrl(text(v))
			}
			return true
		})
		r.origins = append(r.origins, rs)
		return true
	})
}

// faults reports what of the file is on no span.
func (r *restorer) faults() []string {
	if r.values.beyond == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d attributes omitted: a span, an event, a resource, a scope or a map has more than %d",
		r.values.beyond, maxAttributes)}
}

// emit passes the spans on, in the order of the file. Configured resource attributes override the attributes of the
// file. If only the beginning of the file could be read, partial has the reason.
func (r *restorer) emit(ctx context.Context, configured map[string]string, partial string,
	emit func(context.Context, ptrace.Traces) error,
) error {
	if err := r.flush(); err != nil {
		return err
	}
	r.unknown = ptrace.NewResourceSpans()
	r.unknown.ScopeSpans().AppendEmpty()
	for _, from := range append(r.origins, r.unknown) {
		for _, k := range slices.Sorted(maps.Keys(configured)) {
			profiletrace.PutResource(from.Resource().Attributes(), k, configured[k])
		}
		if partial != "" {
			profiletrace.PutResource(from.Resource().Attributes(), string(semconv.GPUTracePartialKey), partial)
		}
	}
	u := ptrace.ProtoUnmarshaler{}
	return r.spool.each(func(b []byte) error {
		td, err := u.UnmarshalTraces(b)
		if err != nil {
			return err
		}
		for _, rs := range td.ResourceSpans().All() {
			r.setOrigin(rs)
		}
		return emit(ctx, td)
	})
}

// setOrigin replaces the placeholder of a resource by the resource and scope of its spans.
func (r *restorer) setOrigin(rs ptrace.ResourceSpans) {
	at, _ := rs.Resource().Attributes().Get(originKey)
	n := at.Int()
	rs.Resource().Attributes().Clear()
	from := r.unknown
	if n >= 0 && n < int64(len(r.origins)) {
		from = r.origins[n]
	}
	from.Resource().CopyTo(rs.Resource())
	rs.SetSchemaUrl(from.SchemaUrl())
	from.ScopeSpans().At(0).Scope().CopyTo(rs.ScopeSpans().At(0).Scope())
	rs.ScopeSpans().At(0).SetSchemaUrl(from.ScopeSpans().At(0).SchemaUrl())
}
