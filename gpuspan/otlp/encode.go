// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
)

// The field numbers are those of opentelemetry/proto/trace/v1/trace.proto, common/v1/common.proto and
// collector/trace/v1/trace_service.proto. A tag is the number times 8 plus the wire type: 0 varint, 1 eight bytes, 2
// length and bytes, 5 four bytes.

const (
	spanKindInternal  = 1
	statusCodeError   = 2
	flagsHasRemote    = 0x100
	flagsParentRemote = 0x200
)

// appendTag writes a field's tag. Numbers from 16 on take two bytes.
func appendTag(b []byte, field, wire int) []byte {
	return binary.AppendUvarint(b, uint64(field<<3|wire))
}

func appendBytes(b []byte, field int, v []byte) []byte {
	b = binary.AppendUvarint(appendTag(b, field, 2), uint64(len(v)))
	return append(b, v...)
}

func appendString(b []byte, field int, v string) []byte {
	if v == "" {
		return b
	}
	b = binary.AppendUvarint(appendTag(b, field, 2), uint64(len(v)))
	return append(b, v...)
}

func appendFixed32(b []byte, field int, v uint32) []byte {
	return binary.LittleEndian.AppendUint32(appendTag(b, field, 5), v)
}

// uvarintLen is the length of a varint.
func uvarintLen(v uint64) int {
	n := 1
	for v >= 0x80 {
		v >>= 7
		n++
	}
	return n
}

// appendAttribute writes a KeyValue {key = 1, value = 2} as a field.
func appendAttribute(b []byte, field int, kv attribute.KeyValue) []byte {
	n := valueLen(kv.Value)
	size := 1 + uvarintLen(uint64(len(kv.Key))) + len(kv.Key) + 1 + uvarintLen(uint64(n)) + n
	b = binary.AppendUvarint(appendTag(b, field, 2), uint64(size))
	b = binary.AppendUvarint(append(b, 1<<3|2), uint64(len(kv.Key)))
	b = append(b, kv.Key...)
	b = binary.AppendUvarint(append(b, 2<<3|2), uint64(n))
	return appendValue(b, kv.Value)
}

// valueLen is the length of an AnyValue {string = 1, bool = 2, int = 3, double = 4, array = 5}.
func valueLen(v attribute.Value) int {
	switch v.Type() {
	case attribute.STRING:
		n := len(v.AsString())
		return 1 + uvarintLen(uint64(n)) + n
	case attribute.BOOL:
		return 2
	case attribute.INT64:
		return 1 + uvarintLen(uint64(v.AsInt64()))
	case attribute.FLOAT64:
		return 9
	case attribute.EMPTY:
		return 0
	}
	n := len(appendArray(nil, v))
	return 1 + uvarintLen(uint64(n)) + n
}

func appendValue(b []byte, v attribute.Value) []byte {
	switch v.Type() {
	case attribute.STRING:
		s := v.AsString()
		return append(binary.AppendUvarint(append(b, 1<<3|2), uint64(len(s))), s...)
	case attribute.BOOL:
		if v.AsBool() {
			return append(b, 2<<3, 1)
		}
		return append(b, 2<<3, 0)
	case attribute.INT64:
		return binary.AppendUvarint(append(b, 3<<3), uint64(v.AsInt64()))
	case attribute.FLOAT64:
		return binary.LittleEndian.AppendUint64(append(b, 4<<3|1), math.Float64bits(v.AsFloat64()))
	case attribute.EMPTY:
		return b
	}
	return appendBytes(b, 5, appendArray(nil, v))
}

// appendArray writes an ArrayValue {values = 1}. What is no list of a kind known here is written as text.
func appendArray(b []byte, v attribute.Value) []byte {
	each := func(e attribute.Value) { b = appendBytes(b, 1, appendValue(nil, e)) }
	switch v.Type() {
	case attribute.STRINGSLICE:
		for _, e := range v.AsStringSlice() {
			each(attribute.StringValue(e))
		}
	case attribute.INT64SLICE:
		for _, e := range v.AsInt64Slice() {
			each(attribute.Int64Value(e))
		}
	case attribute.FLOAT64SLICE:
		for _, e := range v.AsFloat64Slice() {
			each(attribute.Float64Value(e))
		}
	case attribute.BOOLSLICE:
		for _, e := range v.AsBoolSlice() {
			each(attribute.BoolValue(e))
		}
	default:
		each(attribute.StringValue(v.String()))
	}
	return b
}

func appendAttributes(b []byte, field int, kv []attribute.KeyValue) []byte {
	for _, a := range kv {
		b = appendAttribute(b, field, a)
	}
	return b
}

// numbers are the attributes of facts, encoded but for their numbers.
var numbers = func() (list [engine.NumFacts][]byte) {
	for f := range list {
		kv := engine.FactKeys[f].Int64(0)
		if engine.Fact(f) < engine.FactRead {
			kv = engine.FactKeys[f].Float64(0)
		}
		list[f] = appendAttribute(nil, spanAttributes, kv)
	}
	return list
}()

// appendFact writes a number behind the rest of its attribute. An integer is at most ten bytes long, so that the
// lengths before it stay single bytes.
func appendFact(b []byte, f engine.Fact, bits uint64) []byte {
	head := numbers[f]
	if f < engine.FactRead {
		b = append(b, head...)
		binary.LittleEndian.PutUint64(b[len(b)-8:], bits)
		return b
	}
	at := len(b)
	b = binary.AppendUvarint(append(b, head[:len(head)-1]...), bits)
	longer := byte(len(b) - at - len(head))
	b[at+1] += longer           // KeyValue
	b[at+len(head)-3] += longer // AnyValue
	return b
}

// The four that are measured mostly come together: one copy writes all of them.
const measured = 1<<engine.FactFLOPs - 1

var measuredFacts = slices.Concat(numbers[:engine.FactFLOPs]...)

func appendFacts(b []byte, f *engine.Facts) []byte {
	left := f.Known
	if left&measured == measured {
		b = append(b, measuredFacts...)
		at := len(b)
		for x := int(engine.FactFLOPs) - 1; x >= 0; x-- {
			binary.LittleEndian.PutUint64(b[at-8:at], f.Bits[x])
			at -= len(numbers[x])
		}
		left &^= measured
	}
	for ; left != 0; left &= left - 1 {
		x := bits.TrailingZeros16(left)
		b = appendFact(b, engine.Fact(x), f.Bits[x])
	}
	return b
}

// spanAttributes is the field of a Span's attributes.
const spanAttributes = 9

// appendSpan writes a Span's fields.
func appendSpan(b []byte, x *engine.SinkSpan) []byte {
	traceID, spanID := x.Context.TraceID(), x.Context.SpanID()
	b = append(append(b, 1<<3|2, 16), traceID[:]...)
	b = append(append(b, 2<<3|2, 8), spanID[:]...)
	if state := x.Context.TraceState(); state.Len() > 0 {
		b = appendString(b, 3, state.String())
	}
	if parent := x.Parent.SpanID(); parent.IsValid() {
		b = append(append(b, 4<<3|2, 8), parent[:]...)
	}
	b = appendString(b, 5, x.Name)
	b = append(b, 6<<3, spanKindInternal, 7<<3|1)
	b = binary.LittleEndian.AppendUint64(b, uint64(x.Start))
	b = binary.LittleEndian.AppendUint64(append(b, 8<<3|1), uint64(x.End))
	b = appendFacts(b, &x.Facts)
	if c := x.Constant; c != nil {
		if c.Encoded == nil {
			c.Encoded = appendAttributes([]byte{}, spanAttributes, c.Attributes)
		}
		b = append(b, c.Encoded...)
	}
	b = appendAttributes(b, spanAttributes, x.Attributes)
	for i := range x.Links {
		b = appendBytes(b, 13, appendLink(nil, &x.Links[i]))
	}
	if x.DroppedLinks > 0 {
		b = binary.AppendUvarint(appendTag(b, 14, 0), uint64(x.DroppedLinks))
	}
	if x.Error != "" {
		b = appendBytes(b, 15, append(appendString(nil, 2, x.Error), 3<<3, statusCodeError))
	}
	return appendFixed32(b, 16, flagsOf(x.Context.TraceFlags(), x.Parent))
}

// flagsOf are W3C's flags of a span, and whether the other side of the reference is in another process.
func flagsOf(f trace.TraceFlags, other trace.SpanContext) uint32 {
	flags := uint32(f) | flagsHasRemote
	if other.IsRemote() {
		flags |= flagsParentRemote
	}
	return flags
}

// appendLink writes a Link {trace_id = 1, span_id = 2, trace_state = 3, attributes = 4, flags = 6}.
func appendLink(b []byte, l *trace.Link) []byte {
	traceID, spanID := l.SpanContext.TraceID(), l.SpanContext.SpanID()
	b = appendBytes(b, 1, traceID[:])
	b = appendBytes(b, 2, spanID[:])
	b = appendString(b, 3, l.SpanContext.TraceState().String())
	b = appendAttributes(b, 4, l.Attributes)
	return appendFixed32(b, 6, flagsOf(l.SpanContext.TraceFlags(), l.SpanContext))
}

// appendScope writes an InstrumentationScope {name = 1, version = 2, attributes = 3}.
func appendScope(b []byte, s *engine.SinkScope) []byte {
	b = appendString(b, 1, s.Name)
	b = appendString(b, 2, s.Version)
	return appendAttributes(b, 3, s.Attributes)
}

// batch is what becomes one request: the encoded spans of each scope.
type batch struct {
	scopes []scopeSpans
	spans  int
}

type scopeSpans struct {
	scope *engine.SinkScope
	spans []byte // ScopeSpans.spans, one after the other
}

func (b *batch) add(x *engine.SinkSpan) {
	i := 0
	for i < len(b.scopes) && b.scopes[i].scope != x.Scope {
		i++
	}
	if i == len(b.scopes) {
		b.scopes = append(b.scopes, scopeSpans{scope: x.Scope})
	}
	s := &b.scopes[i]
	at := len(s.spans)
	s.spans = appendSpan(append(s.spans, 2<<3|2, 0, 0), x)
	n := len(s.spans) - at - 3
	if n < 1<<7 || n >= 1<<14 { // few: their length does not take the two bytes that were left for it
		s.spans = appendBytes(s.spans[:at], 2, slices.Clone(s.spans[at+3:]))
	} else {
		s.spans[at+1], s.spans[at+2] = byte(n)|0x80, byte(n>>7)
	}
	b.spans++
}

// clear forgets the spans.
func (b *batch) clear() {
	for i := range b.scopes {
		b.scopes[i].spans = b.scopes[i].spans[:0]
	}
	b.spans = 0
}

// request writes an ExportTraceServiceRequest {resource_spans = 1} of ResourceSpans {resource = 1, scope_spans = 2} of
// ScopeSpans {scope = 1, spans = 2, schema_url = 3} into out, and empties the batch. resource is the field of
// ResourceSpans.
func (b *batch) request(resource, out []byte) []byte {
	heads := make([][]byte, len(b.scopes))
	inner := len(resource)
	for i := range b.scopes {
		s := &b.scopes[i]
		if len(s.spans) == 0 {
			continue
		}
		scope := appendBytes(nil, 1, appendScope(nil, s.scope))
		n := len(scope) + len(s.spans) + len(appendString(nil, 3, s.scope.Schema))
		heads[i] = append(binary.AppendUvarint([]byte{2<<3 | 2}, uint64(n)), scope...)
		inner += 1 + uvarintLen(uint64(n)) + n
	}
	out = slices.Grow(out[:0], inner+10)
	out = binary.AppendUvarint(append(out, 1<<3|2), uint64(inner))
	out = append(out, resource...)
	kept := b.scopes[:0]
	for i := range b.scopes {
		s := b.scopes[i]
		if len(s.spans) == 0 {
			continue // it has had nothing to say since the last request: forgotten
		}
		out = append(out, heads[i]...)
		out = append(out, s.spans...)
		out = appendString(out, 3, s.scope.Schema)
		kept = append(kept, scopeSpans{s.scope, s.spans[:0]})
	}
	clear(b.scopes[len(kept):])
	b.scopes, b.spans = kept, 0
	return out
}
