// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Links refer to anything: requests that never arrive or arrive after `idle`, the batch itself, GPU
// work around it, within it or elsewhere in its trace, host spans, one request twice, or nothing;
// requests are sampled or not. All usage records plus the unattributed energy add up to the energy
// of the spans.
func TestEnergyIsConservedWhereverLinksLead(t *testing.T) {
	whole := 0 // cases in which no usage record was lost to too many links
	for seed := uint64(18_000); seed < 22_000; seed++ {
		rng := rand.New(rand.NewPCG(seed, 80))
		f := grow(rng)
		b := newTest(t, func(c *Config) { c.MaxRequests = 2 + rng.IntN(12) })
		order := f.order(seed%2 == 0)
		now, sum := clock, 0.
		due := func(all bool) {
			for _, r := range b.due(now, all) {
				sum += r.energy()
			}
		}
		own := map[int]int{} // requests whose spans arrive, by what precedes them
		for r := range f.requests {
			own[rng.IntN(2*len(order))] = r
		}
		stray := func(s ptrace.Span) {
			for _, l := range s.Links().All() {
				switch rng.IntN(4) {
				case 0: // a span of this trace
					l.SetTraceID(s.TraceID())
					l.SetSpanID(id(rng.IntN(len(order))))
				case 1:
					l.SetFlags(knownParent | uint32(rng.IntN(2)))
				case 2:
					switch rng.IntN(3) {
					case 0:
						l.SetSpanID(pcommon.SpanID{})
					case 1:
						l.SetTraceID(pcommon.TraceID{})
					default:
						l.SetTraceID(s.TraceID())
						l.SetSpanID(id(1_000_000)) // the outermost span
					}
				}
			}
		}
		td := ptrace.NewTraces()
		list := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
		for n, i := range order {
			s := list.AppendEmpty()
			f.span(i, s)
			stray(s)
			if rng.IntN(8) == 0 { // a sender includes retried data
				s.CopyTo(list.AppendEmpty())
			}
			if r, ok := own[n]; ok {
				f.root(r, list.AppendEmpty())
			}
			if rng.IntN(2) == 0 && n < len(order)-1 {
				continue
			}
			b.take(td, now)
			list.RemoveIf(func(ptrace.Span) bool { return true })
			if rng.IntN(3) == 0 {
				now += int64(rng.IntN(40)) * 1e9
				due(false)
			}
		}
		now += 1e9
		due(true)
		due(true)
		if b.stats.lostRequests == 0 {
			whole++
			require.InDelta(t, sum, b.stats.charged, 1e-9, "seed %d", seed)
		}
		require.InDelta(t, f.total, b.stats.charged+b.stats.unassigned, 1e-9, "seed %d", seed)
		require.Zero(t, b.waiting.at.Len(), "seed %d", seed)
		require.Empty(t, b.waiting.traces, "seed %d", seed)
	}
	require.Greater(t, whole, 3000)
}

// root writes the span of a request in its own trace, or the outermost span.
func (f *forest) root(r int, s ptrace.Span) {
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(id(2_000_000 + r))
	if r == 0 {
		s.SetTraceID(pcommon.TraceID{0xee})
		s.SetSpanID(id(1_000_000))
	}
	s.SetKind(ptrace.SpanKindServer)
	s.SetStartTimestamp(at(0))
	s.SetEndTimestamp(at(100))
}

// One batch may link to more requests than may be open: the oldest are closed early, requests that
// cannot be passed on are counted, and memory stays bounded.
func TestABatchOfAHundredThousandLinksIsBounded(t *testing.T) {
	const links, room = 100_000, 1000
	b := newTest(t, func(c *Config) { c.MaxRequests = room })
	td := payload(t, service, in{name: "decode", trace: 1, id: 1, end: 10, a: gpu("decode", 0.01, 50, nil)})
	s := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	for i := range links {
		l := s.Links().AppendEmpty()
		l.SetTraceID(pcommon.TraceID{2})
		l.SetSpanID(id(i))
	}
	b.take(td, clock)
	require.Len(t, b.requests, room)
	require.Len(t, b.done, 4*room)
	require.EqualValues(t, links-5*room, b.stats.lostRequests)
	require.InDelta(t, 50, b.stats.charged, 1e-9)
	require.Len(t, b.due(clock, true), 4*room)
	require.EqualValues(t, links-4*room, b.stats.lostRequests)
	require.EqualValues(t, links, b.stats.closed[evicted]+b.stats.closed[shutdown])
	require.LessOrEqual(t, b.closed.Len(), room)

	one := newTest(t, nil) // all of them to one request
	for _, l := range s.Links().All() {
		l.SetSpanID(id(7))
	}
	one.take(td, clock)
	closed := one.due(clock, true)
	require.Len(t, closed, 1)
	require.EqualValues(t, 1, closed[0].accounts[0].batches)
	require.InDelta(t, 50, closed[0].accounts[0].energy, 1e-6)
}

// Offline work has one trace of many requests, each with its own GPU work below it.
func TestThousandsOfRequestsOfOneTraceHaveTheirOwnWork(t *testing.T) {
	const requests, each = 8000, 8
	b := newTest(t, nil)
	td := ptrace.NewTraces()
	list := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range requests * (each + 1) {
		s := list.AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(id(i))
		s.SetParentSpanID(id(1_000_000 + i/(each+1)))
		s.SetStartTimestamp(at(1))
		s.SetEndTimestamp(at(2))
		s.Attributes().PutStr("gpu.operation.type", "section")
		s.Attributes().PutDouble("gpu.energy", float64(1+i%(each+1)))
		if i%(each+1) == each { // a separate batch that also serves the request
			s.SetParentSpanID(pcommon.SpanID{})
			l := s.Links().AppendEmpty()
			l.SetTraceID(pcommon.TraceID{1})
			l.SetSpanID(id(1_000_000 + i/(each+1)))
		}
	}
	b.take(td, clock)
	closed := b.due(clock+int64(b.cfg.Idle), false)
	require.Len(t, closed, requests)
	for _, r := range closed {
		require.InDelta(t, (each+1)*(each+2)/2, r.energy(), 1e-9)
	}
	require.Zero(t, b.waiting.at.Len())
}

// A request that is closed early and reopened within one batch has two spans with different IDs.
func TestARequestReopenedWithinABatchHasSpansOfDifferentIDs(t *testing.T) {
	b := newTest(t, func(c *Config) { c.MaxRequests = 2 })
	to := func(trace byte) linked { return linked{trace, 1, nil, 0} }
	b.take(payload(t, service, decode(9, 1, 12, to(1), to(2), to(3), to(1), to(2), to(3))), clock)
	td := spans(b.due(clock, true), true, func(pcommon.InstrumentationScope) {})
	ids := map[pcommon.SpanID]bool{}
	energy := 0.0
	for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		require.NotContains(t, ids, s.SpanID())
		ids[s.SpanID()] = true
		v, _ := s.Attributes().Get("gpu.energy")
		energy += v.Double()
	}
	require.Len(t, ids, 6)
	require.InDelta(t, 12, energy, 1e-12)
}
