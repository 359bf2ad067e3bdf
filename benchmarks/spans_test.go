// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"fmt"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// batchSize is what an SDK's batch processor sends at most by default.
const batchSize = 512

// sections is a batch as gpuspan sends it: sections of a few operations on two devices of one model, with the
// attributes that a timed section with declared work has. One scope instead of one for each device: readers are
// simpler.
func sections() ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	ra := rs.Resource().Attributes()
	ra.PutStr("service.name", "inference")
	ra.PutStr("service.instance.id", "627cc493-f310-47de-96bd-71410b7dec09")
	ra.PutStr("host.name", "gpu-node-17")
	ra.PutInt("process.pid", 4711)
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("github.com/otelgpu/otelgpu/gpuspan")
	device := ss.Scope().Attributes()
	device.PutDouble("gpu.floor.duration", 6e-7)
	device.PutStr("gpu.timing.source", "cuda_event")
	device.PutStr("hw.model", "NVIDIA H100 80GB HBM3")
	device.PutStr("hw.type", "gpu")
	device.PutStr("hw.vendor", "NVIDIA")
	for i := range batchSize {
		s := ss.Spans().AppendEmpty()
		s.SetName([]string{"prefill", "decode", "attention", "mlp"}[i%4])
		s.SetTraceID(pcommon.TraceID{1, byte(i >> 8), byte(i)})
		s.SetSpanID(pcommon.SpanID{2, byte(i >> 8), byte(i)})
		start := uint64(1_700_000_000_000_000_000 + i*3_000_000)
		s.SetStartTimestamp(pcommon.Timestamp(start))
		s.SetEndTimestamp(pcommon.Timestamp(start + 2_000_000 + uint64(i)*1000))
		a := s.Attributes()
		a.PutDouble("gpu.duration", 0.002+float64(i)*1e-6)
		a.PutDouble("gpu.timing.error", 2.1e-6)
		a.PutDouble("gpu.start.delay", 0.0007)
		a.PutDouble("gpu.end.delay", 0.0009)
		a.PutStr("gpu.operation.type", "section")
		a.PutStr("gpu.operation.category", []string{"prefill", "decode", "attention", "forward"}[i%4])
		a.PutStr("gpu.operation.item.type", "token")
		a.PutInt("gpu.stream.id", int64(i%3))
		a.PutStr("hw.id", fmt.Sprintf("GPU-3b1c2f4e-8a67-4d1f-9b3c-5f0e9d7a6c2%d", i%2))
		a.PutStr("hw.name", "gpu0")
		a.PutInt("gpu.io.read.size", 2_000_000_000)
		a.PutInt("gpu.io.write.size", 1_350_000_000)
		a.PutInt("gpu.operation.items", 2048)
		a.PutDouble("gpu.flop.count", 4e11)
		a.PutStr("gpu.flop.precision", "bf16")
	}
	return td
}
