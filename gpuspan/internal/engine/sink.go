// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Sink takes the spans of sections instead of a tracer. Calls come from one goroutine of each profiler. What it is
// given is the caller's again when the call returns, but for Scope and Constant, which never change.
type Sink interface {
	Section(*SinkSpan)
}

// SinkSpan is the span of a section. Its attributes are Facts, those of Constant, and Attributes; no key is among two
// of them.
type SinkSpan struct {
	Context    trace.SpanContext
	Parent     trace.SpanContext
	Name       string
	Start, End int64 // unix ns
	Error      string
	Links      []trace.Link

	DroppedLinks int // of a batch of more requests than there are Links

	Scope      *SinkScope
	Constant   *SinkConstant // of the operation on the stream; nil: none
	Facts      Facts
	Attributes []attribute.KeyValue
}

// SinkScope is an instrumentation scope.
type SinkScope struct {
	Name, Version, Schema string
	Attributes            []attribute.KeyValue
}

// SinkConstant is what all spans of an operation on a stream say.
type SinkConstant struct {
	Attributes []attribute.KeyValue
	Encoded    []byte // for the sink to keep
}

const deviceFailed = "the device failed, the times are the host's"

// records reports whether a section below parent becomes a span. A batch does if one of its requests does.
func (r *record) records(parent trace.SpanContext) bool {
	if !parent.IsValid() || parent.IsSampled() {
		return true
	}
	return r.extra != nil && slices.ContainsFunc(r.extra.links,
		func(l trace.Link) bool { return l.SpanContext.IsSampled() })
}

// sinkSpan hands a section's span to the sink. parent is valid where the section lies in another.
func (t *emitter) sinkSpan(r *record, s *Stream, parent trace.SpanContext) {
	defer t.p.guard("a section's span was handed to the sink")
	if !parent.IsValid() && r.ctx != nil {
		parent = trace.SpanContextFromContext(r.ctx)
	}
	if !r.records(parent) {
		return
	}
	x := &t.sink
	x.Parent = parent
	x.Context = t.p.sinkContext(r, &parent)
	x.Name, x.Start, x.End, x.Error, x.Links = r.op.op.cfg.Info.Name, r.startNs, r.endNs, "", nil
	if r.status == statusDeviceError {
		x.Error = deviceFailed
	}
	x.DroppedLinks = 0
	if e := r.extra; e != nil && e.batch > 0 {
		t.share = slices.Grow(t.share[:0], 2*len(e.links))
		x.Links = e.shareLinks(t.share, r.work.Items, maxLinks, 0)
		if x.DroppedLinks = e.batch - e.kept; x.DroppedLinks > 0 {
			t.p.lostLinks.Add(int64(x.DroppedLinks))
		}
	}
	x.Scope = s.scope(r.timed && r.flags&flagGiven == 0).sink()
	x.Facts.of(r, t.p.clock)
	// the application's may repeat keys
	if own := r.extra != nil && len(r.extra.attrs) > 0 || len(t.p.cfg.Attributes) > 0; own {
		t.attrs = t.p.describe(t.attrs[:0], &x.Facts, r, s)
		x.Facts.Known, x.Constant, x.Attributes = 0, nil, lastOfEach(t.attrs)
	} else {
		x.Constant = r.op.constantOn(s, &r.work)
		t.attrs = t.p.describeRest(t.attrs[:0], r)
		x.Attributes = t.attrs
	}
	r.span = x.Context
	t.p.cfg.Sink.Section(x)
}

// sinkContext is the identity of a section's span: that which was reserved, else drawn.
func (p *Profiler) sinkContext(r *record, parent *trace.SpanContext) trace.SpanContext {
	c := trace.SpanContextConfig{
		TraceID: parent.TraceID(), TraceFlags: parent.TraceFlags() | trace.FlagsSampled, TraceState: parent.TraceState(),
	}
	switch {
	case r.extra != nil && r.extra.ids.fit(*parent):
		c.TraceID, c.SpanID = r.extra.ids.trace, r.extra.ids.span
	case parent.IsValid():
		c.SpanID = p.cfg.IDs.drawSpanID(context.Background(), c.TraceID)
	default:
		c.TraceID, c.SpanID = p.cfg.IDs.drawIDs(context.Background())
	}
	return trace.NewSpanContext(c)
}

// constantOn is what all spans of the operation on a stream say, of those that computed with one precision.
func (st *opState) constantOn(s *Stream, w *Work) *SinkConstant {
	precision := w.Precision
	if w.FLOPs == 0 {
		precision = PrecisionUnset
	}
	for i := range st.constants {
		if c := &st.constants[i]; c.stream == s && c.precision == precision {
			return c.constant
		}
	}
	c := &SinkConstant{Attributes: lastOfEach(slices.Concat(st.op.attrs, s.attrs, precisionOf(w)))}
	if len(st.constants) >= maxConstants {
		st.constants = st.constants[:0] // streams that come and go
	}
	st.constants = append(st.constants, streamConstant{s, precision, c})
	return c
}

// maxConstants bounds what is kept for one operation; the list is searched.
const maxConstants = 16

type streamConstant struct {
	stream    *Stream
	precision Precision
	constant  *SinkConstant
}

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
