// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const server = ptrace.SpanKindServer

// Two requests with separate prefills, one linked and one in the request's own trace, then two
// iterations of decoding, the second with only one request.
func TestEachRequestGetsItsPartOfEachBatch(t *testing.T) {
	b := newTest(t, nil)
	b.take(payload(t, service,
		in{name: "POST", trace: 1, id: 1, start: 0, end: 60, kind: server, a: attrs{"gen_ai.request.model": "m"}},
		in{name: "generate", trace: 2, id: 2, parent: 3, start: 1, end: 50},
		in{name: "POST", trace: 2, id: 3, start: 1, end: 52, kind: server},
	), clock)
	b.take(payload(t, service,
		in{
			name: "prefill", trace: 9, id: 10, start: 10, end: 14, a: gpu("prefill", 0.004, 2, nil),
			links: []linked{{1, 1, items(100), 0}},
		},
		in{name: "prefill", trace: 2, id: 11, parent: 2, start: 14, end: 16, a: gpu("prefill", 0.002, 1, items(50))},
		in{name: "decode", trace: 9, id: 12, start: 20, end: 28, a: gpu("decode", 0.008, 3.2, nil), links: []linked{
			{1, 1, items(3), 0}, {2, 3, items(1), 0},
		}},
		in{
			name: "decode", trace: 9, id: 13, start: 30, end: 32, a: gpu("decode", 0.002, 0.6, nil),
			links: []linked{{1, 1, items(1), 0}},
		},
	), after(time.Second))
	assert.Empty(t, b.due(after(15*time.Second), false))
	closed := b.due(after(16*time.Second), false)
	require.Len(t, closed, 2)
	got := written(t, closed)

	s, joules := got["decode 1"], 3.2
	assert.Equal(t, map[string]any{
		"gpu.operation.type": "share", "gpu.operation.name": "decode", "gpu.operation.category": "decode",
		"gpu.operation.item.type": "token",
		"gpu.request.duration":    0.008*3/4 + 0.002, "gpu.energy": 0.75*joules + 0.6, "gpu.operation.items": int64(4),
		"gpu.request.item.energy": (0.75*joules + 0.6) / 4, "gpu.request.batch.count": int64(2),
		"gpu.request.batch.size": 1.5,
		"gen_ai.request.model":   "m", "hw.id": "GPU-a",
	}, s.Attributes().AsRaw())
	assert.Equal(t, pcommon.SpanID{1}, s.ParentSpanID())
	assert.Equal(t, ptrace.SpanKindInternal, s.Kind())
	assert.Equal(t, at(20), s.StartTimestamp())
	assert.Equal(t, at(32), s.EndTimestamp())
	require.Equal(t, 1, s.Links().Len(), "the first batch is the slowest")
	assert.Equal(t, pcommon.SpanID{12}, s.Links().At(0).SpanID())
	assert.Equal(t, pcommon.TraceID{9}, s.Links().At(0).TraceID())

	s = got["prefill 1"]
	assert.InDelta(t, 0.014, s.Attributes().AsRaw()["gpu.request.time_to_first_item"], 1e-12)
	assert.Equal(t, int64(100), s.Attributes().AsRaw()["gpu.operation.items"])
	assert.Equal(t, 2.0, s.Attributes().AsRaw()["gpu.energy"])

	s = got["queue 1"]
	assert.Equal(t, at(0), s.StartTimestamp())
	assert.Equal(t, at(10), s.EndTimestamp())
	assert.Equal(t, map[string]any{"gpu.request.queue.duration": 0.01}, s.Attributes().AsRaw())

	assert.Equal(t, 0.8, got["decode 2"].Attributes().AsRaw()["gpu.energy"])
	assert.Equal(t, int64(1), got["decode 2"].Attributes().AsRaw()["gpu.operation.items"])
	assert.Equal(t, at(14), got["queue 2"].EndTimestamp(), "its prefill is in its own trace")
	assert.NotContains(t, got, "prefill 2", "the trace shows it itself")
	assert.Len(t, got, 5)
	assert.InDelta(t, 2+1+3.2+0.6, b.stats.charged, 1e-12)
	assert.Zero(t, b.stats.unassigned)
	for _, r := range closed {
		if r.Trace == (pcommon.TraceID{2}) {
			require.Len(t, r.accounts, 2)
			assert.InDelta(t, 1, r.accounts[1].energy, 1e-12)
			assert.InDelta(t, 0.015, r.toFirstItem().after, 1e-12)
		}
	}
}

func decode(id byte, start float64, joules float64, links ...linked) in {
	return in{
		name: "decode", trace: 9, id: id, start: start, end: start + 1, a: gpu("decode", 0.001, joules, nil),
		links: links,
	}
}

func TestABatchThatIsRepeatedIsChargedOnce(t *testing.T) {
	b := newTest(t, nil)
	td := payload(t, service, decode(1, 0, 1, linked{1, 1, nil, 0}))
	b.take(td, clock)
	b.take(td, clock)
	assert.EqualValues(t, 1, b.stats.repeated)
	got := written(t, b.due(clock, true))
	assert.Equal(t, 1.0, got["decode 1"].Attributes().AsRaw()["gpu.energy"])
}

// Data that is sent again after a restart of the Collector must not become a second span in the
// store.
func TestTheSameBatchesGiveTheSameSpan(t *testing.T) {
	var ids []pcommon.SpanID
	for _, order := range [][]byte{{1, 2}, {2, 1}} {
		b := newTest(t, nil)
		for _, id := range order {
			b.take(payload(t, service, decode(id, float64(id), 1, linked{1, 1, nil, 0})), clock)
		}
		s := written(t, b.due(clock, true))["decode 1"]
		ids = append(ids, s.SpanID())
		assert.Equal(t, at(1), s.StartTimestamp())
		assert.Equal(t, at(3), s.EndTimestamp(), "the last end, in whatever order")
	}
	assert.Equal(t, ids[0], ids[1])
	assert.NotEmpty(t, ids[0])
}

func TestALateBatchMakesASecondSpanOfTheRest(t *testing.T) {
	b := newTest(t, nil)
	own, link := in{name: "POST", trace: 1, id: 1, start: 0, end: 3, kind: server}, linked{1, 1, items(2), 0}
	b.take(payload(t, service, own, decode(2, 1, 1, link)), clock)
	first := written(t, b.due(after(time.Minute), false))
	b.take(payload(t, service, own, decode(3, 2, 5, link)), after(time.Minute))
	assert.EqualValues(t, 1, b.stats.late)
	second := written(t, b.due(after(2*time.Minute), false))
	assert.Contains(t, first, "queue 1")
	assert.NotContains(t, second, "queue 1")
	assert.NotEqual(t, first["decode 1"].SpanID(), second["decode 1"].SpanID())
	assert.Equal(t, 5.0, second["decode 1"].Attributes().AsRaw()["gpu.energy"])
	const firstItem = "gpu.request.time_to_first_item"
	assert.Contains(t, first["decode 1"].Attributes().AsRaw(), firstItem)
	assert.NotContains(t, second["decode 1"].Attributes().AsRaw(), firstItem)
}

func TestUsageRecordsCloseWhenSettledIdleOrTooMany(t *testing.T) {
	b := newTest(t, func(c *Config) { c.MaxRequests = 2 })
	b.take(payload(t, service,
		in{name: "POST", trace: 1, id: 1, start: 0, end: 3, kind: server},
		decode(1, 1, 1, linked{1, 1, nil, 0}), decode(2, 2, 1, linked{2, 1, nil, 0}),
	), clock)
	assert.Len(t, b.due(after(14*time.Second), false), 0)
	assert.Len(t, b.due(after(15*time.Second), false), 1)
	assert.Len(t, b.due(after(29*time.Second), false), 0)
	assert.Len(t, b.due(after(30*time.Second), false), 1)
	assert.Equal(t, [reasons]int64{settled: 1, idle: 1}, b.stats.closed)

	b.take(payload(t, service, decode(3, 1, 1, linked{3, 1, nil, 0}, linked{4, 1, nil, 0}, linked{5, 1, nil, 0})),
		after(time.Minute))
	assert.Len(t, b.requests, 2)
	got := written(t, b.due(after(time.Minute), false))
	assert.InDelta(t, 1./3, got["decode 3"].Attributes().AsRaw()["gpu.energy"], 1e-15,
		"the oldest is closed early, and written")
	assert.EqualValues(t, 1, b.stats.closed[evicted])
}

// `settle` counts from the arrival of the request's own span, regardless of when its work arrived.
func TestUsageRecordSettlesAfterItsRequestArrives(t *testing.T) {
	b := newTest(t, func(c *Config) { c.Idle = time.Hour })
	b.take(payload(t, service, decode(1, 1, 1, linked{1, 1, nil, 0})), clock)
	b.take(payload(t, service, in{name: "POST", trace: 1, id: 1, end: 3, kind: server}), after(time.Minute))
	assert.Empty(t, b.due(after(time.Minute+14*time.Second), false))
	assert.Len(t, b.due(after(time.Minute+15*time.Second), false), 1)
}

// `idle` applies to requests whose own span does not arrive; others wait for `settle`, even if that
// is longer.
func TestRequestWithItsOwnSpanIsNotIdle(t *testing.T) {
	b := newTest(t, func(c *Config) { c.Settle, c.Idle = 60*time.Second, 30*time.Second })
	b.take(payload(t, service, decode(1, 1, 1, linked{1, 1, nil, 0}), in{trace: 1, id: 1, kind: server, end: 9}), clock)
	assert.Empty(t, b.due(after(59*time.Second), false))
	assert.Len(t, b.due(after(60*time.Second), false), 1)

	b = newTest(t, nil)
	b.take(payload(t, service, decode(1, 1, 1, linked{1, 1, nil, 0})), clock)
	b.take(payload(t, service, in{trace: 1, id: 1, kind: server, end: 9}), after(29*time.Second))
	assert.Empty(t, b.due(after(43*time.Second), false))
	assert.Len(t, b.due(after(44*time.Second), false), 1)
}

// A batch without links to all its requests states its number of requests; work on two devices
// names no device.
func TestABatchStatesItsSizeAndItsDevice(t *testing.T) {
	b := newTest(t, nil)
	first, second := decode(1, 1, 8, linked{1, 1, nil, 0}), decode(2, 2, 8, linked{1, 1, nil, 0}, linked{2, 1, nil, 0})
	first.a["gpu.batch.size"], second.a["gpu.batch.size"] = 8, 4
	second.a["hw.id"] = "GPU-b"
	b.take(payload(t, service, first, second), clock)
	dropped := payload(t, service, decode(3, 3, 8, linked{3, 1, nil, 0}))
	dropped.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetDroppedLinksCount(5)
	b.take(dropped, clock)
	got := written(t, b.due(clock, true))
	assert.Equal(t, 6.0, got["decode 3"].Attributes().AsRaw()["gpu.request.batch.size"], "a link and five that were dropped")
	one, two := got["decode 1"].Attributes().AsRaw(), got["decode 2"].Attributes().AsRaw()
	assert.Equal(t, 6.0, one["gpu.request.batch.size"], "the mean of 8 and 4")
	assert.Equal(t, 3.0, one["gpu.energy"], "an eighth and a fourth of 8 J")
	assert.NotContains(t, one, "hw.id")
	assert.Equal(t, "GPU-b", two["hw.id"])
}

// The request's span may arrive before its batches (which wait in gpu_join) or after them.
func TestTheOrderOfArrivalDoesNotMatter(t *testing.T) {
	request := payload(t, service, in{
		name: "POST", trace: 1, id: 1, start: 5, end: 80, kind: server,
		a: attrs{"gen_ai.request.model": "m"},
	})
	batch := payload(t, service, decode(2, 11, 1, linked{1, 1, items(1), 0}))
	for _, order := range [][]ptrace.Traces{{request, batch}, {batch, request}} {
		b := newTest(t, nil)
		for _, td := range order {
			b.take(td, clock)
		}
		got := written(t, b.due(after(15*time.Second), false))
		assert.Equal(t, 0.006, got["queue 1"].Attributes().AsRaw()["gpu.request.queue.duration"])
		assert.InDelta(t, 0.007, got["decode 1"].Attributes().AsRaw()["gpu.request.time_to_first_item"], 1e-12)
		assert.Equal(t, "m", got["decode 1"].Attributes().AsRaw()["gen_ai.request.model"])
	}
}

func TestFirstItemIsFromWorkWithItems(t *testing.T) {
	embed := in{name: "embed", trace: 9, id: 10, start: 6, end: 8, a: gpu("embed", 0.002, 1, nil), links: []linked{{1, 1, nil, 0}}}
	b := newTest(t, nil)
	b.take(payload(t, service, in{name: "POST", trace: 1, id: 1, start: 5, end: 80, kind: server}, embed,
		decode(2, 11, 1, linked{1, 1, items(1), 0}), decode(3, 30, 1, linked{1, 1, items(1), 0})), clock)
	got := written(t, b.due(after(15*time.Second), false))
	assert.NotContains(t, got["embed 1"].Attributes().AsRaw(), "gpu.request.time_to_first_item")
	assert.InDelta(t, 0.007, got["decode 1"].Attributes().AsRaw()["gpu.request.time_to_first_item"], 1e-12)
}

func TestOldTracesAreDroppedAmongNewOnes(t *testing.T) {
	b := newTest(t, nil)
	for trace := range byte(40) {
		seen := clock
		if trace%2 == 1 {
			seen = after(b.cfg.Idle)
		}
		b.take(payload(t, service, in{name: "k", trace: trace + 1, id: trace + 1, parent: 200, a: gpu("", 0.001, 1, nil)}), seen)
	}
	b.due(after(b.cfg.Idle+time.Second), false)
	assert.Equal(t, 20, b.waiting.at.Len())
	assert.Equal(t, 20.0, b.stats.unassigned)
}

func TestAnUnsampledRequestHasAUsageRecordButNoSpan(t *testing.T) {
	b := newTest(t, nil)
	b.take(payload(t, service, decode(1, 1, 1, linked{1, 1, nil, knownParent}, linked{2, 1, nil, knownParent | sampled})),
		clock)
	closed := b.due(clock, true)
	assert.Len(t, closed, 2)
	got := written(t, closed)
	assert.Len(t, got, 1)
	assert.EqualValues(t, knownParent|sampled, got["decode 2"].Flags())
}

func TestUsageRecordsAreNotCountedAsWork(t *testing.T) {
	b := newTest(t, nil)
	b.take(payload(t, service, decode(1, 1, 1, linked{1, 1, nil, 0})), clock)
	td := spans(b.due(clock, true), true, func(pcommon.InstrumentationScope) {})
	require.Equal(t, 1, td.SpanCount())
	again := newTest(t, nil)
	again.take(td, clock)
	assert.Empty(t, again.due(clock, true))
	assert.Zero(t, again.stats.charged+again.stats.unassigned)
}

// In a service without batches, the server span above the GPU work is the request.
func TestGPUWorkBelowAServerSpanIsARequestWithoutBatches(t *testing.T) {
	b := newTest(t, nil)
	b.take(payload(t, service,
		in{name: "POST", trace: 1, id: 1, start: 0, end: 30, kind: server},
		in{name: "run", trace: 1, id: 2, parent: 1, start: 1, end: 30},
		in{name: "infer", trace: 1, id: 3, parent: 2, start: 5, end: 9, a: gpu("inference", 0.004, 2, attrs{"gpu.self_energy": 1.0})},
		in{name: "gemm", trace: 1, id: 4, parent: 3, start: 5, end: 8, a: gpu("", 0.003, 1, nil)},
		in{name: "post", trace: 1, id: 5, parent: 2, start: 10, end: 12, a: gpu("inference", 0.002, 1, nil)},
		in{name: "train", trace: 2, id: 6, start: 10, end: 12, a: gpu("", 0.002, 7, nil)},
	), clock)
	assert.Empty(t, b.due(after(29*time.Second), false))
	closed := b.due(after(30*time.Second), false)
	closed = append(closed, b.due(after(30*time.Second), false)...)
	require.Len(t, closed, 1)
	r := closed[0]
	require.Len(t, r.accounts, 2)
	assert.Equal(t, 3.0, r.accounts[0].energy+r.accounts[1].energy)
	assert.InDelta(t, 0.005, r.queued(r.first()), 1e-12)
	assert.Empty(t, written(t, closed), "the trace shows it itself")
	assert.Equal(t, 3.0, b.stats.charged)
	assert.Equal(t, 7.0, b.stats.unassigned)
}

// A section whose energy is withheld hides no energy of the work inside it, wherever that is.
func TestWithheldEnergyHidesNoneInside(t *testing.T) {
	for name, links := range map[string][]linked{"section": nil, "batch": {{trace: 3, id: 9}}} {
		for _, between := range []bool{false, true} {
			b := newTest(t, nil)
			outer := gpu("inference", 0.004, 0, nil)
			delete(outer, "gpu.energy")
			all := []in{
				{name: "POST", trace: 1, id: 1, start: 0, end: 30, kind: server},
				{name: "infer", trace: 1, id: 3, parent: 1, start: 5, end: 9, a: outer, links: links},
				{name: "layer", trace: 1, id: 4, parent: 3, start: 5, end: 8, a: gpu("layer", 0.003, 1, nil)},
				{name: "inner batch", trace: 1, id: 5, parent: 3, start: 5, end: 8, a: gpu("", 0.003, 4, nil), links: []linked{{trace: 2, id: 2}}},
			}
			if between {
				for _, x := range all {
					b.take(payload(t, service, x), clock)
				}
			} else {
				b.take(payload(t, service, all...), clock)
			}
			joules := map[byte]float64{}
			for _, r := range append(b.due(after(time.Minute), true), b.due(after(time.Minute), true)...) {
				joules[r.Trace[0]] += r.energy()
			}
			assert.Equal(t, 4.0, joules[2], "%s %v", name, between)
			assert.Equal(t, 5.0, b.stats.charged+b.stats.unassigned, "%s %v", name, between)
			if links == nil {
				assert.Equal(t, 1.0, joules[1], "%s %v", name, between)
			}
		}
	}
}

// A capture window records some kernels of a request whose sections are timed anyway: they are not
// additional work, and their links to the window and to requests do not make them batches.
func TestKernelsOfAWindowAreNotChargedAgain(t *testing.T) {
	b := newTest(t, nil)
	kernel := func(id byte, joules float64) in {
		a := gpu("", 0.001, joules, attrs{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti"})
		return in{name: "gemm", trace: 1, id: id, parent: 1, start: 5, end: 6, a: a, links: []linked{
			{trace: 9, id: 9, a: attrs{"gpu.link.type": "window"}},
			{trace: 2, id: 2, a: attrs{"gpu.link.type": "request"}},
		}}
	}
	b.take(payload(t, service,
		in{name: "POST", trace: 1, id: 1, start: 0, end: 30, kind: server},
		in{name: "infer", trace: 1, id: 3, parent: 1, start: 5, end: 9, a: gpu("inference", 0.004, 2, nil)},
		kernel(4, 0), kernel(5, 0.25),
	), clock)
	closed := b.due(after(30*time.Second), false)
	closed = append(closed, b.due(after(30*time.Second), false)...)
	require.Len(t, closed, 1)
	require.Len(t, closed[0].accounts, 1)
	assert.Equal(t, 0.004, closed[0].accounts[0].time)
	assert.Equal(t, 2.0, b.stats.charged)
	assert.Equal(t, 0.25, b.stats.unassigned)
}

// Spans of type request are requests; the engine's own times are used.
func TestAHostTimedRequestHasItsOwnUsageRecord(t *testing.T) {
	b := newTest(t, nil)
	b.take(payload(t, service, in{
		name: "llm_request", trace: 1, id: 1, start: 0, end: 700, kind: server, a: attrs{
			"gpu.operation.type": "request", "gpu.energy": 80.0, "gpu.operation.items": 64, "gpu.operation.item.type": "token",
			"gpu.request.queue.duration": 0.02, "gpu.request.time_to_first_item": 0.09, "gen_ai.request.model": "m",
		},
	}), clock)
	closed := b.due(after(15*time.Second), false)
	require.Len(t, closed, 1)
	r := closed[0]
	assert.Equal(t, 80.0, r.accounts[0].energy)
	assert.Equal(t, 64.0, r.accounts[0].items)
	assert.Zero(t, r.accounts[0].time, "never a GPU time")
	assert.Equal(t, 0.02, r.queued(r.first()))
	assert.Equal(t, 0.09, r.toFirstItem().after)
	assert.Empty(t, written(t, closed))
}

// A frontend's or worker's request span above the engine's, such as in NVIDIA Dynamo with vLLM's
// tracing, is the same request. It is counted once, with the energy of both, in any order of
// arrival.
func TestARequestAroundAnotherIsNotCountedAgain(t *testing.T) {
	request := func(id, parent byte, energy float64) in {
		return in{name: "llm_request", trace: 1, id: id, parent: parent, start: 0, end: 700, a: attrs{
			"gpu.operation.type": "request", "gpu.energy": 100.0, "gpu.self_energy": energy,
			"gpu.operation.items": 64, "gpu.operation.item.type": "token",
		}}
	}
	outer, between := request(1, 0, 5), in{name: "generate", trace: 1, id: 2, parent: 1, start: 0, end: 700}
	inner := request(3, 2, 95)
	for name, payloads := range map[string][][]in{
		"one payload":         {{outer, between, inner}},
		"one payload, upward": {{inner, between, outer}},
		"inner first":         {{inner}, {between}, {outer}},
		"outer first":         {{outer}, {between}, {inner}},
		"between last":        {{inner}, {outer}, {between}},
		"between first":       {{between}, {inner}, {outer}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTest(t, nil)
			for _, p := range payloads {
				b.take(payload(t, service, p...), clock)
			}
			closed := b.due(after(15*time.Second), false)
			require.Len(t, closed, 1)
			assert.Equal(t, 100.0, closed[0].accounts[0].energy)
			assert.Equal(t, 64.0, closed[0].accounts[0].items)
			assert.Equal(t, 100.0, b.stats.charged)
			assert.Zero(t, b.stats.unassigned)
		})
	}
}

func TestLowCoverageIsReported(t *testing.T) {
	b := newTest(t, nil)
	half := decode(2, 2, 1, linked{1, 1, nil, 0})
	half.a["gpu.join.coverage"] = 0.5
	unjoined := decode(3, 3, 0, linked{2, 1, nil, 0})
	delete(unjoined.a, "gpu.energy")
	b.take(payload(t, service, decode(1, 1, 1, linked{1, 1, nil, 0}), half, unjoined,
		decode(4, 4, 1, linked{3, 1, nil, 0})), clock)
	got := written(t, b.due(clock, true))
	assert.Equal(t, 0.75, got["decode 1"].Attributes().AsRaw()["gpu.join.coverage"])
	assert.NotContains(t, got["decode 2"].Attributes().AsRaw(), "gpu.energy")
	assert.NotContains(t, got["decode 2"].Attributes().AsRaw(), "gpu.join.coverage")
	assert.NotContains(t, got["decode 3"].Attributes().AsRaw(), "gpu.join.coverage")
}

// Work in an endless trace, such as of a training run, is dropped after some time and makes space
// for others. Names that contain numbers do not create a usage record or a span per batch.
func TestOperationsOfARequestAreBounded(t *testing.T) {
	b := newTest(t, nil)
	const batches = 1000
	for i := range batches {
		x := decode(0, 1, 1, linked{1, 1, items(2), 0})
		x.name = fmt.Sprint("decode ", i)
		td := payload(t, service, x)
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetSpanID(id(i + 1))
		b.take(td, clock)
	}
	closed := b.due(clock, true)
	require.Len(t, closed, 1)
	got := written(t, closed)
	assert.Len(t, got, 65)
	other := got["other 1"].Attributes().AsRaw()
	assert.EqualValues(t, batches-64, other["gpu.energy"])
	assert.EqualValues(t, batches-64, other["gpu.request.batch.count"])
	assert.EqualValues(t, batches-64, b.stats.lostOperations)
	assert.EqualValues(t, batches, b.stats.charged)
}

// An operation has one usage record per request, regardless of the number of other names.
func TestOneUsageRecordForEachOperation(t *testing.T) {
	b := newTest(t, func(c *Config) { c.MaxRequests = 100_000 })
	first, last := decode(1, 1, 1, linked{1, 1, nil, 0}), decode(2, 2, 1, linked{1, 1, nil, 0})
	b.take(payload(t, service, first), clock)
	for i := range maxOperations + 10 {
		x := decode(3, 1, 1, linked{2, 1, nil, 0})
		x.name = fmt.Sprint("op ", i)
		td := payload(t, service, x)
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetSpanID(id(i))
		b.take(td, clock)
	}
	b.take(payload(t, service, last), clock)
	for _, r := range b.due(clock, true) {
		if r.Trace == (pcommon.TraceID{1}) {
			require.Len(t, r.accounts, 1)
			assert.EqualValues(t, 2, r.accounts[0].batches)
		}
	}
}

// A span without IDs belongs to no request, and its energy is still counted.
func TestEnergyOfSpansWithoutIDsIsUnassigned(t *testing.T) {
	b := newTest(t, nil)
	b.take(payload(t, service, decode(0, 1, 3, linked{1, 1, items(2), 0}), in{name: "GET", end: 9, kind: server}), clock)
	assert.Empty(t, b.due(clock, true))
	assert.Equal(t, 3.0, b.stats.unassigned)
}

func TestATraceWithoutEndLeavesRoomForOthers(t *testing.T) {
	b := newTest(t, func(c *Config) { c.MaxSpans = 100 })
	for i := range 600 {
		td := payload(t, service, in{name: "step", trace: 1, parent: 1, a: gpu("", 0.001, 1, nil)})
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetSpanID(id(i))
		b.take(td, after(time.Duration(i)*time.Second))
		b.due(after(time.Duration(i)*time.Second), false)
	}
	assert.Zero(t, b.stats.lostChildren)
	assert.Less(t, b.waiting.at.Len(), 100)
	b.due(after(time.Hour), true)
	assert.Equal(t, 600.0, b.stats.unassigned)
}

// Repeated work, including kernels, is charged once, even within one payload.
func TestWorkWithoutLinksThatIsRepeatedIsChargedOnce(t *testing.T) {
	b := newTest(t, nil)
	kernel := in{name: "gemm", trace: 1, id: 2, parent: 1, start: 1, end: 2, a: gpu("", 0.001, 1, nil)}
	kernel.a["gpu.operation.type"] = "kernel"
	section := in{name: "infer", trace: 1, id: 3, parent: 1, start: 3, end: 4, a: gpu("", 0.001, 2, nil)}
	for range 2 {
		b.take(payload(t, service, kernel, section, section, kernel, in{trace: 1, id: 1, kind: server, end: 9}), clock)
	}
	b.due(clock, true)
	assert.Equal(t, 3.0, b.stats.charged)
	assert.EqualValues(t, 6, b.stats.repeated)
}

// If a prompt is processed in several parts, the last one produces the first token.
func TestFirstItemIsAtTheEndOfTheWholePrompt(t *testing.T) {
	prefill := func(id byte, start float64, category string) in {
		return in{
			name: fmt.Sprintf("prefill %d", id), trace: 9, id: id, start: start, end: start + 2,
			a: gpu(category, 0.002, 1, nil), links: []linked{{1, 1, nil, 0}},
		}
	}
	for _, order := range [][]float64{{10, 30}, {30, 10}} {
		b := newTest(t, nil)
		b.take(payload(t, service, in{name: "POST", trace: 1, id: 1, start: 5, end: 80, kind: server},
			prefill(2, order[0], "prefill"), prefill(3, order[1], "prefill"), prefill(4, 50, "decode")), clock)
		closed := b.due(after(15*time.Second), false)
		require.Len(t, closed, 1)
		assert.InDelta(t, 0.027, closed[0].toFirstItem().after, 1e-12, "prompts end at 32 ms")
	}
}

// Among batches that start at the same time, the one with the lower ID is the first, in any order
// of arrival, so that the usage record's span always has the same ID.
func TestTheFirstOfBatchesOfOneStartDoesNotDependOnTheirOrder(t *testing.T) {
	var ids []pcommon.SpanID
	for _, order := range [][]byte{{2, 3}, {3, 2}} {
		b := newTest(t, nil)
		for _, id := range order {
			b.take(payload(t, service, decode(id, 10, 1, linked{1, 1, nil, 0})), clock)
		}
		s := written(t, b.due(clock, true))["decode 1"]
		ids = append(ids, s.SpanID())
		assert.Equal(t, pcommon.SpanID{2}, s.Links().At(0).SpanID())
	}
	assert.Equal(t, ids[0], ids[1])
}

func TestAShareOfAnUpperBoundIsAnUpperBound(t *testing.T) {
	b := newTest(t, nil)
	bound := attrs{"gpu.energy_bound": "upper"}
	b.take(payload(t, service,
		in{name: "POST", trace: 1, id: 1, start: 0, end: 60, kind: server},
		in{
			name: "prefill", trace: 9, id: 10, start: 10, end: 14, a: gpu("prefill", 0.004, 2, nil),
			links: []linked{{1, 1, items(100), 0}},
		},
		in{
			name: "decode", trace: 9, id: 12, start: 20, end: 28, a: gpu("decode", 0.008, 3.2, bound),
			links: []linked{{1, 1, items(3), 0}},
		},
	), clock)
	got := written(t, b.due(after(time.Minute), true))
	assert.NotContains(t, got["prefill 1"].Attributes().AsRaw(), "gpu.energy_bound")
	assert.Equal(t, "upper", got["decode 1"].Attributes().AsRaw()["gpu.energy_bound"])
}

// A link without a span ID is not a request.
func TestALinkWithoutASpanIsUnassigned(t *testing.T) {
	b := newTest(t, nil)
	b.take(payload(t, service, in{
		name: "decode", trace: 9, id: 12, start: 20, end: 28, a: gpu("decode", 0.008, 3.2, nil),
		links: []linked{{1, 1, items(3), 0}, {2, 0, items(1), 0}},
	}), clock)
	assert.Len(t, b.requests, 1)
	assert.InDelta(t, 2.4, b.stats.charged, 1e-12)
	assert.InDelta(t, 0.8, b.stats.unassigned, 1e-12)
}

// Shares of a request have its trace state, with its sampling threshold.
func TestSharesHaveTheTraceStateOfTheirRequest(t *testing.T) {
	b := newTest(t, nil)
	td := payload(t, service, in{
		name: "decode", trace: 9, id: 12, start: 20, end: 28, a: gpu("decode", 0.008, 3.2, nil),
		links: []linked{{1, 1, nil, 0}},
	})
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Links().At(0).TraceState().FromRaw("ot=th:8")
	b.take(td, clock)
	s := written(t, b.due(after(time.Hour), true))["decode 1"]
	assert.Equal(t, "ot=th:8", s.TraceState().AsRaw())
}

// A training step does not belong to a request, even below one.
func TestAStepBelowARequestIsUnassigned(t *testing.T) {
	b := newTest(t, nil)
	b.take(payload(t, service,
		in{name: "POST", trace: 1, id: 1, start: 0, end: 60, kind: server},
		in{name: "train", trace: 1, id: 2, parent: 1, start: 10, end: 20, a: attrs{
			"gpu.operation.type": "step", "gpu.energy": 5.0, "gpu.step.duration": 0.01, "hw.id": "GPU-a",
		}},
		in{
			name: "decode", trace: 9, id: 12, start: 20, end: 28, a: gpu("decode", 0.008, 3.2, nil),
			links: []linked{{1, 1, nil, 0}},
		},
	), clock)
	b.due(after(time.Hour), true)
	assert.InDelta(t, 3.2, b.stats.charged, 1e-12)
	assert.InDelta(t, 5, b.stats.unassigned, 1e-12)
}
