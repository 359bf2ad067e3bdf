// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/sinktest"
)

// Every kind of span that the page reads: work, steps, usage records, requests of an engine, their
// queue and server, and late ranks.
func TestRepeatedSpansCountOnce(t *testing.T) {
	var feed []ptrace.Traces
	for i := range byte(12) {
		ago := time.Duration(20-i) * time.Second
		td := traces(t,
			span{name: "gemm", kind: "section", start: ago, length: time.Duration(10+i) * time.Millisecond, trace: i, attributes: map[string]any{
				"gpu.energy": 2.0 + float64(i), "gpu.flop.count": 4e9,
			}},
			span{name: "train", kind: "step", start: ago, length: time.Second + time.Duration(i)*time.Millisecond, trace: i, attributes: map[string]any{
				"gpu.step.duration": 1.0, "gpu.step.index": int(i), "gpu.step.phase.duration.backward": 0.5,
			}},
			span{name: "decode", kind: "share", start: ago, length: time.Second + time.Duration(i)*time.Millisecond, trace: i, attributes: map[string]any{
				"gpu.request.duration": 0.25, "gpu.energy": 3.0 + float64(i), "gpu.items": 7,
			}},
			span{name: "llm_request", kind: "request", start: ago, length: time.Second + time.Duration(i)*time.Millisecond, trace: i + 100, attributes: map[string]any{
				"gpu.energy": 5.0 + float64(i), "gpu.items": 9,
			}},
			span{name: "queue", start: ago, length: time.Second + time.Duration(i)*time.Millisecond, trace: i, attributes: map[string]any{"gpu.request.queue.duration": 0.5}},
			span{name: "POST /", start: ago, length: time.Second + time.Duration(i)*time.Millisecond, trace: i},
			span{name: "late", start: ago, length: time.Second + time.Duration(i)*time.Millisecond, trace: i, attributes: map[string]any{
				"gpu.operation.name": "train", "gpu.straggler.score": 2.0, "gpu.straggler.median": 0.5,
				"gpu.straggler.rank.count": 4,
			}},
		)
		spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
		for _, at := range []int{4, 5, 6} {
			spans.At(at).Attributes().Remove("gpu.operation.type")
		}
		spans.At(5).SetKind(ptrace.SpanKindServer)
		feed = append(feed, td)
	}
	sinktest.Repeats(t, feed, func(*testing.T) (func(ptrace.Traces) error, func() any) {
		m := at()
		return func(td ptrace.Traces) error { m.Traces(td); return nil }, func() any {
			s := m.State(Query{})
			require.NotEmpty(t, s.Findings, "a late rank")
			flames := m.Flames()
			for i := range flames.Nodes {
				flames.Nodes[i].Trace = "" // of one of several without a time
			}
			return []any{s, flames}
		}
	})
}

// Counters of errors, of throttling and of a process' time, as increases and as sums.
func TestRepeatedPointsCountOnce(t *testing.T) {
	for _, temporality := range []pmetric.AggregationTemporality{
		pmetric.AggregationTemporalityCumulative, pmetric.AggregationTemporalityDelta,
	} {
		t.Run(temporality.String(), func(t *testing.T) {
			var feed []pmetric.Metrics
			for i := range 12 {
				md := pmetric.NewMetrics()
				list := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
				for _, x := range []struct{ name, key, value string }{
					{"hw.errors", "error.type", "xid"},
					{"gpu.throttle.time", "gpu.throttle.reason", "hw_thermal"},
					{"gpu.section.time", "gpu.section.state", "starved"},
					{"gpu.section.time", "gpu.section.state", "busy"},
				} {
					m := list.AppendEmpty()
					m.SetName(x.name)
					s := m.SetEmptySum()
					s.SetIsMonotonic(true)
					s.SetAggregationTemporality(temporality)
					p := s.DataPoints().AppendEmpty()
					p.SetTimestamp(pcommon.NewTimestampFromTime(noon.Add(time.Duration(i-20) * time.Second / 2)))
					p.Attributes().PutStr("hw.id", "GPU-1")
					p.Attributes().PutStr(x.key, x.value)
					switch {
					case temporality == pmetric.AggregationTemporalityDelta:
						p.SetDoubleValue(1)
					case i == 9:
						p.SetDoubleValue(0.5) // a restart
					default:
						p.SetDoubleValue(float64(i))
					}
				}
				feed = append(feed, md)
			}
			sinktest.Repeats(t, feed, func(t *testing.T) (func(pmetric.Metrics) error, func() any) {
				m := at()
				return func(md pmetric.Metrics) error { m.Metrics(md); return nil }, func() any {
					require.NotEmpty(t, m.errors.list)
					require.NotEmpty(t, m.sections.list)
					return []any{m.State(Query{}), m.errors.list, m.sections.list}
				}
			})
		})
	}
}

// Spans without an ID cannot be recognized: each counts.
func TestSpansWithoutAnIDAlwaysCount(t *testing.T) {
	m := at()
	td := traces(t, span{name: "gemm", kind: "section", start: time.Second, length: time.Millisecond})
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetSpanID(pcommon.SpanID{})
	m.Traces(td)
	m.Traces(td)
	assert.EqualValues(t, 2, m.State(Query{}).Operations[0].Count)
}

// A device has a limited number of counters. Counters of processes that have ended make way for
// others, and until then the others are not counted from 0 with each point.
func TestCountersOfADeviceAreBounded(t *testing.T) {
	m := at()
	at := noon.Add(-20 * time.Minute)
	send := func(process string, value float64) {
		md := pmetric.NewMetrics()
		rm := md.ResourceMetrics().AppendEmpty()
		rm.Resource().Attributes().PutStr("service.instance.id", process)
		x := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		x.SetName("gpu.section.time")
		s := x.SetEmptySum()
		s.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		p := s.DataPoints().AppendEmpty()
		p.SetTimestamp(pcommon.NewTimestampFromTime(at))
		p.SetDoubleValue(value)
		p.Attributes().PutStr("hw.id", "GPU-1")
		p.Attributes().PutStr("gpu.section.state", "starved")
		m.Metrics(md)
	}
	for i := range maxCounters {
		send(fmt.Sprint("process ", i), 1)
	}
	seconds := func() (sum float64) {
		m.sections.each(func(x *sectionTime) { sum += x.seconds })
		return sum
	}
	for range 3 {
		at = at.Add(time.Second)
		send("another", 7)
	}
	assert.EqualValues(t, maxCounters, seconds(), "the others")
	at = at.Add(keptSeconds * time.Second)
	send("another", 7)
	at = at.Add(time.Second)
	send("another", 9)
	assert.EqualValues(t, maxCounters+9, seconds())
	assert.Len(t, m.devices["GPU-1"].counters, 1)
}
