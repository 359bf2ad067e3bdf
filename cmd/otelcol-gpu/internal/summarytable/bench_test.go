// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package summarytable_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
)

// BenchmarkAdd measures batches of 16 sections with 15 operations each.
func BenchmarkAdd(b *testing.B) {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range 256 {
		s := spans.AppendEmpty()
		s.SetName(fmt.Sprint("op", i%16))
		s.SetSpanID([8]byte{1, byte(i)})
		s.SetParentSpanID([8]byte{1, byte(i | 15)})
		if i%16 == 15 {
			s.SetParentSpanID([8]byte{2})
		}
		s.Attributes().PutStr("gpu.operation.type", "section")
		s.Attributes().PutDouble("gpu.duration", 0.001)
	}
	table := summarytable.New()
	n := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		for _, s := range spans.All() {
			s.SetTraceID([16]byte(binary.BigEndian.AppendUint64(make([]byte, 8, 16), n)))
		}
		table.Add(td)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/span")
}
