// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/pipeline"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/exporter/gpupageexporter"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/semconv"
)

// recordedGPU is the ID of the device of a recording.
const recordedGPU = "GPU-00000000-0000-4000-8000-0000000000a1"

// recordDevice writes a recording of a device whose power changes each 0.7 s, and whose clock is
// limited for 0.2 of each 0.6 s.
func recordDevice(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	enc := json.NewEncoder(z)
	type object = map[string]any
	const interval = 20 * time.Millisecond
	const start = int64(1767323045e9)
	device := object{"id": recordedGPU, "name": "gpu0", "model": "NVIDIA A100-SXM4-80GB", "vendor": "NVIDIA", "ordinal": 0}
	for _, line := range []object{
		{"format": "otelgpu-recording", "version": 1, "source": "dcgm", "start": start, "interval": int64(interval)},
		{"devices": []object{device}},
	} {
		require.NoError(t, enc.Encode(line))
	}
	joules := 1e6
	for n := range 3000 {
		watts, throttle := 390+20*float64(n/35%4), 0
		if n/10%3 == 2 {
			throttle = 4 // the software's power cap
		}
		require.NoError(t, enc.Encode(object{"d": 0, "t": start + int64(n)*int64(interval), "v": object{
			"energy": joules, "power": watts, "utilization": 0.9, "throttle": throttle,
		}}))
		joules += watts * interval.Seconds()
	}
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
}

// recordedSpans returns the spans of a recorded profile and of a recorded vLLM.
func recordedSpans(t *testing.T, profile string) (kernels, served []ptrace.Traces) {
	t.Helper()
	_, err := kinetoreceiver.ReadFile(t.Context(), profile, kinetoreceiver.Options{Detail: kinetoreceiver.DetailAuto},
		func(_ context.Context, td ptrace.Traces) error {
			own := ptrace.NewTraces()
			td.CopyTo(own)
			kernels = append(kernels, own)
			return nil
		})
	require.NoError(t, err)
	lines(t, recorded.Path(t, "vllm", "vllm-0.32.0.otlp.jsonl"), func(line []byte) {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		require.NoError(t, err)
		served = append(served, td)
	})
	return kernels, served
}

// move sets the device of spans, and shifts them so that the last one ends at a time.
func move(list []ptrace.Traces, device string, end time.Time) {
	each := func(f func(pcommon.Map, ptrace.Span)) {
		for _, td := range list {
			for _, rs := range td.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						f(ss.Scope().Attributes(), s)
					}
				}
			}
		}
	}
	newest := pcommon.Timestamp(0)
	each(func(_ pcommon.Map, s ptrace.Span) { newest = max(newest, s.EndTimestamp()) })
	shift := end.UnixNano() - int64(newest)
	each(func(scope pcommon.Map, s ptrace.Span) {
		s.SetName(s.Name()[:min(len(s.Name()), 40)]) // the terminal shortens longer ones
		s.SetStartTimestamp(pcommon.Timestamp(int64(s.StartTimestamp()) + shift))
		s.SetEndTimestamp(pcommon.Timestamp(int64(s.EndTimestamp()) + shift))
		for _, m := range []pcommon.Map{scope, s.Attributes()} {
			if _, ok := m.Get(string(semconv.HWIDKey)); ok {
				m.PutStr(string(semconv.HWIDKey), device)
			}
		}
	})
}

// A recorded device, a recorded profile and the spans of a recorded server have the same numbers on
// the terminal, on the page, in the report, in the metrics and in the counters.
func TestRecordedInputAgreesOnEverySurface(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for several seconds, because a recording is replayed in real time")
	}
	t.Parallel()
	profile, dir := recorded.Path(t, "kineto", "hta/nccl_parser_config/nccl_data.json.gz"), t.TempDir()
	recording := filepath.Join(dir, "device.gpurec")
	recordDevice(t, recording)
	base, err := config.YAML("llm")
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	var source pipeline.Source
	table, seen := summarytable.New(), page.New()
	p, err := pipeline.Start(t.Context(), buildInfo(), func() (otelcol.Factories, error) {
		f, err := factories()
		if err != nil {
			return f, err
		}
		feed := source.NewFactory()
		f.Receivers[feed.Type()] = feed
		(&pipeline.Sink{Traces: table.Add}).AddTo(f.Exporters)
		live := gpupageexporter.NewFactory(gpupageexporter.WithModel(seen), gpupageexporter.WithListener(listener))
		f.Exporters[live.Type()] = live
		return f, nil
	}, base, fmt.Sprintf(`
extensions: {gpu_samples: {servers: []}}
receivers:
  source/spans: {}
  gpu: {source: replay, collection_interval: 1s, replay: {file: %q}}
processors: {gpu_join: {settle: 6s, max_wait: 12s}}
connectors:
  gpu_metrics: {flush_interval: 1s}
  gpu_requests: {settle: 1s, idle: 2s, flush_interval: 1s}
exporters:
  file/spans: {path: %q}
  file/metrics: {path: %q}
  sink: {}
service:
  extensions: [gpu_samples]
  telemetry: {metrics: {level: none, readers: []}}
  pipelines:
    traces: {receivers: [source/spans], exporters: [gpu_metrics, gpu_requests, gpu_page, file/spans, sink]}
    traces/requests: {exporters: [gpu_page, file/spans, sink]}
    metrics: {receivers: [gpu, gpu_metrics, gpu_requests], exporters: [gpu_page, file/metrics]}
`, recording, filepath.Join(dir, "spans.json"), filepath.Join(dir, "metrics.json")))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Stop()) }()
	kernels, served := recordedSpans(t, profile)
	require.Eventually(t, func() bool {
		devices, known := seen.State(page.Query{}).Devices, 0
		for _, d := range devices {
			for _, watts := range d.Power {
				if watts != nil {
					known++
				}
			}
		}
		return known >= 2 // of 2 s each
	}, time.Minute, 50*time.Millisecond)

	want := int64(0)
	end := time.Now()
	move(kernels, recordedGPU, end)
	move(served, recordedGPU, end)
	for _, td := range append(kernels, served...) {
		want += int64(td.SpanCount())
		require.NoError(t, source.Next("spans").ConsumeTraces(t.Context(), td))
	}
	require.Eventually(t, func() bool { spans, _ := table.Spans(); return spans >= want }, time.Minute, 50*time.Millisecond)
	require.NoError(t, p.Stop()) // after which the requests' records are complete
	var out strings.Builder
	spans, gpuSpans := table.Spans()
	fmt.Fprintf(&out, "\nAfter a recording: %d spans, %d of them GPU spans.\n\n", spans, gpuSpans)
	require.NoError(t, table.Render(&out, summarytable.Format{}))
	path, err := page.WriteReport(dir, "report.html", seen.State(page.Query{Saved: true}))
	require.NoError(t, err)
	state, _ := reportState(t, path)
	shown := agree(t, out.String(), state, dir)

	total, held := 0.0, int64(0)
	for _, o := range shown {
		total, held = total+o.own, held+o.held
	}
	require.Positive(t, total, "joules of operations")
	require.Positive(t, held, "throttled spans")
	require.NotEmpty(t, state.Requests)
}
