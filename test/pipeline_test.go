// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/freeport"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

var update = flag.Bool("update", false, "write the golden files of the pipeline")

// pipeline receives spans and samples over OTLP, and samples of another device from the gpu
// receiver; it joins, derives and counts. Spans of another SDK must become GPU spans first, so
// gpu_derive precedes gpu_join, unlike in the ready pipelines.
const pipeline = `
extensions:
  gpu_samples: {}
receivers:
  otlp: {protocols: {grpc: {endpoint: %[1]s}}}
  gpu:
    source: replay
    samples: gpu_samples
    replay: {file: %[2]s}
processors:
  gpu_join: {samples: gpu_samples, settle: 8s, max_wait: 16s, attributes: full}
  gpu_derive: {samples: gpu_samples, presets: [sdk], attributes: full}
connectors:
  gpu_metrics: {flush_interval: 1h, instance_id: golden}
exporters:
  gpu_samples: {}
  file/traces: {path: %[3]s/traces.json, flush_interval: 100ms}
  file/metrics: {path: %[3]s/metrics.json}
  debug: {}
service:
  extensions: [gpu_samples]
  telemetry: {metrics: {level: none, readers: []}}
  pipelines:
    traces: {receivers: [otlp], processors: [gpu_derive, gpu_join], exporters: [gpu_metrics, file/traces]}
    metrics/devices: {receivers: [otlp], exporters: [gpu_samples]}
    metrics/device: {receivers: [gpu], exporters: [debug]}
    metrics: {receivers: [gpu_metrics], exporters: [file/metrics]}
`

const (
	scraped = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50" // sampled by dcgm-exporter
	sampled = "GPU-9a1c7be2-0b52-4d0e-8a51-2f0a8a2c11d0" // sampled by the receiver: the constant device
	h100    = "NVIDIA H100 80GB HBM3"
)

// End to end in the real binary, with golden files: a trainer and an inference server send spans
// over OTLP; samples of the device that they share arrive as metrics, samples of a second device
// from the receiver; the output is spans and metrics.
func TestPipelineOfTwoSendersAndTwoSourcesOfSamplesGolden(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	t.Parallel()
	dir := t.TempDir()
	address, err := freeport.Address()
	require.NoError(t, err)
	recording := filepath.Join(dir, "constant.gpurec")
	constantDevice(t, recording, sampled, h100, time.Minute)
	binary := buildCollector(t)
	file := filepath.Join(dir, "pipeline.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, pipeline, address, recording, dir), 0o600))
	p, err := program.Start(t.Context(), binary, []string{"--config", file}, nil)
	require.NoError(t, err)
	require.NoError(t, p.WaitFor("Everything is ready", time.Minute))
	require.NoError(t, p.WaitFor("GPU source opened", time.Minute)) // the first sample has that time

	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	// Slightly ahead of the clock, so that everything is sent before anything is settled, even on a
	// slow machine.
	x := timeline{zero: time.Now().Add(time.Second).Truncate(time.Millisecond)}
	_, err = pmetricotlp.NewGRPCClient(conn).Export(t.Context(), pmetricotlp.NewExportRequestFromMetrics(x.scrapes()))
	require.NoError(t, err)
	sent := 0
	for _, td := range x.requests() {
		sent += td.SpanCount()
		_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(td))
		require.NoError(t, err)
	}

	traces := filepath.Join(dir, "traces.json")
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(traces)
		return err == nil && bytes.Count(b, []byte(`"spanId"`)) >= sent
	}, time.Minute, 100*time.Millisecond, "spans are lost or still waiting")
	require.NoError(t, p.Stop(time.Minute))
	var spans []ptrace.ResourceSpans
	for line := range lines(t, traces) {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		require.NoError(t, err)
		require.NoError(t, conformance.Traces(td))
		for _, rs := range td.ResourceSpans().All() {
			spans = append(spans, rs)
		}
	}
	equalsGolden(t, "pipeline_spans.txt", x.spansText(spans))

	counted := pmetric.NewMetrics() // first the points of 0, then the others
	for line := range lines(t, filepath.Join(dir, "metrics.json")) {
		md, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(line)
		require.NoError(t, err)
		require.NoError(t, conformance.Metrics(md))
		md.ResourceMetrics().MoveAndAppendTo(counted.ResourceMetrics())
	}
	text, energy := metricsText(counted)
	equalsGolden(t, "pipeline_metrics.txt", text)

	// Energies of spans differ from the definition by up to the unknown age of a scraped value, 0.1
	// s. Their sum does not: The scraped device consumes 200 W, and 600 W from 0.7 s to 1 s.
	// Spans are active on it from 0.1 s to 1 s, and for 0.4 s on the other one, which consumes
	// 312.5 W. The energy of `attention`, which ends before the step of power, is withheld; `forward` around it
	// has it.
	withheld := 0.0
	for _, rs := range spans {
		for _, s := range rs.ScopeSpans().At(0).Spans().All() {
			switch a := s.Attributes().AsRaw(); s.Name() {
			case "attention":
				require.NotContains(t, a, "gpu.energy")
			case "forward":
				withheld = a["gpu.energy"].(float64) - a["gpu.self_energy"].(float64)
			}
		}
	}
	require.InEpsilon(t, 0.9*200+0.3*400, energy[scraped]+withheld, 1e-9)
	require.InEpsilon(t, 0.4*watts, energy[sampled], 1e-9)
}

// equalsGolden compares with a file of testdata, which -update writes.
func equalsGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "%s (run with -update where the change is meant)", file)
}

// timeline defines the times of all events, in seconds from zero.
type timeline struct{ zero time.Time }

func (x timeline) at(seconds float64) pcommon.Timestamp {
	return pcommon.NewTimestampFromTime(x.zero.Add(time.Duration(seconds * 1e9)))
}

// scrapes returns a second of scrapes of dcgm-exporter before zero and two seconds after, as the
// prometheus receiver passes them on: the energy between two scrapes needs the scrapes around it.
func (x timeline) scrapes() pmetric.Metrics {
	md := pmetric.NewMetrics()
	ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	gauge := func(name string, value func(s float64) float64) {
		m := ms.AppendEmpty()
		m.SetName(name)
		points := m.SetEmptyGauge().DataPoints()
		for i := range 31 {
			p := points.AppendEmpty()
			s := float64(i-10) / 10
			p.SetTimestamp(x.at(s))
			p.SetDoubleValue(value(s))
			p.Attributes().PutStr("UUID", scraped)
			p.Attributes().PutStr("modelName", h100)
			p.Attributes().PutStr("gpu", "0")
		}
	}
	busy := func(low, high float64) func(float64) float64 {
		return func(s float64) float64 {
			if s > 0.69 && s < 0.99 {
				return high
			}
			return low
		}
	}
	// mJ
	gauge("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", func(s float64) float64 {
		return 1e6 + 1000*(200*s+400*min(max(s-0.7, 0),
			0.3))
	})
	gauge("DCGM_FI_DEV_POWER_USAGE_INSTANT", busy(200, 600))
	gauge("DCGM_FI_DEV_GPU_UTIL", busy(50, 100))
	gauge("DCGM_FI_DEV_GPU_TEMP", func(s float64) float64 { return 50 + 10*s })
	gauge("DCGM_FI_DEV_SM_CLOCK", busy(1980, 1755))
	gauge("DCGM_FI_PROF_SM_ACTIVE", busy(0.25, 0.75))
	gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", busy(0.125, 0.5))
	gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", busy(0, 4)) // power limit
	gauge("DCGM_FI_DEV_XID_ERRORS", func(s float64) float64 {
		if s > 0.55 {
			return 63
		}
		return 0
	})
	return md
}

// requests returns the exports of the senders, in order of arrival.
func (x timeline) requests() []ptrace.Traces {
	trainer, server, steps := x.sender("trainer", 1), x.sender("server", 2), x.sender("trainer", 1)
	trainer.resource.PutStr("gpu.job.id", "j1")
	trainer.resource.PutInt("gpu.job.rank", 0)
	trainer.resource.CopyTo(steps.resource)

	section := func(category string, more map[string]any) map[string]any {
		a := map[string]any{
			"gpu.operation.type": "section", "gpu.operation.category": category, "hw.id": scraped, "hw.model": h100,
			"gpu.timing.source": "cuda_event", "gpu.timing.status": "ok", "gpu.stream.id": 1,
		}
		maps.Copy(a, more)
		return a
	}
	// The trainer's step of 0.2 s to 1.0 s. Its children are exported earlier.
	trainer.span("attention", 4, 2, 0.25, 0.45, section("attention", map[string]any{
		"gpu.duration": 0.2, "gpu.end.delay": 0.19, "gpu.flop.count": 1.2e14, "gpu.flop.precision": "bf16",
		"gpu.io.size": int64(4e10), "gpu.floor.duration": 1e-6,
	}))
	trainer.span("forward", 2, 1, 0.2, 0.5, section("forward", map[string]any{"gpu.duration": 0.3}))
	trainer.span("backward", 3, 1, 0.5, 0.9, section("backward", map[string]any{"gpu.duration": 0.4}))
	steps.span("train", 1, 0, 0.2, 1, map[string]any{
		"gpu.operation.type": "step", "gpu.operation.name": "train", "hw.id": scraped, "hw.model": h100, "gpu.step.index": 7,
		"gpu.step.duration": 0.8,
		"gpu.step.items":    4096, "gpu.step.item.type": "token", "gpu.step.model.flop.count": 3e14,
		"gpu.step.device.count":           1,
		"gpu.flop.precision":              "bf16",
		"gpu.step.phase.duration.forward": 0.3, "gpu.step.phase.duration.backward": 0.4, "gpu.step.overlap.duration": 0.0,
		"gpu.step.other.duration": 0.1,
	})

	// The server's request, on both devices, and on one without samples.
	server.span("POST /v1/completions", 10, 0, 0.05, 0.75, map[string]any{"http.request.method": "POST"})
	other := map[string]any{"hw.id": sampled, "gpu.stream.id": 2}
	server.span("h2d", 11, 10, 0.35, 0.4, section("data", map[string]any{
		"hw.id": sampled, "gpu.stream.id": 2, "gpu.operation.type": "copy", "gpu.copy.direction": "host_to_device",
		"gpu.copy.host_memory": "pinned", "gpu.io.size": int64(2.5e9), "gpu.duration": 0.05,
	}))
	server.span("embed", 12, 10, 0.4, 0.6, section("forward", with(other,
		map[string]any{"gpu.duration": 0.2, "gpu.io.size": int64(3e11)})))
	server.span("prefill", 13, 10, 0.1, 0.3, section("prefill", map[string]any{
		"gpu.duration": 0.2, "gpu.end.delay": 0.001, "gpu.operation.items": 512, "gpu.operation.item.type": "token",
		"gpu.flop.count": 2e13, "gpu.flop.precision": "bf16", "gpu.io.size": int64(1e10),
	}))
	server.span("decode", 14, 10, 0.4, 0.7, section("decode", map[string]any{
		"gpu.duration": 0.3, "gpu.end.delay": 0.29, "gpu.operation.items": 64, "gpu.operation.item.type": "token",
		"gpu.flop.count": 6e12, "gpu.flop.precision": "bf16", "gpu.io.read.size": int64(6e11),
	}))
	server.span("elsewhere", 15, 10, 0.4, 0.7, section("decode",
		map[string]any{"hw.id": "GPU-00000000-1111-2222-3333-444444444444", "hw.model": "Unknown GPU", "gpu.duration": 0.3}))

	// A service with another language's SDK, which states a duration but no type.
	python := x.sender("python", 3)
	python.span("rerank", 20, 0, 0.65, 0.8, map[string]any{
		"hw.id": sampled, "hw.model": h100, "gpu.duration": 0.08, "gpu.timing.source": "cuda_event",
		"gpu.flop.count": 1e13, "gpu.flop.precision": "bf16",
	})
	return []ptrace.Traces{trainer.td, server.td, python.td, steps.td}
}

func with(a, more map[string]any) map[string]any {
	out := maps.Clone(a)
	maps.Copy(out, more)
	return out
}

// sender builds a request of one process.
type sender struct {
	timeline
	td       ptrace.Traces
	resource pcommon.Map
	spans    ptrace.SpanSlice
	trace    byte
	step     byte // second byte of its trace ID
}

func (x timeline) sender(service string, trace byte) *sender {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", service)
	rs.Resource().Attributes().PutStr("service.instance.id", service+"-1")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("gpuspan")
	return &sender{x, td, rs.Resource().Attributes(), ss.Spans(), trace, 0}
}

func (s *sender) span(name string, id, parent byte, start, end float64, attrs map[string]any) {
	span := s.spans.AppendEmpty()
	span.SetName(name)
	span.SetTraceID(pcommon.TraceID{s.trace, s.step})
	span.SetSpanID(pcommon.SpanID{id})
	if parent > 0 {
		span.SetParentSpanID(pcommon.SpanID{parent})
	}
	span.SetStartTimestamp(s.at(start))
	span.SetEndTimestamp(s.at(end))
	if err := span.Attributes().FromRaw(attrs); err != nil {
		panic(err)
	}
}

// spansText returns a line for each span and each attribute, ordered by service and start.
func (x timeline) spansText(all []ptrace.ResourceSpans) string {
	var blocks []string
	for _, rs := range all {
		service, _ := rs.Resource().Attributes().Get("service.name")
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				var b strings.Builder
				since := func(t pcommon.Timestamp) float64 { return t.AsTime().Sub(x.zero).Seconds() }
				fmt.Fprintf(&b, "%s %.3f-%.3f %s (%d below %d)\n", service.Str(), since(s.StartTimestamp()),
					since(s.EndTimestamp()), s.Name(), s.SpanID()[0], s.ParentSpanID()[0])
				id, _ := s.Attributes().Get("hw.id")
				raw := s.Attributes().AsRaw()
				if id.Str() == sampled {
					delete(raw, "gpu.join.samples") // the receiver's phase is its own
				}
				for _, k := range slices.Sorted(maps.Keys(raw)) {
					fmt.Fprintf(&b, "    %s = %s\n", k, number(raw[k]))
				}
				blocks = append(blocks, b.String())
			}
		}
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "\n")
}

// metricsText returns a line for each point, and the sum of gpu.operation.energy by device.
func metricsText(md pmetric.Metrics) (text string, energy map[string]float64) {
	var out []string
	energy = map[string]float64{}
	for _, rm := range md.ResourceMetrics().All() {
		service, _ := rm.Resource().Attributes().Get("service.name")
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				line := func(attrs pcommon.Map, value string) {
					raw := attrs.AsRaw()
					delete(raw, "collector.instance.id")
					out = append(out, fmt.Sprintf("%s %s%s = %s\n", service.Str(), m.Name(),
						strings.TrimPrefix(fmt.Sprint(raw), "map"), value))
				}
				switch m.Type() {
				case pmetric.MetricTypeGauge:
					for _, p := range m.Gauge().DataPoints().All() {
						line(p.Attributes(), number(p.DoubleValue()))
					}
				case pmetric.MetricTypeSum:
					for _, p := range m.Sum().DataPoints().All() {
						if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
							line(p.Attributes(), number(p.IntValue()))
							continue
						}
						line(p.Attributes(), number(p.DoubleValue()))
						if id, _ := p.Attributes().Get("hw.id"); m.Name() == "gpu.operation.energy" {
							energy[id.Str()] += p.DoubleValue()
						}
					}
				case pmetric.MetricTypeHistogram:
					for _, p := range m.Histogram().DataPoints().All() {
						line(p.Attributes(), fmt.Sprintf("%d in %s, %d exemplars", p.Count(), number(p.Sum()), p.Exemplars().Len()))
					}
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ""), energy
}

// number omits digits that differ between CPU architectures.
func number(v any) string {
	if x, ok := v.(float64); ok {
		return fmt.Sprintf("%.9g", x)
	}
	return fmt.Sprint(v)
}
