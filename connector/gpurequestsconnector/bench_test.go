// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/cputime"
)

// iterations returns n batches of decoding for the requests first to first + size, one item each.
func iterations(n, first, size int, from uint64) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "llm")
	ss := rs.ScopeSpans().AppendEmpty()
	for i := range n {
		s := ss.Spans().AppendEmpty()
		s.SetName("decode")
		s.SetTraceID(traceOf(1<<40 + from))
		s.SetSpanID(id(int(from) + i))
		s.SetStartTimestamp(at(float64(i)))
		s.SetEndTimestamp(at(float64(i) + 1))
		a := s.Attributes()
		a.PutStr("gpu.operation.type", "section")
		a.PutStr("gpu.operation.category", "decode")
		a.PutStr("gpu.operation.item.type", "token")
		a.PutDouble("gpu.duration", 0.001)
		a.PutDouble("gpu.energy", 0.4)
		a.PutStr("hw.id", "GPU-a")
		a.PutInt("gpu.operation.items", int64(size))
		for r := range size {
			l := s.Links().AppendEmpty()
			l.SetTraceID(traceOf(uint64(first + r)))
			l.SetSpanID(id(first + r))
			l.Attributes().PutInt("gpu.operation.items", 1)
			l.Attributes().PutDouble("gpu.batch.share", 1/float64(size))
		}
	}
	return td
}

func traceOf(n uint64) (out pcommon.TraceID) {
	binary.BigEndian.PutUint64(out[:], n*0x9e3779b97f4a7c15+1)
	return out
}

// BenchmarkTake measures a payload of 32 iterations, each for 256 of 10,000 open requests.
func BenchmarkTake(b *testing.B) {
	for _, size := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("requests=%d", size), func(b *testing.B) {
			k := newTest(b, nil)
			for first := 0; first < 10_000; first += 250 {
				k.take(iterations(1, first, 250, uint64(1_000_000+first)), clock)
			}
			td := iterations(32, 4000, size, 0)
			list := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
			n := 0
			b.ReportAllocs()
			cpu := cputime.Used()
			for b.Loop() {
				for i := range 32 { // a different one each time
					n++
					list.At(i).SetSpanID(id(2_000_000 + n))
				}
				k.take(td, clock)
			}
			links := float64(b.N) * 32 * float64(size)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/links, "ns/link")
			b.ReportMetric(float64((cputime.Used()-cpu).Nanoseconds())/links, "cpu-ns/link") // independent of other load on the machine
		})
	}
}

// BenchmarkWithoutLinks measures a span of GPU work of no request while max_spans of them are
// remembered.
func BenchmarkWithoutLinks(b *testing.B) {
	k := newTest(b, nil)
	td := iterations(512, 0, 0, 0)
	list := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	n := uint64(0)
	take := func() {
		for _, s := range list.All() {
			n++
			s.SetTraceID(traceOf(n / 16))
			s.SetSpanID(id(int(n * 0x9e3779b97f4a7c15)))
		}
		k.take(td, clock)
	}
	for n < 2*uint64(k.cfg.MaxSpans) {
		take()
	}
	b.ReportAllocs()
	cpu := cputime.Used()
	for b.Loop() {
		take()
	}
	b.ReportMetric(float64((cputime.Used()-cpu).Nanoseconds())/float64(512*b.N), "cpu-ns/span")
}

// A request that decodes takes less than 64 MiB / 10,000 with everything that belongs to it: its
// span, spans below it, a prefill in its trace and two operations by links.
func TestTenThousandOpenRequestsFitInto64MiB(t *testing.T) {
	const requests = 10_000
	before := heap()
	b := newTest(t, nil)
	for r := range requests {
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "llm")
		ss := rs.ScopeSpans().AppendEmpty()
		for i := range 5 {
			s := ss.Spans().AppendEmpty()
			s.SetName("span")
			s.SetTraceID(traceOf(uint64(r)))
			s.SetSpanID(id(r + i*100_000))
			s.SetStartTimestamp(at(0))
			s.SetEndTimestamp(at(100))
			if i > 0 {
				s.SetParentSpanID(id(r))
			}
			if i == 4 {
				s.SetName("prefill")
				s.Attributes().PutStr("gpu.operation.type", "section")
				s.Attributes().PutStr("gpu.operation.category", "prefill")
				s.Attributes().PutDouble("gpu.energy", 1)
				s.Attributes().PutStr("hw.id", "GPU-a")
			}
			s.Attributes().PutStr("gen_ai.request.model", "llama-3-8b")
		}
		b.take(td, clock)
	}
	for i, name := range []string{"decode", "embed"} {
		for first := 0; first < requests; first += 250 {
			td := iterations(4, first, 250, uint64(5_000_000+i*1_000_000+first*10))
			for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
				s.SetName(name)
			}
			b.take(td, clock)
		}
	}
	require.Len(t, b.requests, requests)
	require.Equal(t, requests, b.waiting.at.Len())
	used := heap() - before
	t.Logf("%.1f MiB, %d bytes each", float64(used)/(1<<20), used/requests)
	require.Less(t, used, uint64(64<<20))
	runtime.KeepAlive(b)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
