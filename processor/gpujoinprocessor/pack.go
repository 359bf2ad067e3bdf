// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// packed is a request's spans while it waits.
//
// pdata has a span of 15 attributes in some 30 pieces of memory, the span itself in 240 bytes.
// While a request waits, the garbage collector would visit each of them again and again, and when
// it is released none would be in the CPU's caches. Here they are arrays of numbers; names and
// strings, which most spans of a request have in common, are kept once. The output equals the
// input, in the same order.
//
//	forms   name, type | name, type | ...       one for each sequence of names and types
//	spans   IDs, times, form, first value | ... one for each span, in the order of the wire
//	values  number or index of a text | ...     one for each attribute of each span, as bytes: varints, but doubles
//	                                            have 8 bytes, most significant last
type packed struct {
	spans  []packedSpan
	forms  [][]column
	values []byte
	texts  []string
	others pcommon.Slice    // values that are neither text nor number
	kept   ptrace.SpanSlice // spans that have what packedSpan lacks, without attributes
	counts []int32          // of the spans of each scope
	last   int              // form of the last span
	build  xpdata.MapBuilder
}

// packedSpan is a span without events, links, trace state, status message and counts of what was
// dropped. It has no pointers, so that the garbage collector does not visit it.
type packedSpan struct {
	trace       pcommon.TraceID
	id, parent  pcommon.SpanID
	start, end  pcommon.Timestamp
	name        uint32 // index of a text
	form, first int32  // of the attributes, and where their values begin
	flags       uint32
	kind        uint8
	status      uint8
	kept        bool // the span is the next one of kept, which has all but the attributes
}

// pack returns all of a span but its attributes.
func (p *packed) pack(s ptrace.Span, known map[string]uint64) packedSpan {
	kind, status := s.Kind(), s.Status().Code()
	if s.Events().Len() > 0 || s.Links().Len() > 0 || s.TraceState().AsRaw() != "" || s.Status().Message() != "" ||
		s.DroppedAttributesCount()|s.DroppedEventsCount()|s.DroppedLinksCount() != 0 ||
		int32(uint8(kind)) != int32(kind) || int32(uint8(status)) != int32(status) {
		s.SetName(p.texts[p.text(s.Name(), known)])
		return packedSpan{kept: true}
	}
	return packedSpan{
		trace: s.TraceID(), id: s.SpanID(), parent: s.ParentSpanID(), start: s.StartTimestamp(), end: s.EndTimestamp(),
		name: uint32(p.text(s.Name(), known)), flags: s.Flags(),
		kind: uint8(kind), status: uint8(status),
	}
}

// unpack writes to an empty span what pack returned.
func (p *packed) unpack(x *packedSpan, s ptrace.Span) {
	s.SetTraceID(x.trace)
	s.SetSpanID(x.id)
	s.SetParentSpanID(x.parent)
	s.SetStartTimestamp(x.start)
	s.SetEndTimestamp(x.end)
	s.SetName(p.texts[x.name])
	s.SetFlags(x.flags)
	s.SetKind(ptrace.SpanKind(x.kind))
	s.Status().SetCode(ptrace.StatusCode(x.status))
}

// column is one attribute of a form.
type column struct {
	key  string
	kind pcommon.ValueType
	last uint64 // the last text here
}

// noForm is the form of a span without attributes.
const noForm = -1

// recentForms bounds the search for a form; an older one is stored twice.
const recentForms = 8

// take removes all spans of a request.
func (p *packed) take(td ptrace.Traces) {
	p.others, p.kept = pcommon.NewSlice(), ptrace.NewSpanSlice()
	p.texts = append(p.texts[:0], "")
	known := map[string]uint64{"": 0}
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			p.spans = slices.Grow(p.spans, ss.Spans().Len())
			for _, s := range ss.Spans().All() {
				x := p.pack(s, known)
				x.form, x.first = p.add(s.Attributes(), known)
				p.spans = append(p.spans, x)
				if x.kept {
					s.MoveTo(p.kept.AppendEmpty())
				}
			}
			p.counts = append(p.counts, int32(ss.Spans().Len()))
			ss.Spans().MoveAndAppendTo(ptrace.NewSpanSlice())
		}
	}
	if cap(p.values)-len(p.values) > len(p.values)/4 {
		p.values = slices.Clone(p.values) // it waits for seconds
	}
}

// add adds the attributes of the next span and returns their form and where their values begin.
func (p *packed) add(attrs pcommon.Map, known map[string]uint64) (number, first int32) {
	if attrs.Len() == 0 {
		return noForm, 0
	}
	p.last = p.form(attrs)
	form := p.forms[p.last]
	number, first = int32(p.last), int32(len(p.values))
	i := 0
	for _, v := range attrs.All() {
		var x uint64
		switch c := &form[i]; c.kind {
		case pcommon.ValueTypeStr:
			if s := v.Str(); p.texts[c.last] != s {
				c.last = p.text(s, known)
			}
			x = c.last
		case pcommon.ValueTypeDouble:
			x = math.Float64bits(v.Double())
		case pcommon.ValueTypeInt:
			x = zigzag(v.Int())
		default:
			x = uint64(p.others.Len())
			v.MoveTo(p.others.AppendEmpty())
		}
		if form[i].kind == pcommon.ValueTypeDouble {
			p.values = binary.LittleEndian.AppendUint64(p.values, x)
		} else {
			p.values = binary.AppendUvarint(p.values, x)
		}
		i++
	}
	attrs.Clear()
	return number, first
}

// zigzag maps numbers of small magnitude, negative ones too, to small unsigned numbers.
func zigzag(x int64) uint64 { return uint64(x<<1) ^ uint64(x>>63) }

// unzigzag inverts zigzag.
func unzigzag(x uint64) int64 { return int64(x>>1) ^ -int64(x&1) }

// text returns the index of a text.
func (p *packed) text(s string, known map[string]uint64) uint64 {
	n, ok := known[s]
	if !ok {
		n = uint64(len(p.texts))
		p.texts = append(p.texts, s)
		known[s] = n
	}
	return n
}

// form finds the form of a span's attributes; the search starts at the last span's.
func (p *packed) form(attrs pcommon.Map) int {
	if n := len(p.forms); n > 0 {
		if fits(p.forms[p.last], attrs) {
			return p.last
		}
		for i := n - 1; i >= max(0, n-recentForms); i-- {
			if fits(p.forms[i], attrs) {
				return i
			}
		}
	}
	form := make([]column, 0, attrs.Len())
	for k, v := range attrs.All() {
		form = append(form, column{key: k, kind: v.Type()})
	}
	p.forms = append(p.forms, form)
	return len(p.forms) - 1
}

func fits(form []column, attrs pcommon.Map) bool {
	if len(form) != attrs.Len() {
		return false
	}
	i := 0
	for k, v := range attrs.All() {
		if k != form[i].key || v.Type() != form[i].kind {
			return false
		}
		i++
	}
	return true
}

// give copies the attributes of a span to an empty one, with capacity for some more.
func (p *packed) give(s *packedSpan, attrs pcommon.Map, room int) {
	if s.form == noForm {
		attrs.EnsureCapacity(room)
		return
	}
	form := p.forms[s.form]
	p.build.EnsureCapacity(len(form) + room)
	values := p.values[s.first:]
	for i := range form {
		v := p.build.AppendEmpty(form[i].key)
		if form[i].kind == pcommon.ValueTypeDouble {
			v.SetDouble(math.Float64frombits(binary.LittleEndian.Uint64(values)))
			values = values[8:]
			continue
		}
		x, n := binary.Uvarint(values)
		values = values[n:]
		switch form[i].kind {
		case pcommon.ValueTypeStr:
			v.SetStr(p.texts[x])
		case pcommon.ValueTypeInt:
			v.SetInt(unzigzag(x))
		default:
			p.others.At(int(x)).CopyTo(v)
		}
	}
	p.build.UnsafeIntoMap(attrs)
}

func (p *packed) reset() {
	clear(p.forms)
	clear(p.texts)
	p.spans, p.forms, p.values, p.texts, p.last = p.spans[:0], p.forms[:0], p.values[:0], p.texts[:0], 0
	p.others, p.kept, p.counts = pcommon.Slice{}, ptrace.SpanSlice{}, p.counts[:0]
}

// pack packs a request that the batch was read from. td keeps its resources and scopes.
func (b *batch) pack(td ptrace.Traces) {
	b.packed.take(td)
	b.frame, b.wire = td, nil
}

// build returns the packed request with the values of the join, as data that nobody else has seen.
func (b *batch) build(a *attributes) ptrace.Traces {
	td := ptrace.NewTraces()
	p, x := &b.packed, builder{of: &b.packed, joined: b.results, attrs: a, only: b.only}
	if x.joined == nil {
		x.joined = new(results)
	}
	td.ResourceSpans().EnsureCapacity(b.frame.ResourceSpans().Len())
	scope := 0
	for _, from := range b.frame.ResourceSpans().All() {
		rs := td.ResourceSpans().AppendEmpty()
		from.CopyTo(rs)
		for _, ss := range rs.ScopeSpans().All() {
			x.add(ss.Spans(), int(p.counts[scope]))
			scope++
		}
	}
	return td
}

// builder builds the spans of a request in the order of the wire.
type builder struct {
	of     *packed
	joined *results
	attrs  *attributes
	only   map[attribution.Key]bool

	wire, kept, next int // indexes in the packed request and its results
	value, event     int
}

// add adds the next n spans, except spans that are in the request a second time.
func (x *builder) add(to ptrace.SpanSlice, n int) {
	to.EnsureCapacity(n)
	for range n {
		packed := &x.of.spans[x.wire]
		var kept ptrace.Span
		if packed.kept {
			kept = x.of.kept.At(x.kept)
			x.kept++
		}
		var found joinedSpan
		joined := x.next < len(x.joined.spans) && int(x.joined.spans[x.next].wire) == x.wire
		x.wire++
		var values []value
		var events []devicesamples.Event
		if joined {
			found = x.joined.spans[x.next]
			x.next++
			values, events = x.joined.values[x.value:found.values], x.joined.events[x.event:found.events]
			x.value, x.event = int(found.values), int(found.events)
		}
		if found.repeated || x.only != nil && !x.only[packed.key(kept)] {
			continue
		}
		s := to.AppendEmpty()
		if packed.kept {
			kept.CopyTo(s)
		} else {
			x.of.unpack(packed, s)
		}
		x.of.give(packed, s.Attributes(), len(values)+int(found.derives))
		x.attrs.writeTo(s, values, events)
	}
}

// key returns the IDs of a span; kept is the rest of it, if it has one.
func (s *packedSpan) key(kept ptrace.Span) attribution.Key {
	if s.kept {
		return attribution.Key{Trace: kept.TraceID(), Span: kept.SpanID()}
	}
	return attribution.Key{Trace: s.trace, Span: s.id}
}

// dropLarge removes spans that exceed MaxSpanSize from a request, and returns the request's size in
// bytes of OTLP and how many they are. An exporter that splits requests by bytes drops a span above
// its `max_size` together with all spans after it, of other clients too, because it merges requests
// before it splits them.
func (p *joinProcessor) dropLarge(td ptrace.Traces) (size int, dropped int64) {
	var m ptrace.ProtoMarshaler
	size, limit := m.TracesSize(td), p.cfg.MaxSpanSize
	if size <= limit {
		return size, 0
	}
	td.ResourceSpans().RemoveIf(func(rs ptrace.ResourceSpans) bool {
		// Each part of a split request repeats the resource and the scope.
		resource := m.ResourceSpansSize(rs)
		if resource <= limit {
			return false
		}
		for _, ss := range rs.ScopeSpans().All() {
			resource -= fieldSize(m.ScopeSpansSize(ss))
		}
		rs.ScopeSpans().RemoveIf(func(ss ptrace.ScopeSpans) bool {
			scope := m.ScopeSpansSize(ss)
			for _, s := range ss.Spans().All() {
				scope -= fieldSize(m.SpanSize(s))
			}
			ss.Spans().RemoveIf(func(s ptrace.Span) bool {
				if resource+fieldSize(scope+fieldSize(m.SpanSize(s))) <= limit {
					return false
				}
				dropped++
				return true
			})
			return ss.Spans().Len() == 0
		})
		return rs.ScopeSpans().Len() == 0
	})
	if dropped == 0 {
		return size, 0
	}
	return m.TracesSize(td), dropped
}

// droppedLarge counts the spans that dropLarge removed from an accepted request.
func (p *joinProcessor) droppedLarge(ctx context.Context, dropped int64) {
	if dropped == 0 {
		return
	}
	p.stats.tb.ProcessorGpuJoinBadSpans.Add(ctx, dropped, p.stats.reasons["too_large"])
	p.large.Do(func() {
		p.logger.Warn("spans larger than `max_span_size` with their resource and scope are dropped; further ones are "+
			"counted, not logged", zap.Int("max_span_size", p.cfg.MaxSpanSize))
	})
}

// fieldSize returns the size of a message of n bytes with its tag and length.
func fieldSize(n int) int { return 1 + (bits.Len64(uint64(n)|1)+6)/7 + n }
