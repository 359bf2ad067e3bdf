// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// failure returns the description of a failed section's status: the application's, or the driver's;
// empty: it did not fail.
func failure(r *section.Record) string {
	switch {
	case r.Extra != nil && r.Extra.Error != "":
		return r.Extra.Error
	case r.Status == section.StatusDeviceError:
		return "the device failed, the times are the host's"
	}
	return ""
}

// records reports whether a section below parent becomes a span. A batch does if one of its
// requests does.
func records(r *section.Record, parent trace.SpanContext) bool {
	if !parent.IsValid() || parent.IsSampled() {
		return true
	}
	return r.Extra != nil && slices.ContainsFunc(r.Extra.Links,
		func(l trace.Link) bool { return l.SpanContext.IsSampled() })
}

// sinkSpan passes a section's span to the sink. parent is valid if the section is inside another.
func (t *Exporter) sinkSpan(r *section.Record, s *section.Stream, parent trace.SpanContext) {
	defer t.p.Guard("a section's span was handed to the sink")
	if !parent.IsValid() && r.Ctx != nil {
		parent = trace.SpanContextFromContext(r.Ctx)
	}
	if !records(r, parent) {
		return
	}
	x := &t.sink
	x.Parent = parent
	x.Context = t.sinkContext(r, &parent)
	x.Name, x.Start, x.End, x.Error, x.Links = r.Op.Cfg.Info.Name, r.StartNs, r.EndNs, failure(r), nil
	x.DroppedLinks = 0
	if e := r.Extra; e != nil && e.Batch > 0 {
		t.share = slices.Grow(t.share[:0], 2*len(e.Links))
		x.Links = shareLinks(e, t.share, r.Work.Items, section.MaxLinks, 0)
		if x.DroppedLinks = e.Batch - e.Kept; x.DroppedLinks > 0 {
			t.p.AddLostLinks(x.DroppedLinks)
		}
	}
	x.Scope = s.Scope(r.Timed && r.Flags&section.FlagGiven == 0).Sink()
	factsOf(&x.Facts, r, t.p.Clock)
	// the application's may repeat keys
	if own := r.Extra != nil && len(r.Extra.Attrs) > 0 || len(t.p.Cfg.Attributes) > 0; own {
		t.attrs = t.describe(t.attrs[:0], &x.Facts, r, s)
		x.Facts.Known, x.Constant, x.Attributes = 0, nil, lastOfEach(t.attrs)
	} else {
		x.Constant = t.constantOn(r.Op, s, &r.Work)
		t.attrs = t.describeRest(t.attrs[:0], r)
		x.Attributes = t.attrs
	}
	r.Span = x.Context
	t.p.Cfg.Sink.Section(x)
}

// sinkContext returns the identity of a section's span: the reserved one, otherwise a new one.
func (t *Exporter) sinkContext(r *section.Record, parent *trace.SpanContext) trace.SpanContext {
	c := trace.SpanContextConfig{
		TraceID: parent.TraceID(), TraceFlags: parent.TraceFlags() | trace.FlagsSampled, TraceState: parent.TraceState(),
	}
	switch {
	case r.Extra != nil && r.Extra.IDs.Fit(*parent):
		c.TraceID, c.SpanID = r.Extra.IDs.Trace, r.Extra.IDs.Span
	case parent.IsValid():
		c.SpanID = t.p.Cfg.IDs.DrawSpanID(context.Background(), c.TraceID)
	default:
		c.TraceID, c.SpanID = t.p.Cfg.IDs.DrawIDs(context.Background())
	}
	return trace.NewSpanContext(c)
}

// constantOn returns the attributes of all spans of the operation on a stream that computed with
// one precision.
func (t *Exporter) constantOn(st *section.OpState, s *section.Stream, w *work.Work) *sink.Constant {
	precision := w.Precision
	if w.FLOPs == 0 {
		precision = work.PrecisionUnset
	}
	constants := t.constants[st]
	for i := range constants {
		if c := &constants[i]; c.stream == s && c.precision == precision {
			return c.constant
		}
	}
	c := &sink.Constant{Attributes: lastOfEach(slices.Concat(st.Attrs, s.Attrs, PrecisionOf(w)))}
	if len(constants) >= maxConstants {
		constants = constants[:0] // streams are registered and closed
	}
	t.constants[st] = append(constants, streamConstant{s, precision, c})
	return c
}

// maxConstants bounds the values kept for one operation; the list is searched linearly.
const maxConstants = 16

// lastOfEach keeps the last value of each key, as an SDK does.
func lastOfEach(kv []attribute.KeyValue) []attribute.KeyValue {
	out := kv[:0]
	for i, a := range kv {
		if !slices.ContainsFunc(kv[i+1:], func(b attribute.KeyValue) bool { return b.Key == a.Key }) {
			out = append(out, a)
		}
	}
	return out
}
