// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/jaeger/jaegertest"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// Runs the first command of the README and validates the output of all components against the
// registry.
func TestDemoWritesOnlyRegisteredNamesAndNoMoreEnergyThanTheDeviceUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("the demo is not built and run with -short")
	}
	t.Parallel()
	binary := buildCollector(t)
	out := filepath.Join(t.TempDir(), "out")
	p, err := program.Start(t.Context(), binary, []string{"demo", "--duration", "3s", "--files", "--out", out}, nil)
	require.NoError(t, err)
	require.NoError(t, p.Wait(time.Minute))

	// Energy of the outermost spans, of usage records, and of the device's own counter, by device.
	spent, shared, used := map[string]float64{}, map[string]float64{}, map[string]float64{}
	parents, gpuSpans := map[pcommon.SpanID]bool{}, []ptrace.Span{}
	outside := conformance.Report{Strict: true}
	for line := range lines(t, filepath.Join(out, "spans.json")) {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		require.NoError(t, err)
		outside.Traces(td)
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					kind, gpu := s.Attributes().Get("gpu.operation.type")
					switch {
					case !gpu:
					case kind.Str() == "share":
						// Only for work with its own spans.
						id, _ := s.Attributes().Get("hw.id")
						joules, _ := s.Attributes().Get("gpu.energy")
						shared[id.Str()] += joules.Double()
					default:
						parents[s.SpanID()] = true
						gpuSpans = append(gpuSpans, s)
					}
				}
			}
		}
	}
	require.NoError(t, outside.Err())
	require.NotEmpty(t, gpuSpans)
	requireLean(t, gpuSpans)
	for _, s := range gpuSpans {
		if id, ok := s.Attributes().Get("hw.id"); ok && !parents[s.ParentSpanID()] {
			if joules, ok := s.Attributes().Get("gpu.energy"); ok {
				spent[id.Str()] += joules.Double()
			}
		}
	}
	for line := range lines(t, filepath.Join(out, "metrics.json")) {
		md, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(line)
		require.NoError(t, err)
		require.NoError(t, conformance.Metrics(md))
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					if m.Name() != "hw.energy" {
						continue
					}
					for _, p := range m.Sum().DataPoints().All() {
						id, _ := p.Attributes().Get("hw.id")
						used[id.Str()] = max(used[id.Str()], p.DoubleValue())
					}
				}
			}
		}
	}
	require.NotEmpty(t, used)
	for id, joules := range used {
		t.Logf("%s: %.1f J on spans of %.1f J", id, spent[id], joules)
		require.Positive(t, spent[id], id)
		require.LessOrEqual(t, shared[id], spent[id], "energy of requests on %s against the energy of the work", id)
		require.LessOrEqual(t, spent[id], joules, "energy of outermost spans against the counter of %s", id)
	}
	require.FileExists(t, filepath.Join(out, "trace.json.gz"))
	checked, err := exec.Command(binary, "check", filepath.Join(out, "spans.json"),
		filepath.Join(out, "metrics.json")).CombinedOutput()
	require.NoError(t, err, string(checked))
	require.Contains(t, string(checked), ": no violations\n")
}

// The demo also sends its traces to a store, which has the request that the findings name, with its
// GPU work.
func TestIntegrationDemoSendsItsTracesToJaeger(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	j := jaegertest.Start(t)
	p, err := program.Start(t.Context(), buildCollector(t), []string{
		"demo", "--duration", "3s", "--out", filepath.Join(t.TempDir(), "out"), "--otlp", j.OTLPGRPC,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, p.Wait(time.Minute), p.Output())
	m := regexp.MustCompile(`slow request: .* \(trace ([0-9a-f]{32})\)`).FindStringSubmatch(p.Output())
	require.NotNil(t, m, p.Output())
	id, err := trace.TraceIDFromHex(m[1])
	require.NoError(t, err)
	var got answer
	require.Eventually(t, func() bool {
		got = await(t, j, id, 1)
		return !slices.ContainsFunc([]string{"POST /v1/generate", "queue", "prefill.long", "decode"}, func(name string) bool {
			return len(got.byName[name]) == 0
		})
	}, time.Minute, 100*time.Millisecond)
	joules, ok := got.byName["prefill.long"][0].Attributes().Get("gpu.energy")
	require.True(t, ok)
	require.Positive(t, joules.Double())
}

// requireLean limits joined and derived spans to a readable size: 26 attributes and 750 bytes on
// average, including links to requests and their part of the scope.
func requireLean(t *testing.T, spans []ptrace.Span) {
	t.Helper()
	attributes, size := 0, 0
	for _, s := range spans {
		attributes += s.Attributes().Len()
		size += (&ptrace.ProtoMarshaler{}).SpanSize(s)
	}
	n := float64(len(spans))
	t.Logf("%.1f attributes and %.0f bytes of OTLP on average of %d spans", float64(attributes)/n, float64(size)/n,
		len(spans))
	require.LessOrEqual(t, float64(attributes)/n, 26.)
	require.LessOrEqual(t, float64(size)/n, 750.)
}

// lines yields the lines of a file, each one request of OTLP JSON.
func lines(t *testing.T, path string) func(func([]byte) bool) {
	t.Helper()
	return func(yield func([]byte) bool) {
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		s := bufio.NewScanner(f)
		s.Buffer(nil, 256<<20)
		for s.Scan() {
			if !yield(s.Bytes()) {
				return
			}
		}
		require.NoError(t, s.Err())
	}
}
