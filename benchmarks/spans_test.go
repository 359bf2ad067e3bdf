// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// batchSize is the default maximum batch of an SDK's batch processor.
const batchSize = 512

// traceSpans is the number of spans per trace in a batch, below one host span.
const traceSpans = 8

// Attributes that gpu_join and gpu_derive write: the default set, or all of them, which is compared
// with the floors and the other processors.
const (
	lean = "lean"
	full = "full"
)

// sections returns a batch as sent by gpuspan: sections of a few operations on two devices of one
// model, with the attributes of timed sections with declared work. IDs are random, and times,
// delays and work vary between spans as in real measurements, because the compression ratio
// determines the cost of sending them. It has one scope instead of one per device, for simpler
// readers.
func sections() ptrace.Traces {
	rnd := rand.New(rand.NewPCG(1, 2))
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
	device.PutDouble("gpu.timing.error", 2.1e-6)
	device.PutStr("gpu.timing.source", "cuda_event")
	device.PutStr("hw.model", "NVIDIA H100 80GB HBM3")
	device.PutStr("hw.type", "gpu")
	device.PutStr("hw.vendor", "NVIDIA")
	var trace pcommon.TraceID
	var caller pcommon.SpanID
	start := uint64(1_700_000_000_000_000_000)
	for i := range batchSize {
		s := ss.Spans().AppendEmpty()
		s.SetName([]string{"prefill", "decode", "attention", "mlp"}[i%4])
		if i%traceSpans == 0 {
			trace, caller = traceID(rnd), spanID(rnd)
		}
		s.SetTraceID(trace)
		s.SetSpanID(spanID(rnd))
		s.SetParentSpanID(caller)
		took := 2_000_000 + rnd.Uint64N(512_000)
		s.SetStartTimestamp(pcommon.Timestamp(start))
		s.SetEndTimestamp(pcommon.Timestamp(start + took))
		start += 2_700_000 + rnd.Uint64N(600_000)
		tokens := 1 + rnd.Int64N(2048)
		a := s.Attributes()
		a.PutDouble("gpu.duration", float64(took)/1e9)
		a.PutDouble("gpu.start.delay", float64(700_000+rnd.IntN(20_000))/1e9)
		a.PutStr("gpu.operation.type", "section")
		a.PutStr("gpu.operation.category", []string{"prefill", "decode", "attention", "forward"}[i%4])
		a.PutStr("gpu.operation.item.type", "token")
		a.PutInt("gpu.stream.id", int64(i%3))
		a.PutStr("hw.id", fmt.Sprintf("GPU-3b1c2f4e-8a67-4d1f-9b3c-5f0e9d7a6c2%d", i%2))
		a.PutStr("hw.name", "gpu0")
		a.PutInt("gpu.io.read.size", 2_000_000_000+8192*tokens)
		a.PutInt("gpu.io.write.size", 1_350_000_000+8192*tokens)
		a.PutInt("gpu.operation.items", tokens)
		a.PutDouble("gpu.flop.count", 4e11+2e8*float64(tokens))
		a.PutStr("gpu.flop.precision", "bf16")
	}
	return td
}

func traceID(rnd *rand.Rand) (id pcommon.TraceID) {
	binary.BigEndian.PutUint64(id[:8], rnd.Uint64())
	binary.BigEndian.PutUint64(id[8:], rnd.Uint64())
	return id
}

func spanID(rnd *rand.Rand) (id pcommon.SpanID) {
	binary.BigEndian.PutUint64(id[:], rnd.Uint64())
	return id
}
