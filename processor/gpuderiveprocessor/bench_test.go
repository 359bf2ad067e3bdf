// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/roofline"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

var full = with(h100, attrs{
	"gpu.io.read.size": 2_000_000_000, "gpu.io.write.size": 1_350_000_000, "gpu.io.size": 3_350_000_000,
	"gpu.flop.count": 4e11, "gpu.flop.precision": "bf16",
	"gpu.operation.items": 2048, "hw.id": "GPU-3b1c2f4e-8a67-4d1f-9b3c-5f0e9d7a6c21", "gpu.timing.source": "cuda_event",
	"gpu.end.delay": 0.0009,
})

func manySpans(t testing.TB, n int) ptrace.Traces {
	td, s := oneSpan(t, full)
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	for range n - 1 {
		s.CopyTo(spans.AppendEmpty())
	}
	return td
}

// Each added attribute costs one allocation in pdata; nothing else is allocated for a span.
func TestOnlyAttributesAreAllocated(t *testing.T) {
	const n = 100
	td := manySpans(t, n)
	d := newTestDeriver(t, nil)
	process(t, d, td)
	puts := len(gained(td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0), full))
	require.Equal(t, 13, puts)
	perBatch := testing.AllocsPerRun(20, func() { process(t, d, td) })
	assert.Less(t, perBatch-float64(n*puts), 10.0, "allocations of a batch beyond its %d attributes", n*puts)
}

// BenchmarkProcess measures a batch whose attributes already exist, so that maps do not grow. The
// benchmarks module has comparisons with other processors.
func BenchmarkProcess(b *testing.B) {
	td := manySpans(b, 512)
	d := newTestDeriver(b, nil)
	process(b, d, td)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = d.process(context.Background(), td)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/span")
}

// BenchmarkFormulas measures only the formulas, without reading and writing attributes.
func BenchmarkFormulas(b *testing.B) {
	_, s := oneSpan(b, full)
	d := newTestDeriver(b, nil)
	var f spanfacts.Facts
	f.Load(s, nil)
	var out roofline.Values
	r := d.resolver.roof(device{f.Device.ID, f.Device.Parent, f.Device.Model}, 1)
	b.ReportAllocs()
	for b.Loop() {
		out.Derive(&f, r, d.floor)
	}
}

// BenchmarkAssemble measures batches of 16 steps with 5 phases of 6 operations each, beside
// BenchmarkProcess.
func BenchmarkAssemble(b *testing.B) {
	d := newTestDeriver(b, assembling(func(a *AssembleConfig) { a.MaxSums = 4096 }))
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range 16 * 36 {
		s := spans.AppendEmpty()
		n, parent, typ := byte(i%36), byte(0), "section"
		switch {
		case n == 35:
			n, typ = 1, "step"
		case n%7 == 6:
			n, parent = 40+n/7, 1
			s.Attributes().PutStr("gpu.operation.category", phaseNames[n-40])
		default:
			n, parent = 50+n, 40+n/7
			s.Attributes().PutDouble("gpu.flop.count", 1e12)
		}
		s.SetSpanID(pcommon.SpanID{n, byte(i / 36)})
		if parent > 0 {
			s.SetParentSpanID(pcommon.SpanID{parent, byte(i / 36)})
		}
		s.SetStartTimestamp(pcommon.Timestamp(epoch + i*1000))
		s.SetEndTimestamp(pcommon.Timestamp(epoch + i*1000 + 900))
		s.Attributes().PutStr("gpu.operation.type", typ)
	}
	n := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		var trace pcommon.TraceID
		binary.BigEndian.PutUint64(trace[:], n)
		for _, s := range spans.All() {
			s.SetTraceID(trace)
		}
		d.steps.assemble(td, epoch+int64(n))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(spans.Len()), "ns/span")
}
