// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/freeport"
	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// compared has both outputs of gpu_metrics, and sends its spans of late ranks again through all
// components that process GPU spans.
const compared = `
extensions:
  gpu_samples: {}
receivers:
  otlp: {protocols: {grpc: {endpoint: %[1]s}}}
  gpu: {source: simulated, samples: gpu_samples}
processors:
  gpu_join: {samples: gpu_samples}
  gpu_derive: {presets: [sdk, gen_ai, pytorch]}
connectors:
  gpu_metrics: {flush_interval: 1h, instance_id: first}
  gpu_metrics/again: {flush_interval: 1h, instance_id: second}
exporters:
  file/traces: {path: %[2]s/traces.json}
  file/metrics: {path: %[2]s/metrics.json}
  file/again: {path: %[2]s/again.json}
  debug: {}
service:
  extensions: [gpu_samples]
  telemetry: {metrics: {level: none, readers: []}}
  pipelines:
    traces: {receivers: [otlp], exporters: [gpu_metrics]}
    traces/stragglers: {receivers: [gpu_metrics], processors: [gpu_derive, gpu_join], exporters: [gpu_metrics/again, file/traces]}
    metrics: {receivers: [gpu_metrics], exporters: [file/metrics]}
    metrics/again: {receivers: [gpu_metrics/again], exporters: [file/again]}
    metrics/device: {receivers: [gpu], exporters: [debug]}
`

// lateSteps is how many steps ranks returns. Fewer do not prove that a rank is late.
const lateSteps = 40

// ranks returns steps of four ranks, each in a separate trace whose first byte is the rank plus
// one; the second byte is 0 in the last step. The third rank loses 20 ms in attention.
func (x timeline) ranks() []*sender {
	var out []*sender
	for rank := range 4 {
		s := x.sender("trainer", byte(rank+1))
		s.resource.PutStr("gpu.job.id", "slurm-48213")
		s.resource.PutInt("gpu.job.rank", int64(rank))
		s.resource.PutInt("gpu.job.world_size", 4)
		attention := 0.030
		if rank == 2 {
			attention = 0.050
		}
		for step := range lateSteps {
			s.step = byte(lateSteps - 1 - step)
			s.rank(attention, 121+step-lateSteps)
		}
		out = append(out, s)
	}
	return out
}

// rank adds a step of a rank.
func (s *sender) rank(attention float64, index int) {
	op := func(category string, seconds float64) map[string]any {
		return map[string]any{"gpu.operation.type": "section", "gpu.operation.category": category, "gpu.duration": seconds}
	}
	end := 0.02 + attention
	s.span("attention", 4, 3, 0.02, end, op("attention", attention))
	s.span("forward", 2, 1, 0, 0.02, op("forward", 0.02))
	s.span("backward", 3, 1, 0.02, end+0.01, op("backward", attention+0.01))
	s.span("all_reduce", 5, 1, end+0.01, 0.1, op("comm", 0.09-end)) // the fast ranks wait here for the slow one
	s.span("train", 1, 0, 0, 0.1, map[string]any{
		"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": index, "gpu.step.duration": 0.1,
		"gpu.step.phase.duration.forward": 0.02, "gpu.step.phase.duration.backward": attention + 0.01,
		"gpu.step.phase.duration.comm": 0.09 - end, "gpu.step.overlap.duration": 0.0, "gpu.step.other.duration": 0.0,
	})
}

// checkStraggler compares the span with the ranks' own times of 60, 60, 80 and 60 ms.
func (x timeline) checkStraggler(t *testing.T, rs ptrace.ResourceSpans, s ptrace.Span) {
	require.Equal(t, map[string]any{
		"service.name": "trainer", "service.instance.id": "trainer-1",
		"gpu.job.id": "slurm-48213", "gpu.job.rank": int64(2), "gpu.job.world_size": int64(4),
	}, rs.Resource().Attributes().AsRaw())
	require.Equal(t, "straggler backward/attention", s.Name())
	require.Equal(t, pcommon.TraceID{3}, s.TraceID())
	require.Equal(t, pcommon.SpanID{1}, s.ParentSpanID())
	require.Equal(t, x.at(0.02), s.StartTimestamp())
	require.Equal(t, x.at(0.07), s.EndTimestamp())
	got := s.Attributes().AsRaw()
	for key, want := range map[string]float64{
		"gpu.straggler.score": 80. / 60, "gpu.straggler.delay": 0.020,
		"gpu.straggler.median": 0.060,
	} {
		require.InEpsilon(t, want, got[key], 1e-9, key)
		delete(got, key)
	}
	require.Equal(t, map[string]any{
		"gpu.straggler.section": "backward/attention", "gpu.straggler.phase": "backward",
		"gpu.straggler.rank.count": int64(4),
		"gpu.step.index":           int64(120), "gpu.operation.name": "train",
		"gpu.finding.kind": "late_rank", "gpu.finding.certainty": "medium",
		"gpu.finding.gain": 0.02, "gpu.finding.share": 0.2, "gpu.finding.threshold": 0.01,
		"gpu.finding.evidence": "rank 2 of 4 is late by 20ms, 20ms of it in backward/attention",
		"gpu.finding.remedy":   finding.New("late_rank", finding.Medium).Remedy,
	}, got)
	require.Equal(t, 1, s.Links().Len())
	require.Equal(t, pcommon.TraceID{1}, s.Links().At(0).TraceID())
	require.Equal(t, pcommon.SpanID{1}, s.Links().At(0).SpanID())
}

func export(t *testing.T, address string, all []*sender) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	for _, s := range all {
		_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(s.td))
		require.NoError(t, err)
	}
}

// Pending steps are compared and reported when the real Collector stops, through both outputs; no
// component treats the report as a GPU span.
func TestTheSlowRanksTraceReportsIt(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	t.Parallel()
	binary, dir := buildCollector(t), t.TempDir()
	address, err := freeport.Address()
	require.NoError(t, err)
	file := filepath.Join(dir, "compared.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, compared, address, dir), 0o600))
	p, err := program.Start(t.Context(), binary, []string{"--config", file}, nil)
	require.NoError(t, err)
	require.NoError(t, p.WaitFor("Everything is ready", time.Minute))
	x := timeline{zero: time.Now().Add(-200 * time.Millisecond).Truncate(time.Millisecond)}
	export(t, address, x.ranks())
	require.NoError(t, p.Stop(time.Minute))

	n := 0
	for line := range lines(t, filepath.Join(dir, "traces.json")) {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		require.NoError(t, err)
		require.NoError(t, conformance.Traces(td))
		n += td.SpanCount()
		rs := td.ResourceSpans().At(0)
		for _, s := range rs.ScopeSpans().At(0).Spans().All() {
			if s.TraceID() == (pcommon.TraceID{3}) {
				x.checkStraggler(t, rs, s)
			}
		}
	}
	require.Equal(t, lateSteps, n)
	var all string
	for line := range lines(t, filepath.Join(dir, "metrics.json")) {
		md, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(line)
		require.NoError(t, err)
		text, _ := metricsText(md)
		all += text
	}
	require.Equal(t, 8, strings.Count(all, "trainer gpu.step.duration["), "each series begins with a 0")
	require.Equal(t, 4, strings.Count(all, fmt.Sprintf(" = %d in %g, 1 exemplars\n", lateSteps, 0.1*lateSteps)),
		"the Collector gives a batch to both faces; it is counted once:\n%s", all)
	require.Equal(t, 1, strings.Count(all, "trainer gpu.straggler.delay["))
	require.Contains(t, all, "gpu.job.rank:2 gpu.operation.name:train gpu.straggler.section:backward/attention] = 0.02\n")
	again, err := os.ReadFile(filepath.Join(dir, "again.json"))
	require.NoError(t, err)
	require.Empty(t, string(again), "nothing to count")
}

// gateway returns the shipped pipeline of a single gateway, to which its own traces return.
// Intervals are a quarter of the shipped ones, no trace is kept by chance, and output is written to
// a file.
func gateway(t *testing.T, traces, jobs, health, file string) string {
	return edited(t, "kubernetes/gateway", func(at func(path ...string) map[string]any) {
		at("receivers", "otlp/traces", "protocols", "grpc")["endpoint"] = traces
		at("receivers", "otlp/jobs", "protocols", "grpc")["endpoint"] = jobs
		at("extensions", "health_check")["endpoint"] = health
		at("service")["telemetry"] = map[string]any{"metrics": map[string]any{"level": "none", "readers": []any{}}}

		tail := at("processors", "tail_sampling")
		quarter := func(m map[string]any, key string) {
			d, err := time.ParseDuration(m[key].(string))
			require.NoError(t, err)
			m[key] = (d / 4).String()
		}
		quarter(tail, "decision_wait")
		quarter(at("connectors", "gpu_metrics/jobs"), "flush_interval")
		quarter(at("connectors", "gpu_metrics/jobs", "stragglers"), "max_wait")
		for _, p := range tail["policies"].([]any) {
			if p := p.(map[string]any); p["type"] == "probabilistic" {
				p["probabilistic"] = map[string]any{"sampling_percentage": 0}
			}
		}

		exporters := at("exporters")
		delete(exporters, "load_balancing/stragglers")
		exporters["otlp_grpc/stragglers"] = map[string]any{"endpoint": traces, "tls": map[string]any{"insecure": true}}
		delete(exporters, "otlp_grpc/traces")
		exporters["file"] = map[string]any{"path": file, "flush_interval": "50ms"}
		delete(exporters, "otlp_http/metrics")
		for name, p := range at("service", "pipelines") {
			p := p.(map[string]any)
			for i, e := range p["exporters"].([]any) {
				if to, ok := map[string]string{
					"load_balancing/stragglers": "otlp_grpc/stragglers", "otlp_grpc/traces": "file", "otlp_http/metrics": "debug",
				}[e.(string)]; ok {
					p["exporters"].([]any)[i] = to
				}
			}
			require.NotEmpty(t, p["exporters"], name)
		}
	})
}

// edited returns a shipped pipeline after an edit; at returns the mapping at a path.
func edited(t *testing.T, name string, edit func(at func(path ...string) map[string]any)) string {
	t.Helper()
	text, err := config.YAML(name)
	require.NoError(t, err)
	var c map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &c))
	edit(func(path ...string) map[string]any {
		m := c
		for _, key := range path {
			require.Contains(t, m, key, path)
			m = m[key].(map[string]any)
		}
		return m
	})
	out, err := yaml.Marshal(c)
	require.NoError(t, err)
	return string(out)
}

// The gateway of a cluster: spans are routed by trace and by job, the finding returns by trace, and
// tail sampling keeps only the late rank's complete trace.
func TestIntegrationGatewayKeepsTheSlowRanksTrace(t *testing.T) {
	integration.Need(t) // tail sampling of others, whose build takes longer than all other tests of this package
	t.Parallel()
	binary, dir := buildCollector(t, "-tags", "ottl"), t.TempDir()
	var addresses [3]string
	for i := range addresses {
		var err error
		addresses[i], err = freeport.Address()
		require.NoError(t, err)
	}
	file := filepath.Join(dir, "kept.json")
	startCollector(t, binary, nil, gateway(t, addresses[0], addresses[1], addresses[2], file))
	x := timeline{zero: time.Now().Add(-200 * time.Millisecond).Truncate(time.Millisecond)}
	ranks := x.ranks()
	export(t, addresses[0], ranks)
	export(t, addresses[1], ranks)

	var names []string
	require.Eventually(t, func() bool {
		names = nil
		text, _ := os.ReadFile(file)
		for line := range bytes.Lines(text) {
			td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
			if err != nil {
				return false // being written
			}
			for _, rs := range td.ResourceSpans().All() {
				for _, s := range rs.ScopeSpans().At(0).Spans().All() {
					of := s.TraceID()
					assert.Equal(t, byte(3), of[0], s.Name())
					if of != (pcommon.TraceID{3}) {
						continue
					}
					names = append(names, s.Name())
					if strings.HasPrefix(s.Name(), "straggler") {
						x.checkStraggler(t, rs, s)
					}
				}
			}
		}
		return len(names) >= 6
	}, time.Minute, 100*time.Millisecond)
	require.ElementsMatch(t, []string{
		"train", "forward", "backward", "attention", "all_reduce",
		"straggler backward/attention",
	}, names)
}
