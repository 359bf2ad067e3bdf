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

	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
)

// The field numbers are from opentelemetry/proto/trace/v1/trace.proto, common/v1/common.proto and
// collector/trace/v1/trace_service.proto. A tag is the number times 8 plus the wire type: 0 varint,
// 1 eight bytes, 2 length and bytes, 5 four bytes.

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

// valueLen returns the length of an AnyValue {string = 1, bool = 2, int = 3, double = 4, array =
// 5}.
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

// appendArray writes an ArrayValue {values = 1}. Lists of unknown types are written as text.
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
var numbers = func() (list [sink.NumFacts][]byte) {
	for f := range list {
		kv := sink.FactKeys[f].Int64(0)
		if sink.Fact(f) < sink.FactRead {
			kv = sink.FactKeys[f].Float64(0)
		}
		list[f] = appendAttribute(nil, spanAttributes, kv)
	}
	return list
}()

// appendFact writes a number behind the rest of its attribute. An integer is at most ten bytes
// long, so that the lengths before it stay single bytes.
func appendFact(b []byte, f sink.Fact, bits uint64) []byte {
	head := numbers[f]
	if f < sink.FactRead {
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

// The four measured values usually appear together: one copy writes all of them.
const measured = 1<<sink.FactFLOPs - 1

var measuredFacts = slices.Concat(numbers[:sink.FactFLOPs]...)

func appendFacts(b []byte, f *sink.Facts) []byte {
	left := f.Known
	if left&measured == measured {
		b = append(b, measuredFacts...)
		at := len(b)
		for x := int(sink.FactFLOPs) - 1; x >= 0; x-- {
			binary.LittleEndian.PutUint64(b[at-8:at], f.Bits[x])
			at -= len(numbers[x])
		}
		left &^= measured
	}
	for ; left != 0; left &= left - 1 {
		x := bits.TrailingZeros16(left)
		b = appendFact(b, sink.Fact(x), f.Bits[x])
	}
	return b
}

// spanAttributes is the field of a Span's attributes.
const spanAttributes = 9

// appendSpan writes a Span's fields.
func appendSpan(b []byte, x *sink.Span) []byte {
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

// flagsOf returns W3C's flags of a span, and whether the other side of the reference is in another
// process.
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
func appendScope(b []byte, s *sink.Scope) []byte {
	b = appendString(b, 1, s.Name)
	b = appendString(b, 2, s.Version)
	return appendAttributes(b, 3, s.Attributes)
}

// batch holds one request: the encoded spans of each scope.
type batch struct {
	resource []byte // the field of ResourceSpans; may be empty
	scopes   []scopeSpans
	spans    int
	bytes    int // of them
}

// scopeSpans are the encoded spans of a scope, with room in front for what is known when they are
// complete: so a request is built where its spans were written, except for spans of further scopes.
type scopeSpans struct {
	scope *sink.Scope
	head  []byte // the scope's field of ScopeSpans
	room  int
	spans []byte // spans[room:] are fields of ScopeSpans
}

// maxHead is the maximum length of a field's tag and length.
const maxHead = 1 + binary.MaxVarintLen64

func (b *batch) add(x *sink.Span) {
	i := 0
	for i < len(b.scopes) && b.scopes[i].scope != x.Scope {
		i++
	}
	if i == len(b.scopes) {
		head := appendBytes(nil, 1, appendScope(nil, x.Scope))
		s := scopeSpans{scope: x.Scope, head: head, room: len(b.resource) + len(head) + 2*maxHead}
		s.clear(nil)
		b.scopes = append(b.scopes, s)
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
	b.bytes += n
}

// clear removes the spans. Further spans are written to memory.
func (s *scopeSpans) clear(memory []byte) { s.spans = slices.Grow(memory[:0], s.room)[:s.room] }

func (b *batch) clear() {
	for i := range b.scopes {
		b.scopes[i].clear(b.scopes[i].spans)
	}
	b.spans, b.bytes = 0, 0
}

// request builds an ExportTraceServiceRequest {resource_spans = 1} of ResourceSpans {resource = 1,
// scope_spans = 2} of ScopeSpans {scope = 1, spans = 2, schema_url = 3}, and empties the batch,
// whose next spans are written to memory.
func (b *batch) request(memory []byte) []byte {
	b.scopes = slices.DeleteFunc(b.scopes, func(s scopeSpans) bool {
		return len(s.spans) == s.room // empty since the last request: removed
	})
	first := &b.scopes[0]
	from := first.complete()
	for i := range b.scopes[1:] {
		s := &b.scopes[1+i]
		at := s.complete()
		first.spans = append(first.spans, s.spans[at:]...)
		s.clear(s.spans)
	}
	out := first.spans
	out = out[prependHead(out, prepend(out, from, b.resource), 1):]
	if cap(memory) == 0 {
		memory = make([]byte, 0, cap(out))
	}
	first.clear(memory)
	b.spans, b.bytes = 0, 0
	return out
}

// complete builds a field of ResourceSpans and returns where it starts in spans.
func (s *scopeSpans) complete() (from int) {
	s.spans = appendString(s.spans, 3, s.scope.Schema)
	return prependHead(s.spans, prepend(s.spans, s.room, s.head), 2)
}

// prepend writes v before at, and returns where it starts.
func prepend(b []byte, at int, v []byte) int { return at - copy(b[at-len(v):at], v) }

// prependHead writes the tag and the length of a field that goes from at to the end.
func prependHead(b []byte, at, field int) int {
	var head [maxHead]byte
	return prepend(b, at, binary.AppendUvarint(append(head[:0], byte(field<<3|2)), uint64(len(b)-at)))
}
