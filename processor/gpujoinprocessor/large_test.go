// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// aloneSize returns the size of a resource with one scope and one span, which is the least that an
// exporter can send.
func aloneSize(rs ptrace.ResourceSpans, ss ptrace.ScopeSpans, s ptrace.Span) int {
	one := ptrace.NewResourceSpans()
	rs.Resource().CopyTo(one.Resource())
	one.SetSchemaUrl(rs.SchemaUrl())
	scope := one.ScopeSpans().AppendEmpty()
	ss.Scope().CopyTo(scope.Scope())
	scope.SetSchemaUrl(ss.SchemaUrl())
	s.CopyTo(scope.Spans().AppendEmpty())
	return (&ptrace.ProtoMarshaler{}).ResourceSpansSize(one)
}

func TestSpansAboveTheSizeAreDroppedAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 22))
	text := func(most int) string { return strings.Repeat("x", rng.IntN(most)) }
	total := 0
	for range 300 {
		td := ptrace.NewTraces()
		id := byte(0)
		for range 1 + rng.IntN(3) {
			rs := td.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr("r", text(700))
			rs.SetSchemaUrl(text(10))
			for range rng.IntN(4) {
				ss := rs.ScopeSpans().AppendEmpty()
				ss.Scope().SetName(text(200))
				ss.SetSchemaUrl(text(10))
				for range rng.IntN(5) {
					s := ss.Spans().AppendEmpty()
					id++
					s.SetSpanID(pcommon.SpanID{id})
					s.SetName(text(700))
				}
			}
		}
		const limit = 900
		var want, got []pcommon.SpanID
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					if aloneSize(rs, ss, s) <= limit {
						want = append(want, s.SpanID())
					}
				}
			}
		}
		dropped := td.SpanCount() - len(want)
		total += dropped
		r := newRig(t).join(func(c *Config) { c.MaxSpanSize = limit })
		r.consume(td)
		require.NoError(t, r.proc.Shutdown(t.Context())) // ends the search for the device
		for _, sent := range r.sink.AllTraces() {
			for s := range spansOf(sent) {
				got = append(got, s.SpanID())
			}
		}
		assert.Equal(t, want, got)
		if dropped > 0 {
			assert.EqualValues(t, dropped, r.count("bad_spans", "too_large"))
		}
		r.close()
	}
	assert.Greater(t, total, 300)
}

func TestTheLargestSpanPasses(t *testing.T) {
	for _, more := range []int{0, 1} {
		r := newRig(t).join()
		td := newTraces("a")
		s := td.gpu(1, 0, time.Now().Add(-time.Second), time.Now())
		td.gpu(2, 0, time.Now().Add(-time.Second), time.Now()) // the resource as a whole is larger
		rs := td.ResourceSpans().At(0)
		s.SetName(strings.Repeat("x", 3_000_000))
		s.SetName(strings.Repeat("x", 6_500_000+more-aloneSize(rs, rs.ScopeSpans().At(0), s)))
		require.Equal(t, 3_500_000+more, aloneSize(rs, rs.ScopeSpans().At(0), s))
		r.consume(td.Traces)
		require.NoError(t, r.proc.Shutdown(t.Context()))
		assert.Equal(t, 2-more, r.sink.SpanCount())
		r.close()
	}
}
