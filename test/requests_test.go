// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/jaeger"
	"github.com/otelgpu/otelgpu/test/internal/jaeger/jaegertest"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// With the continuous batching example, the shipped pipeline and the real Jaeger, each request's
// own trace shows its GPU work, and all requests add up to the device's energy.
func TestIntegrationTraceOfARequestShowsItsGPUWork(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	j := jaegertest.Start(t)
	_, address := intoJaeger(t, j, "connectors: {gpu_requests: {settle: 2s, idle: 10s}}")
	example, err := program.Build(filepath.Join("..", "examples", "httpinference"), nil)
	require.NoError(t, err)
	begin := time.Now()
	const requests = 20
	service, err := program.Start(t.Context(), example, []string{
		"-simulated", "-requests", "20", "-otlp",
		"http://" + address,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, service.Wait(time.Minute), service.Output())

	var all ptrace.Traces
	traces := map[pcommon.TraceID]map[string]ptrace.Span{} // of requests, by name
	require.Eventually(t, func() bool {
		all, err = j.Find(t.Context(), "httpinference", begin.Add(-time.Minute), time.Now().Add(time.Minute), 1000)
		if errors.Is(err, jaeger.ErrNotFound) {
			return false
		}
		require.NoError(t, err)
		clear(traces)
		each(all, func(s ptrace.Span) {
			if s.Kind() == ptrace.SpanKindServer {
				traces[s.TraceID()] = map[string]ptrace.Span{}
			}
		})
		each(all, func(s ptrace.Span) {
			if of := traces[s.TraceID()]; of != nil {
				of[s.Name()] = s
			}
		})
		whole := 0
		for _, of := range traces {
			if len(of) == 6 {
				whole++
			}
		}
		return whole == requests
	}, time.Minute, 200*time.Millisecond)
	require.NoError(t, conformance.Traces(all))

	device, own, accounts, tokens := 0.0, 0.0, 0.0, 0.0
	each(all, func(s ptrace.Span) {
		if traces[s.TraceID()] != nil {
			return
		}
		if s.Name() == "iteration" {
			device += watts * seconds(s)
			own += value(s, "gpu.energy")
		} else {
			own -= value(s, "gpu.energy") // energy of spans inside iterations
			if s.Name() == "decode" {
				tokens += value(s, "gpu.operation.items")
			}
		}
	})
	made := 0.0
	for id, of := range traces {
		require.Len(t, of, 6, "%s: the request, queue, two copies, prefill, decode", id)
		var request ptrace.Span
		for _, s := range of {
			if s.Kind() == ptrace.SpanKindServer {
				request = s
			}
		}
		for _, name := range []string{"h2d.tokens", "prefill", "decode", "d2h.logits"} {
			s := of[name]
			require.Equal(t, request.SpanID(), s.ParentSpanID())
			require.Equal(t, "share", text(t, s, "gpu.operation.type"))
			require.Positive(t, double(t, s, "gpu.request.duration"))
			require.LessOrEqual(t, double(t, s, "gpu.request.duration"), seconds(s)+1e-9)
			require.Positive(t, value(s, "gpu.operation.items"))
			// Copies of microseconds have no energy while the first readings do not show it.
			accounts += value(s, "gpu.energy")
		}
		require.Positive(t, double(t, of["prefill"], "gpu.energy"))
		made += value(of["decode"], "gpu.operation.items")
		require.Equal(t, request.StartTimestamp(), of["queue"].StartTimestamp())
		require.Equal(t, of["h2d.tokens"].StartTimestamp(), of["queue"].EndTimestamp())
		require.Positive(t, double(t, of["prefill"], "gpu.request.time_to_first_item"))
		require.InEpsilon(t, double(t, of["decode"], "gpu.energy")/value(of["decode"], "gpu.operation.items"),
			double(t, of["decode"], "gpu.request.item.energy"), 1e-9)
	}
	require.Equal(t, tokens, made)
	require.Positive(t, device)
	require.InEpsilon(t, device, accounts+own, 1e-6,
		"requests and what iterations have alone are the device's energy")
}

// each calls f for all spans.
func each(td ptrace.Traces, f func(ptrace.Span)) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				f(s)
			}
		}
	}
}

// value returns a number on a span, or 0 if it is absent.
func value(s ptrace.Span, name string) float64 {
	v, ok := s.Attributes().Get(name)
	if !ok {
		return 0
	}
	if v.Type() == pcommon.ValueTypeInt {
		return float64(v.Int())
	}
	return v.Double()
}
