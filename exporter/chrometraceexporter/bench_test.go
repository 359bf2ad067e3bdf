// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"context"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
)

// sections returns a request of n spans as gpuspan creates them, with 16 attributes.
func sections(n int, from int64) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "llm")
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	spans.EnsureCapacity(n)
	for i := range n {
		s := spans.AppendEmpty()
		s.SetName("attention")
		s.SetTraceID([16]byte{1})
		s.SetSpanID([8]byte{byte(i), byte(i >> 8), 1})
		s.SetParentSpanID([8]byte{9})
		s.SetStartTimestamp(pcommon.Timestamp(epoch + from + int64(i)*10_000))
		s.SetEndTimestamp(pcommon.Timestamp(epoch + from + int64(i)*10_000 + 9_000))
		a := s.Attributes()
		a.PutStr("gpu.operation.type", "section")
		a.PutStr("gpu.operation.name", "attention")
		a.PutStr("gpu.operation.category", "attention")
		a.PutInt("gpu.operation.occurrence", int64(i))
		a.PutInt("gpu.device.ordinal", 0)
		a.PutInt("gpu.stream.id", 1)
		a.PutStr("hw.id", "GPU-51a0c0de-0000-4000-8000-000000000000")
		a.PutStr("hw.model", "NVIDIA H200")
		a.PutDouble("gpu.duration", 9e-6)
		a.PutDouble("gpu.start.delay", 2e-6)
		a.PutDouble("gpu.end.delay", 8e-6)
		a.PutDouble("gpu.timing.error", 1e-6)
		a.PutDouble("gpu.flop.count", 1.5e12)
		a.PutStr("gpu.flop.precision", "bf16")
		a.PutInt("gpu.io.size", 1<<30)
		a.PutStr("gpu.timing.status", "ok")
	}
	return td
}

// BenchmarkConsumeTraces measures the whole exporter, writing to a file, in requests of 1,000
// spans.
func BenchmarkConsumeTraces(b *testing.B) {
	cfg := createDefaultConfig().(*Config)
	cfg.Path = filepath.Join(b.TempDir(), "trace.json")
	e, err := NewFactory().CreateTraces(b.Context(), exportertest.NewNopSettings(metadata.Type), cfg)
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Start(b.Context(), componenttest.NewNopHost()); err != nil {
		b.Fatal(err)
	}
	td := sections(1000, 0)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			s.SetStartTimestamp(s.StartTimestamp() + 10_000_000)
			s.SetEndTimestamp(s.EndTimestamp() + 10_000_000)
		}
		if err := e.ConsumeTraces(b.Context(), td); err != nil {
			b.Fatal(err)
		}
		n += 1000
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/span")
	if err := e.Shutdown(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMarshalOTLPJSON is the baseline: the same spans, encoded as by the upstream file
// exporter.
func BenchmarkMarshalOTLPJSON(b *testing.B) {
	td := sections(1000, 0)
	m := &ptrace.JSONMarshaler{}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if _, err := m.MarshalTraces(td); err != nil {
			b.Fatal(err)
		}
		n += 1000
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/span")
}
