// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuprofilesconnector

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/connector/xconnector"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
	"github.com/otelgpu/otelgpu/internal/cputime"
)

const (
	benchTraces   = 64
	benchSections = 8 // of a trace
)

// requests returns a batch of requests with sections on two devices.
func requests() ptrace.Traces {
	rng := rand.New(rand.NewPCG(1, 2))
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "inference")
	ss := rs.ScopeSpans().AppendEmpty().Spans()
	at := uint64(1_700_000_000_000_000_000)
	add := func(i int, id, parent byte, length uint64) ptrace.Span {
		s := ss.AppendEmpty()
		trace := pcommon.TraceID{15: byte(i)}
		binary.BigEndian.PutUint32(trace[8:], rng.Uint32())
		s.SetTraceID(trace)
		s.SetSpanID(pcommon.SpanID{byte(i), id})
		if parent > 0 {
			s.SetParentSpanID(pcommon.SpanID{byte(i), parent})
		}
		s.SetStartTimestamp(pcommon.Timestamp(at))
		s.SetEndTimestamp(pcommon.Timestamp(at + length))
		return s
	}
	for i := range benchTraces {
		route := add(i, 1, 0, 30_000_000)
		route.SetName("POST /v1/generate")
		route.SetKind(ptrace.SpanKindServer)
		for j := range benchSections {
			length := 2_000_000 + rng.Uint64N(500_000)
			s := add(i, byte(j+2), 1, length)
			s.SetTraceID(route.TraceID())
			s.SetName([]string{"prefill", "decode", "attention", "mlp"}[j%4])
			a := s.Attributes()
			a.PutDouble("gpu.duration", float64(length)/1e9)
			a.PutDouble("gpu.energy", 1.5)
			a.PutDouble("gpu.self_energy", 1.5)
			a.PutDouble("gpu.start.delay", 7e-4)
			a.PutStr("gpu.operation.type", "section")
			a.PutStr("gpu.operation.category", []string{"prefill", "decode", "attention", "forward"}[j%4])
			a.PutInt("gpu.stream.id", int64(j%3))
			a.PutStr("hw.id", fmt.Sprint("GPU-3b1c2f4e-8a67-4d1f-9b3c-5f0e9d7a6c2", j%2))
			a.PutStr("hw.model", "NVIDIA H100 80GB HBM3")
			a.PutInt("gpu.io.read.size", 2_000_000_000)
			a.PutInt("gpu.flop.count", 1_000_000_000)
			at += 2_700_000 + rng.Uint64N(600_000)
		}
	}
	return td
}

// BenchmarkBesideMetrics sends the same batches alternately to gpu_profiles and gpu_metrics, each
// time with new trace IDs and two seconds later. Traces are counted once many spans are pending,
// which is part of the cost.
func BenchmarkBesideMetrics(b *testing.B) {
	for _, waiting := range []int{4000, 20_000} {
		b.Run(fmt.Sprint("waiting=", waiting), func(b *testing.B) { besideMetrics(b, waiting) })
	}
}

func besideMetrics(b *testing.B, waiting int) {
	f := NewFactory().(xconnector.Factory)
	cfg := createDefaultConfig().(*Config)
	cfg.Window, cfg.Settle, cfg.MaxWait, cfg.MaxSpans = time.Hour, time.Hour, time.Hour, waiting
	profiles, err := f.CreateTracesToProfiles(b.Context(), connectortest.NewNopSettings(f.Type()), cfg, consumertest.NewNop())
	require.NoError(b, err)
	m := gpumetricsconnector.NewFactory()
	config := m.CreateDefaultConfig()
	config.(*gpumetricsconnector.Config).FlushInterval = time.Hour
	metrics, err := m.CreateTracesToMetrics(b.Context(), connectortest.NewNopSettings(m.Type()), config,
		consumertest.NewNop())
	require.NoError(b, err)
	td := requests()
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	var cpu [2]time.Duration
	turn := func(i int, c connector.Traces) {
		from := cputime.Used()
		if err := c.ConsumeTraces(context.Background(), td); err != nil {
			b.Fatal(err)
		}
		cpu[i] += cputime.Used() - from
	}
	for n := uint64(0); b.Loop(); n++ {
		for _, s := range spans.All() {
			id := s.TraceID()
			binary.BigEndian.PutUint64(id[:], n)
			s.SetTraceID(id)
			s.SetStartTimestamp(s.StartTimestamp() + 2e9)
			s.SetEndTimestamp(s.EndTimestamp() + 2e9)
		}
		turn(0, metrics)
		turn(1, profiles)
	}
	count := float64(b.N) * benchTraces * (1 + benchSections)
	b.ReportMetric(float64(cpu[0].Nanoseconds())/count, "metrics-cpu-ns/span")
	b.ReportMetric(float64(cpu[1].Nanoseconds())/count, "profiles-cpu-ns/span")
	b.ReportMetric(float64(cpu[1])/float64(cpu[0]), "profiles/metrics")
}
