// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata"
)

// anything returns a request whose spans have attributes of every type, equal and different ones,
// none, and duplicate names.
func anything(r *rand.Rand) ptrace.Traces {
	td := ptrace.NewTraces()
	for range 1 + r.IntN(3) {
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "a")
		for range r.IntN(3) {
			ss := rs.ScopeSpans().AppendEmpty()
			for range r.IntN(40) {
				s := ss.Spans().AppendEmpty()
				s.SetName([]string{"", "prefill", "decode"}[r.IntN(3)])
				s.SetTraceID(pcommon.TraceID{byte(1 + r.IntN(3))})
				anyPart(r, s)
				for i := range r.IntN(6) {
					anyAttribute(r, s.Attributes(), fmt.Sprint("k", i))
				}
				if r.IntN(8) == 0 { // a duplicate name, which the encoding allows
					var b xpdata.MapBuilder
					b.AppendEmpty("k").SetStr("first")
					b.AppendEmpty("k").SetStr("second")
					b.UnsafeIntoMap(s.Attributes())
				}
			}
		}
	}
	return td
}

// anyPart sets some of what a span has besides its attributes.
func anyPart(r *rand.Rand, s ptrace.Span) {
	s.SetSpanID(pcommon.SpanID{1, byte(r.IntN(256))})
	for _, set := range []func(){
		func() { s.SetParentSpanID(pcommon.SpanID{2, byte(r.IntN(256))}) },
		func() { s.SetStartTimestamp(pcommon.Timestamp(r.Uint64())) },
		func() { s.SetEndTimestamp(pcommon.Timestamp(r.Uint64())) },
		func() { s.SetKind(ptrace.SpanKind(r.Int32())) },
		func() { s.SetFlags(r.Uint32()) },
		func() { s.SetDroppedAttributesCount(r.Uint32()) },
		func() { s.SetDroppedEventsCount(r.Uint32()) },
		func() { s.SetDroppedLinksCount(r.Uint32()) },
		func() { s.Status().SetCode(ptrace.StatusCode(r.IntN(4))) },
	} {
		if r.IntN(2) == 0 {
			set()
		}
	}
	switch r.IntN(8) {
	case 0:
		s.Events().AppendEmpty().Attributes().PutStr("exception.type", "x")
	case 1:
		s.Links().AppendEmpty().SetTraceID(pcommon.TraceID{byte(r.IntN(256))})
	case 2:
		s.TraceState().FromRaw("ot=th:8")
	case 3:
		s.Status().SetMessage("out of memory")
	}
}

func anyAttribute(r *rand.Rand, to pcommon.Map, key string) {
	switch r.IntN(9) {
	case 0:
		to.PutStr(key, fmt.Sprint("text ", r.IntN(100)))
	case 1:
		to.PutStr(key, "")
	case 2:
		to.PutDouble(key, []float64{0, math.Copysign(0, -1), 1.5, math.NaN(), math.Inf(1), math.SmallestNonzeroFloat64}[r.IntN(6)])
	case 3:
		to.PutInt(key, []int64{0, -1, math.MinInt64, math.MaxInt64, 7}[r.IntN(5)])
	case 4:
		to.PutBool(key, r.IntN(2) == 0)
	case 5:
		to.PutEmpty(key)
	case 6:
		to.PutEmptyBytes(key).Append(1, byte(r.IntN(9)))
	case 7:
		to.PutEmptyMap(key).PutStr("inner", fmt.Sprint(r.IntN(9)))
	case 8:
		to.PutEmptySlice(key).AppendEmpty().SetInt(int64(r.IntN(9)))
	}
}

func wire(t testing.TB, td ptrace.Traces) []byte {
	b, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	return b
}

func TestPackingIsLossless(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var b batch
	for range 200 {
		td := anything(r)
		want := wire(t, td)
		b.pack(td)
		assert.Zero(t, td.SpanCount())
		for range 2 {
			require.Equal(t, want, wire(t, b.build(nil)))
		}
		b.reset()
		assert.Empty(t, b.packed.values)
	}
}

// Spans of a request share names and strings, so a pending span consists of numbers.
func TestPackedSpansAreHeldInFewPieces(t *testing.T) {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range 1000 {
		a := spans.AppendEmpty().Attributes()
		a.PutStr("hw.id", fmt.Sprint("GPU-", i%8))
		a.PutDouble("gpu.duration", float64(i))
		if i%2 == 0 {
			a.PutInt("gpu.operation.items", int64(i))
		}
	}
	var p packed
	p.take(td)
	assert.Len(t, p.forms, 2)
	assert.Len(t, p.texts, 1+8)
	// A text and a number below 64 take a byte, a double 8 and the other numbers 2.
	assert.Equal(t, 1000*(1+8)+32+2*468, len(p.values))
}

// A released span has capacity for new attributes: its attributes are allocated once.
func TestReleasedSpansHaveSpareCapacity(t *testing.T) {
	td := newTraces("a")
	now := time.Unix(1_700_000_000, 0)
	s := td.gpu(1, 0, now, now.Add(time.Millisecond))
	s.Attributes().PutInt("gpu.io.size", 1)
	s.Attributes().PutInt("gpu.operation.items", 1)
	b := new(batch)
	b.scan(td.Traces, identifier{seed: maphash.MakeSeed()}, now.UnixNano(), time.Second)
	require.Len(t, b.spans, 1)
	b.pack(td.Traces)
	b.results = new(results)
	b.results.putDouble("gpu.energy", 1)
	b.results.end(&b.spans[0], false)
	allocs := func(writes int) float64 { // gpu_derive writes 4
		return testing.AllocsPerRun(10, func() {
			for s := range spansOf(b.build(&attributes{})) {
				for i := range writes {
					s.Attributes().PutEmpty("abcdefghi"[i : i+1])
				}
			}
		})
	}
	assert.Equal(t, allocs(0), allocs(4))
	assert.Equal(t, allocs(0)+1, allocs(5))
}
