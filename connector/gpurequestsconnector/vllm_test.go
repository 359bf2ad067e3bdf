// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"bufio"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor"
)

// measuredRequests is the number of request spans, by start, that belong to the readings of the
// server's own metrics.
const measuredRequests = 52

// derived returns recorded spans as the presets map them.
func derived(t *testing.T, path string) []ptrace.Traces {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	f := gpuderiveprocessor.NewFactory()
	cfg := f.CreateDefaultConfig().(*gpuderiveprocessor.Config)
	cfg.Presets = []string{"vllm", "dynamo", "sglang"}
	cfg.Mappings = []gpuderiveprocessor.MappingConfig{ // docs/llm.md
		{Span: "replica_handle_request*", Has: "deployment", Type: "request"},
	}
	sink := new(consumertest.TracesSink)
	p, err := f.CreateTraces(t.Context(), processortest.NewNopSettings(f.Type()), cfg, sink)
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context(), componenttest.NewNopHost()))
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(lines.Bytes())
		require.NoError(t, err)
		require.NoError(t, p.ConsumeTraces(t.Context(), td))
	}
	require.NoError(t, lines.Err())
	require.NoError(t, p.Shutdown(t.Context()))
	return sink.AllTraces()
}

// recordedVLLM returns the request spans of a real vLLM, sorted by start.
func recordedVLLM(t *testing.T) ptrace.Traces {
	t.Helper()
	var requests []ptrace.Span
	var resource pcommon.Resource
	for _, td := range derived(t, recorded.Path(t, "vllm", "vllm-0.32.0.otlp.jsonl")) {
		require.NoError(t, conformance.Traces(td))
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					if v, ok := s.Attributes().Get("gpu.operation.type"); ok && v.Str() == "request" {
						requests, resource = append(requests, s), rs.Resource()
					}
				}
			}
		}
	}
	slices.SortFunc(requests, func(x, y ptrace.Span) int { return int(x.StartTimestamp()) - int(y.StartTimestamp()) })
	require.Greater(t, len(requests), measuredRequests)
	out := ptrace.NewTraces()
	rs := out.ResourceSpans().AppendEmpty()
	resource.CopyTo(rs.Resource())
	ss := rs.ScopeSpans().AppendEmpty()
	for _, s := range requests[:measuredRequests] {
		s.CopyTo(ss.Spans().AppendEmpty())
	}
	return out
}

// serverMetric returns the increase of a server metric between the two readings.
func serverMetric(t *testing.T, name string) float64 {
	t.Helper()
	value := func(reading string) float64 {
		text, err := os.ReadFile(recorded.Path(t, "vllm", "vllm-0.32.0.metrics."+reading+".txt"))
		require.NoError(t, err)
		m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `\{[^}]*\} (\S+)$`).FindSubmatch(text)
		require.NotNil(t, m, name)
		v, err := strconv.ParseFloat(string(m[1]), 64)
		require.NoError(t, err)
		return v
	}
	return value("after") - value("before")
}

// Compares the metrics of requests with the server's own, which count one more request: an
// unsampled one with 20 tokens and no wait.
func TestRequestsOfARealVLLMHaveItsOwnNumbers(t *testing.T) {
	const unsampledTokens = 20
	td := recordedVLLM(t) // before the connector starts: it skips the test if there are no recordings
	sink := new(consumertest.MetricsSink)
	f := NewFactory()
	c, err := f.CreateTracesToMetrics(t.Context(), connectortest.NewNopSettings(f.Type()), f.CreateDefaultConfig(), sink)
	require.NoError(t, err)
	require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
	ids := map[string]int{}
	for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		id, _ := s.Attributes().Get("gen_ai.request.id")
		ids[id.Str()]++
	}
	require.NoError(t, c.ConsumeTraces(t.Context(), td))
	require.NoError(t, c.Shutdown(t.Context()))

	count, sum := map[string]uint64{}, map[string]float64{}
	for _, md := range sink.AllMetrics() {
		require.NoError(t, conformance.Metrics(md))
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					points := m.Histogram().DataPoints()
					last := points.At(points.Len() - 1)
					count[m.Name()], sum[m.Name()] = last.Count(), last.Sum()
				}
			}
		}
	}
	for name, of := range map[string]string{
		"gpu.request.queue.duration":   "vllm:request_queue_time_seconds",
		"gpu.request.prefill.duration": "vllm:request_prefill_time_seconds",
		"gpu.request.decode.duration":  "vllm:request_decode_time_seconds",
	} {
		server, requests := serverMetric(t, of+"_sum"), serverMetric(t, of+"_count")
		wanted := measuredRequests
		if name == "gpu.request.decode.duration" {
			wanted-- // one request asked for one token, so it did not decode
		}
		assert.EqualValues(t, wanted, count[name], name)
		assert.EqualValues(t, measuredRequests+1, requests, name)
		t.Logf("%s: %.4f s, the server's own %.4f s of one request more", name, sum[name], server)
		assert.LessOrEqual(t, sum[name], server, name)
		assert.InEpsilon(t, server, sum[name], 0.02, name)
	}
	assert.InDelta(t, serverMetric(t, "vllm:request_queue_time_seconds_sum"), sum["gpu.request.queue.duration"], 1e-4)
	assert.Equal(t, serverMetric(t, "vllm:request_generation_tokens_sum"), sum["gpu.request.items"]+unsampledTokens)
	// A request for three completions is three sequences in the server's counts and three spans
	// with one request ID.
	sequences := 0
	for _, n := range ids {
		sequences = max(sequences, n)
	}
	assert.EqualValues(t, 3, sequences)
	assert.EqualValues(t, serverMetric(t, "vllm:request_params_n_count"), len(ids)+1)
}
