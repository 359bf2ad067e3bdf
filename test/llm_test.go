// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// served is one request of an inference server: times in ms after the first one's start.
type served struct {
	arrives, begins, ends int
	tokens                int64
}

// Requests overlap, wait in the engine's queue, and leave the devices idle for some time.
var load = []served{
	{0, 0, 1800, 120},
	{200, 200, 900, 40},
	{250, 700, 1500, 64},
	{900, 900, 1200, 16},
	{2600, 2600, 3000, 32},
	{2700, 3000, 3600, 48},
	{2750, 2900, 3100, 8},
}

// truth computes the energy of each request on devices with that power while they are used,
// millisecond by millisecond: equal parts for the servers with running requests, and equal parts of
// a server's energy for its running requests. Requests are assigned to the servers round-robin.
func truth(watts float64, servers int, served func(i int) bool) (joules []float64) {
	joules = make([]float64, len(load))
	for ms := range 4000 {
		active := map[int][]int{} // by server
		for i, r := range load {
			if r.begins <= ms && ms < r.ends && served(i) {
				active[i%servers] = append(active[i%servers], i)
			}
		}
		for _, list := range active {
			for _, i := range list {
				joules[i] += watts * 1e-3 / float64(len(active)*len(list))
			}
		}
	}
	return joules
}

// With the shipped pipeline, spans as sent by vLLM, and devices from a recording, energy per
// request and per token equals the recording's input.
func TestTheLLMPipelineGivesJoulesPerToken(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	t.Parallel()
	binary := buildCollector(t)
	for name, tt := range map[string]struct {
		watts    []float64 // of each device
		identity bool      // the resource lists the devices; otherwise they are found, because the host has one
		servers  int       // which serve alternately; if there are several, spans are sent in reverse order of their ends
	}{
		"one device, found":                      {[]float64{412}, false, 1},
		"eight devices, listed":                  {[]float64{310, 320, 330, 340, 350, 360, 370, 380}, true, 1},
		"one device, of two servers":             {[]float64{412}, false, 2},
		"eight devices, each server with a half": {[]float64{310, 320, 330, 340, 350, 360, 370, 380}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ids := recordDevices(t, filepath.Join(dir, "devices.gpurec"), tt.watts)
			otlp, metrics, pageAddress := freeAddress(t), freeAddress(t), freeAddress(t)
			_, telemetry, _ := strings.Cut(freeAddress(t), ":")
			overlay := filepath.Join(dir, "overlay.yaml")
			require.NoError(t, os.WriteFile(overlay, fmt.Appendf(nil, `
receivers:
  gpu: {source: replay, replay: {file: %q}}
connectors:
  gpu_requests: {settle: 1s, flush_interval: 500ms}
exporters:
  file: {path: %q, flush_interval: 100ms}
service:
  pipelines:
    traces: {exporters: [gpu_metrics, gpu_requests, gpu_page, file]}
`, filepath.Join(dir, "devices.gpurec"), filepath.Join(dir, "spans.json")), 0o600))
			collector, err := program.Start(t.Context(), binary, []string{"--config", "llm", "--config", overlay}, []string{
				"OTELGPU_OTLP_GRPC=" + otlp, "OTELGPU_OTLP_HTTP=" + freeAddress(t), "OTELGPU_METRICS=" + metrics,
				"OTELGPU_HEALTH=" + freeAddress(t), "OTELGPU_PAGE=" + pageAddress,
				"OTELGPU_LOG_LEVEL=info", "OTELGPU_TELEMETRY_PORT=" + telemetry, "OTELGPU_SETTLE=8s", "OTELGPU_MAX_WAIT=10s",
			})
			require.NoError(t, err)
			defer func() { _ = collector.Stop(time.Minute) }()
			require.NoError(t, collector.WaitFor("Everything is ready", time.Minute), collector.Output())
			require.NoError(t, collector.WaitFor("GPU source opened", time.Minute))

			zero := time.Now().Add(200 * time.Millisecond).Truncate(time.Millisecond)
			time.Sleep(time.Until(zero.Add(3800 * time.Millisecond)))
			want, devices := make([]float64, len(load)), len(ids)
			if tt.identity {
				devices /= tt.servers
			}
			for k := range tt.servers {
				list, watts, sharing := "", tt.watts, tt.servers
				if tt.identity {
					list, watts, sharing = strings.Join(ids[k*devices:][:devices], ","), watts[k*devices:][:devices], 1
				}
				total := 0.0
				for _, w := range watts {
					total += w
				}
				served := func(i int) bool { return sharing > 1 || i%tt.servers == k }
				for i, joules := range truth(total, sharing, served) {
					if i%tt.servers == k {
						want[i] = joules
					}
				}
				if tt.servers == 1 {
					export(t, otlp, []*sender{{td: vllm(zero, list, k, func(int) bool { return true })}})
					continue
				}
				for i := range slices.Backward(load) {
					if i%tt.servers == k {
						export(t, otlp, []*sender{{td: vllm(zero, list, k, func(n int) bool { return n == i })}})
					}
				}
			}
			got := map[int]ptrace.Span{}
			require.Eventually(t, func() bool {
				for _, s := range writtenSpans(t, filepath.Join(dir, "spans.json")) {
					id := s.SpanID()
					got[int(id[7])-1] = s
				}
				return len(got) == len(load)
			}, time.Minute, 100*time.Millisecond, collector.Output())
			joules, tokens := 0.0, int64(0)
			for i, r := range load {
				assert.InEpsilon(t, want[i], value(got[i], "gpu.energy"), 0.01, "request %d", i)
				assert.EqualValues(t, r.tokens, value(got[i], "gpu.operation.items"))
				if devices > 1 {
					assert.EqualValues(t, devices, value(got[i], "gpu.device.count"))
				}
				joules += want[i]
				tokens += r.tokens
			}
			var page string
			require.Eventually(t, func() bool {
				page = metricsPage(t, metrics)
				return sample(page, "gpu_request_energy_joules_count") == float64(len(load))
			}, time.Minute, 200*time.Millisecond)
			perToken := sample(page, "gpu_request_energy_joules_sum") / sample(page, "gpu_request_items_sum")
			assert.InEpsilon(t, joules/float64(tokens), perToken, 0.01)
			byItem := sample(page, "gpu_request_item_energy_joules_sum") / sample(page, "gpu_request_item_energy_joules_count")
			assert.InEpsilon(t, perToken, byItem, 1e-9, "docs, alerts and dashboards divide these")
			require.Eventually(t, func() bool {
				return math.Abs(pagePerItem(t, pageAddress)-perToken) < 0.001*perToken // it shows three digits
			}, 30*time.Second, 200*time.Millisecond, "the page shows the same")
			t.Logf("%.4f J per token, %.4f in truth", perToken, joules/float64(tokens))
			assert.NotContains(t, page, "gpu_operation_duration_seconds", "a request's time is not the GPU's")
			assert.InEpsilon(t, 0.45+0.3+0.15, sample(page, "gpu_request_queue_duration_seconds_sum"), 1e-6, "as vLLM states it")
		})
	}
}

// pagePerItem returns the energy per item that the page's headline shows.
func pagePerItem(t *testing.T, address string) float64 {
	res, err := http.Get("http://" + address + "/api/state")
	if !assert.NoError(t, err) {
		return 0
	}
	defer res.Body.Close()
	var state struct {
		Bins []struct{ Metered, Items float64 }
	}
	assert.NoError(t, json.NewDecoder(res.Body).Decode(&state))
	metered, items := 0., 0.
	for _, b := range state.Bins {
		metered += b.Metered
		items += b.Items
	}
	return metered / max(items, 1)
}

// Joules per token divide the energy and the tokens of the same requests: a request may have only
// one of the two.
func TestNothingDividesEnergyByTokensOfOtherRequests(t *testing.T) {
	wrong := regexp.MustCompile(`gpu_request_energy_joules_sum.*/.*gpu_request_items_`)
	found := 0
	for _, pattern := range []string{"../docs/*.md", "../config/*/*", "../connector/*/README.md", "../deploy/*/*"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // a directory
			}
			assert.NotRegexp(t, wrong, string(text), file)
			found += strings.Count(string(text), "gpu_request_item_energy_joules_sum")
		}
	}
	assert.Positive(t, found)
}

// vllm returns the spans that engine v1 of vLLM exports for the requests of a server
// (vllm/v1/engine/output_processor.py, do_tracing).
func vllm(zero time.Time, devices string, server int, of func(i int) bool) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "vllm-server")
	rs.Resource().Attributes().PutInt("process.pid", int64(1000+server))
	if devices != "" {
		rs.Resource().Attributes().PutStr("hw.id", devices)
	}
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("vllm.llm_engine")
	ms := func(n int) pcommon.Timestamp {
		return pcommon.NewTimestampFromTime(zero.Add(time.Duration(n) * time.Millisecond))
	}
	for i, r := range load {
		if !of(i) {
			continue
		}
		s := ss.Spans().AppendEmpty()
		s.SetName("llm_request")
		s.SetKind(ptrace.SpanKindServer)
		s.SetTraceID(pcommon.TraceID{1, byte(i + 1)})
		s.SetSpanID(pcommon.SpanID{7: byte(i + 1)})
		s.SetStartTimestamp(ms(r.arrives))
		s.SetEndTimestamp(ms(r.ends))
		a := s.Attributes()
		a.PutDouble("gen_ai.latency.e2e", float64(r.ends-r.arrives)/1e3)
		a.PutDouble("gen_ai.latency.time_in_queue", float64(r.begins-r.arrives)/1e3)
		a.PutDouble("gen_ai.latency.time_to_first_token", float64(r.begins-r.arrives+50)/1e3)
		a.PutDouble("gen_ai.latency.time_in_model_inference", float64(r.ends-r.begins)/1e3)
		a.PutInt("gen_ai.usage.prompt_tokens", 100)
		a.PutInt("gen_ai.usage.completion_tokens", r.tokens)
	}
	return td
}

// recordDevices writes a recording of devices with constant power.
func recordDevices(t *testing.T, path string, watts []float64) (ids []string) {
	t.Helper()
	var devices, lines []object
	for i := range watts {
		id := fmt.Sprintf("GPU-51a0c0de-0000-4000-8000-%012d", i)
		ids = append(ids, id)
		devices = append(devices, object{
			"id": id, "model": "NVIDIA H100 80GB HBM3", "name": fmt.Sprintf("gpu%d", i), "vendor": "NVIDIA",
			"driver":  "580.65.06",
			"ordinal": i, "pci": fmt.Sprintf("0000:%02x:00.0", 0x3b+i),
		})
	}
	for at := time.Duration(0); at <= 2*time.Minute; at += sampling {
		for i, w := range watts {
			lines = append(lines, object{
				"d": i, "t": recorded + int64(at),
				"v": object{"energy": 1e6 + w*at.Seconds(), "power": w, "utilization": 1},
			})
		}
	}
	recordAll(t, path, devices, lines)
	return ids
}

// writtenSpans returns the spans that a file exporter has written so far.
func writtenSpans(t *testing.T, path string) (all []ptrace.Span) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(lines.Bytes())
		if err != nil {
			return all // the last line is incomplete
		}
		require.NoError(t, conformance.Traces(td))
		each(td, func(s ptrace.Span) { all = append(all, s) })
	}
	return all
}

func metricsPage(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

// sample returns the sum of a metric's samples on a page.
func sample(page, name string) (sum float64) {
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (\S+)`).FindAllStringSubmatch(page, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err == nil {
			sum += v
		}
	}
	return sum
}
