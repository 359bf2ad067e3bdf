// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
)

type attrs map[string]any

// epoch is the start of the tests' spans; the tests' clock starts one second later.
const (
	epoch = uint64(1_700_000_000_000_000_000)
	clock = int64(epoch) + int64(time.Second)
)

// in is one span of a test: times in ms after epoch, IDs of one byte.
type in struct {
	name              string
	trace, id, parent byte
	start, end        float64
	kind              ptrace.SpanKind
	a                 attrs
	links             []linked
}

// linked is a link of a test, to a span with the same ID in a trace.
type linked struct {
	trace, id byte
	a         attrs
	flags     uint32
}

func payload(t testing.TB, resource attrs, spans ...in) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	require.NoError(t, rs.Resource().Attributes().FromRaw(resource))
	ss := rs.ScopeSpans().AppendEmpty()
	for _, x := range spans {
		s := ss.Spans().AppendEmpty()
		s.SetName(x.name)
		s.SetTraceID(pcommon.TraceID{x.trace})
		s.SetSpanID(pcommon.SpanID{x.id})
		s.SetKind(x.kind)
		if x.parent > 0 {
			s.SetParentSpanID(pcommon.SpanID{x.parent})
		}
		s.SetStartTimestamp(at(x.start))
		s.SetEndTimestamp(at(x.end))
		require.NoError(t, s.Attributes().FromRaw(x.a))
		for _, l := range x.links {
			to := s.Links().AppendEmpty()
			if l.trace > 0 {
				to.SetTraceID(pcommon.TraceID{l.trace})
				to.SetSpanID(pcommon.SpanID{l.id})
			}
			to.SetFlags(l.flags)
			require.NoError(t, to.Attributes().FromRaw(l.a))
		}
	}
	return td
}

func at(ms float64) pcommon.Timestamp { return pcommon.Timestamp(epoch + uint64(ms*1e6)) }

var service = attrs{"service.name": "llm"}

// gpu returns the attributes of a GPU span with that category, seconds and joules.
func gpu(category string, seconds, joules float64, more attrs) attrs {
	a := attrs{
		"gpu.operation.type": "section", "gpu.operation.category": category, "gpu.operation.item.type": "token",
		"gpu.duration": seconds, "gpu.energy": joules, "hw.id": "GPU-a", "gpu.timing.source": "cuda_event",
	}
	maps.Copy(a, more)
	return a
}

func items(n int) attrs { return attrs{"gpu.operation.items": n} }

func newTest(t testing.TB, edit func(*Config)) *book {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	if edit != nil {
		edit(cfg)
	}
	require.NoError(t, confmap.Validate(cfg))
	return newBook(cfg)
}

// after returns the tests' clock after a duration.
func after(d time.Duration) int64 { return clock + int64(d) }

// written returns the spans of closed requests by name and trace.
func written(t testing.TB, closed []*request) map[string]ptrace.Span {
	t.Helper()
	td := spans(closed, true, func(pcommon.InstrumentationScope) {})
	require.NoError(t, conformance.TracesFrom("gpu_requests", withoutResources(td)))
	out := map[string]ptrace.Span{}
	for _, rs := range td.ResourceSpans().All() {
		for _, s := range rs.ScopeSpans().At(0).Spans().All() {
			id := s.TraceID()
			name := s.Name() + " " + string('0'+rune(id[0]))
			require.NotContains(t, out, name)
			out[name] = s
		}
	}
	return out
}

// withoutResources removes resources, whose attributes are copied from the batches.
func withoutResources(td ptrace.Traces) ptrace.Traces {
	out := ptrace.NewTraces()
	td.CopyTo(out)
	for _, rs := range out.ResourceSpans().All() {
		rs.Resource().Attributes().Clear()
	}
	return out
}
