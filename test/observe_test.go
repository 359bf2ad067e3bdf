// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"context"
	encoding "encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// observed overrides the all-in-one pipeline: it also pushes to Prometheus, its device is a
// recording, and intervals are shorter.
const observed = `
extensions:
  gpu_samples: {servers: [{endpoint: %[3]q, service: metered, devices: [%[4]q]}]}
receivers:
  gpu: {source: replay, collection_interval: 1s, replay: {file: %[1]q}}
processors:
  gpu_join: {settle: 2s, max_wait: 4s}
connectors:
  gpu_metrics: {flush_interval: 1s}
  gpu_requests: {settle: 1s, idle: 2s, flush_interval: 1s}
  gpu_goodput: {samples: gpu_samples, flush_interval: 1s}
exporters:
  otlp_http/prometheus: {endpoint: "http://%[2]s/api/v1/otlp", sending_queue: {num_consumers: 1, batch: {}}}
service:
  pipelines:
    traces: {exporters: [gpu_metrics, gpu_requests, gpu_goodput]}
    traces/found: {exporters: [debug]}
    metrics: {receivers: [otlp, gpu, gpu_metrics, gpu_requests, gpu_goodput], exporters: [prometheus, otlp_http/prometheus]}
`

// broken adds to observed a source of samples that does not open, and an exporter without a server.
const broken = `
receivers:
  gpu/broken: {source: nvml, collection_interval: 1s, nvml: {library: /nonexistent/libnvidia-ml.so}}
exporters:
  otlp_grpc/dead:
    endpoint: 127.0.0.1:1
    tls: {insecure: true}
    sending_queue: {queue_size: 2}
    retry_on_failure: {max_elapsed_time: 0s}
service:
  pipelines:
    metrics/dead: {receivers: [gpu, gpu/broken], exporters: [otlp_grpc/dead]}
`

// shared adds to observed a simulated device that several processes use, which recordings lack.
const shared = `
receivers:
  gpu/shared: {source: simulated, collection_interval: 1s}
service:
  pipelines:
    metrics: {receivers: [otlp, gpu, gpu/shared, gpu_metrics, gpu_requests, gpu_goodput]}
`

const (
	firstGPU  = "GPU-00000000-0000-4000-8000-0000000000a1"
	secondGPU = "GPU-00000000-0000-4000-8000-0000000000a2"
)

// recordMachine writes eight minutes of two devices with 300 W each. With faults, the first is hot
// and throttled, and counts XIDs and uncorrected memory errors; the second is mostly idle.
func recordMachine(t *testing.T, path string, faulty bool) {
	t.Helper()
	var lines []object
	for at := time.Duration(0); at <= 8*time.Minute; at += sampling {
		for d := range 2 {
			v := object{
				"energy": 1e6 + 300*at.Seconds(), "power": 300., "temperature": 60., "utilization": 0.9, "sm_utilization": 0.8,
				"tensor_utilization": 0.4, "dram_utilization": 0.5, "sm_occupancy": 0.3, "clock_sm": 1.98e9, "clock_memory": 2.6e9,
				"memory_used": 40e9, "memory_limit": 80e9, "throttle": 4, "xids": 0, "ecc_uncorrected": 0,
				"pcie_transmit": 1e6 * at.Seconds(), "pcie_receive": 1e6 * at.Seconds(),
				"nvlink_transmit": 1e9 * at.Seconds(), "nvlink_receive": 1e9 * at.Seconds(),
			}
			if faulty && d == 0 {
				v["throttle"], v["xids"], v["ecc_uncorrected"] = 0x40, float64(at/(2*time.Second)), float64(at/(5*time.Second))
				v["temperature"] = 92.
			}
			if faulty && d == 1 {
				v["utilization"] = 0.3
			}
			fill(v, -1)
			lines = append(lines, object{"d": d, "t": recorded + int64(at), "v": v})
		}
	}
	recordAll(t, path, []object{
		{
			"id": firstGPU, "name": "gpu0", "model": h100, "vendor": "NVIDIA", "driver": "580.65.06", "ordinal": 0,
			"pci": "0000:3b:00.0",
		},
		{
			"id": secondGPU, "name": "gpu1", "model": h100, "vendor": "NVIDIA", "driver": "580.65.06", "ordinal": 1,
			"pci": "0000:5b:00.0",
		},
	}, lines)
}

// machine is the setup of tests of dashboards and alerts: one Collector, whose metrics are scraped
// by one Prometheus and pushed to another.
type machine struct {
	scraped, pushed *prometheusProgram
	otlp            *grpc.ClientConn
}

func (m machine) stores() map[string]*prometheusProgram {
	return map[string]*prometheusProgram{"scraped": m.scraped, "pushed": m.pushed}
}

// startMachine starts a machine with working services until the test ends.
func startMachine(t *testing.T, binary string, faulty bool) machine {
	t.Helper()
	file := filepath.Join(t.TempDir(), "machine.gpurec")
	recordMachine(t, file, faulty)
	path := buildPrometheus(t)
	server := filepath.Join("..", "deploy", "prometheus", "prometheus.yml")
	m := machine{scraped: runPrometheus(t, path, server), pushed: runPrometheus(t, path, server)}
	for _, store := range m.stores() {
		yesterday(t, store, faulty)
		cost := 1.0
		if faulty {
			cost = 1.3
		}
		twoVersions(t, store, time.Now(), cost, 1)
	}
	p := newPorts(t)
	ready, err := config.YAML(config.AllInOne)
	require.NoError(t, err)
	configs := []string{ready, fmt.Sprintf(observed, file, m.pushed.address, meteredServer(t), firstGPU)}
	if faulty {
		configs = append(configs, broken, shared)
	}
	startCollector(t, binary, p.env, configs...)
	m.otlp, err = grpc.NewClient(p.otlp, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	telemetry := ""
	for _, v := range p.env {
		if port, ok := strings.CutPrefix(v, "OTELGPU_TELEMETRY_PORT="); ok {
			telemetry = "127.0.0.1:" + port
		}
	}
	m.scraped.scrape("otelgpu", p.metrics)
	m.scraped.scrape("otelgpu-self", telemetry)
	m.pushed.scrape("otelgpu-self", telemetry)

	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			td := servicesAtWork(n, time.Now().Truncate(time.Millisecond), faulty)
			if _, err := ptraceotlp.NewGRPCClient(m.otlp).Export(ctx, ptraceotlp.NewExportRequestFromTraces(td)); err != nil &&
				ctx.Err() == nil {
				assert.NoError(t, err)
			}
			_, _ = pmetricotlp.NewGRPCClient(m.otlp).Export(ctx, pmetricotlp.NewExportRequestFromMetrics(saidByOthers(n,
				faulty)))
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait(); assert.NoError(t, m.otlp.Close()) })
	return m
}

// meteredServer returns the address of the metrics of a vLLM that generates 100 tokens a second.
func meteredServer(t *testing.T) string {
	start := time.Now()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		seconds := time.Since(start).Seconds()
		fmt.Fprintf(w, "vllm:num_requests_running{model_name=\"m\"} 3\nvllm:num_requests_waiting{model_name=\"m\"} 1\n"+
			"vllm:kv_cache_usage_perc{model_name=\"m\"} 0.5\nvllm:num_preemptions_total{model_name=\"m\"} %.0f\n"+
			"vllm:generation_tokens_total{model_name=\"m\"} %.0f\n"+
			"vllm:request_prefill_time_seconds_sum{model_name=\"m\"} %.2f\n"+
			"vllm:request_decode_time_seconds_sum{model_name=\"m\"} %.2f\n",
			seconds, 100*seconds, 0.5*seconds, 2*seconds)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/metrics"
}

// servicesAtWork returns the spans of the last 100 ms: a training job of four ranks, one of which
// starves its device in the faulty case, an inference server, and a profiled process.
func servicesAtWork(n int, now time.Time, faulty bool) ptrace.Traces {
	td := ptrace.NewTraces()
	x := timeline{now.Add(-100 * time.Millisecond)}
	add := func(service string, pid int, device string, resource map[string]any) func(name string, id, parent byte, start,
		end float64, attrs map[string]any) ptrace.Span {
		rs := td.ResourceSpans().AppendEmpty()
		if err := rs.Resource().Attributes().FromRaw(resource); err != nil {
			panic(err)
		}
		rs.Resource().Attributes().PutStr("service.name", service)
		rs.Resource().Attributes().PutStr("service.instance.id", fmt.Sprint(service, "-", pid))
		rs.Resource().Attributes().PutInt("process.pid", int64(pid))
		rs.Resource().Attributes().PutStr("host.name", "node1")
		ss := rs.ScopeSpans().AppendEmpty()
		ss.Scope().Attributes().PutStr("hw.id", device)
		return func(name string, id, parent byte, start, end float64, attrs map[string]any) ptrace.Span {
			s := ss.Spans().AppendEmpty()
			s.SetName(name)
			var trace pcommon.TraceID
			copy(trace[:], service)
			trace[8] = byte(pid)
			encoding.BigEndian.PutUint32(trace[12:], uint32(n+1))
			s.SetTraceID(trace)
			s.SetSpanID(pcommon.SpanID{id, byte(pid), byte(n >> 16), byte(n >> 8), byte(n), 1})
			if parent > 0 {
				s.SetParentSpanID(pcommon.SpanID{parent, byte(pid), byte(n >> 16), byte(n >> 8), byte(n), 1})
			}
			s.SetStartTimestamp(x.at(start))
			s.SetEndTimestamp(x.at(end))
			if err := s.Attributes().FromRaw(attrs); err != nil {
				panic(err)
			}
			if attrs["gpu.operation.type"] != nil {
				s.Attributes().PutStr("hw.id", device)
				s.Attributes().PutDouble("gpu.start.delay", 1e-5)
				if attrs["gpu.operation.type"] != "step" {
					s.Attributes().PutDouble("gpu.duration", end-start)
				}
				if attrs["gpu.timing.source"] == nil {
					s.Attributes().PutStr("gpu.timing.source", "cuda_event")
				}
			}
			return s
		}
	}
	section := func(category string, more ...any) map[string]any {
		m := map[string]any{"gpu.operation.type": "section", "gpu.operation.category": category}
		for i := 0; i+1 < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return m
	}
	for rank := range 4 {
		span := add("trainer", rank, firstGPU, map[string]any{
			"gpu.job.id": "slurm-1", "gpu.job.rank": rank,
			"gpu.job.world_size": 4,
		})
		end := 0.05
		if faulty && rank == 2 {
			end = 0.07
		}
		span("forward", 2, 1, 0, 0.02, section("forward"))
		span("backward", 3, 1, 0.02, end, section("backward"))
		span("all_reduce", 5, 1, end, 0.1, section("comm"))
		span("train", 1, 0, 0, 0.1, map[string]any{
			"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": n, "gpu.step.duration": 0.1,
			"gpu.operation.items": 4096, "gpu.operation.item.type": "token",
			"gpu.step.phase.duration.forward": 0.02, "gpu.step.phase.duration.backward": end - 0.02,
			"gpu.step.phase.duration.comm": 0.1 - end,
			"gpu.step.overlap.duration":    0.0, "gpu.step.other.duration": 0.0,
		})
	}
	busy := 0.1
	if faulty {
		busy = 0.04
	}
	job := map[string]any{}
	if faulty {
		job = map[string]any{"gpu.job.id": "slurm-2", "gpu.job.rank": 0, "gpu.job.world_size": 1}
	}
	span := add("loader", 20, secondGPU, job)
	if faulty { // saves in half of the time
		span("checkpoint", 6, 0, 0.05, 0.1, nil)
	}
	span("forward", 2, 1, 0, busy/2, section("forward", "gpu.operation.flops", int64(1e12), "gpu.flop.precision", "bf16"))
	span("backward", 3, 1, busy/2, busy, section("backward", "gpu.operation.io", int64(1e9)))
	span("train", 1, 0, 0, 0.1, map[string]any{
		"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": n, "gpu.step.duration": 0.1,
		"gpu.operation.items":     512,
		"gpu.operation.item.type": "image",
	})

	span = add("server", 30, secondGPU, nil)
	request := span("POST /v1/completions", 1, 0, 0, 0.1, map[string]any{"gen_ai.request.model": "llama-3"})
	request.SetKind(ptrace.SpanKindServer)
	span("prefill", 2, 1, 0.02, 0.04, section("prefill", "gpu.operation.items", 100, "gpu.operation.item.type", "token"))
	span("decode", 3, 1, 0.04, 0.1, section("decode", "gpu.operation.items", 20, "gpu.operation.item.type", "token"))

	span = add("profiled", 40, firstGPU, nil)
	span("gemm", 2, 0, 0, 0.05, map[string]any{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti"})
	span("ncclDevKernel_AllReduce", 3, 0, 0.04, 0.1, map[string]any{
		"gpu.operation.type": "collective",
		"gpu.timing.source":  "cupti",
	})
	if faulty {
		late := span("gemm", 4, 0, 0, 0.001, map[string]any{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti"})
		late.SetStartTimestamp(x.at(-60))
		late.SetEndTimestamp(x.at(-59))
	}
	if faulty {
		span = add("stranger", 50, "GPU-ffffffff-0000-4000-8000-000000000000", nil)
		span("unknown device", 2, 0, 0, 0.05, section("forward"))
		span("unknown device", 3, 0, 0.05, 0.1, section("forward"))
	}
	return td
}

// saidByOthers returns the library's internal metrics, and another receiver's metrics of a third
// device.
func saidByOthers(n int, faulty bool) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "server")
	rm.Resource().Attributes().PutStr("service.instance.id", "server-30")
	sum := func(name, unit string, monotonic bool) pmetric.NumberDataPointSlice {
		m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		m.SetName(name)
		m.SetUnit(unit)
		m.SetEmptySum().SetIsMonotonic(monotonic)
		m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		return m.Sum().DataPoints()
	}
	point := func(points pmetric.NumberDataPointSlice, value int, attributes map[string]any) {
		p := points.AppendEmpty()
		p.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
		p.SetIntValue(int64(value))
		if err := p.Attributes().FromRaw(attributes); err != nil {
			panic(err)
		}
	}
	bad := 0
	if faulty {
		bad = 1
	}
	sections := sum("gpuspan.sections", "{section}", true)
	for status, value := range map[string]int{"ok": n, "captured": n, "dropped": n * bad} {
		point(sections, value, map[string]any{"gpu.timing.status": status})
	}
	hangs := sum("gpu.job.hangs", "{hang}", true)
	point(hangs, n*bad, map[string]any{"gpu.hang.cause": "missing", "gpu.job.rank": 3, "gpu.collective.group.name": "TP_GROUP_1"})
	for name, unit := range map[string]string{
		"gpu.collective.bus.io": "By", "gpu.collective.time": "s", "gpu.collective.lateness": "s",
	} {
		point(sum(name, unit, true), n, map[string]any{
			"gpu.collective.name": "all_reduce", "gpu.collective.group.id": "0x1", "gpu.collective.group.name": "TP_GROUP_1",
			"gpu.collective.group.rank": 0, "gpu.collective.group.size": 2, "gpu.job.rank": 2,
		})
	}
	status := sum("hw.status", "1", false)
	for state, value := range map[string]int{"ok": 1 - bad, "failed": bad, "degraded": 0, "predicted_failure": 0} {
		point(status, value, map[string]any{
			"hw.state": state, "hw.id": "GPU-00000000-0000-4000-8000-0000000000a3",
			"hw.name": "gpu2", "hw.model": h100,
		})
	}
	return md
}

// yesterday writes the cost of the server's tokens one day before to the store: today 18 J for 120
// tokens.
func yesterday(t *testing.T, store *prometheusProgram, faulty bool) {
	joules := 18.0
	if faulty {
		joules = 4
	}
	day := time.Now().Add(-24 * time.Hour)
	for i := range 10 {
		md := pmetric.NewMetrics()
		rm := md.ResourceMetrics().AppendEmpty()
		rm.Resource().Attributes().PutStr("service.name", "server")
		rm.Resource().Attributes().PutStr("service.instance.id", "server-29")
		ms := rm.ScopeMetrics().AppendEmpty().Metrics()
		m := ms.AppendEmpty()
		m.SetName("gpu.request.item.energy")
		m.SetUnit("J/{item}")
		m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		p := m.Histogram().DataPoints().AppendEmpty()
		p.Attributes().PutStr("gpu.operation.item.type", "token")
		p.SetTimestamp(pcommon.NewTimestampFromTime(day.Add(time.Duration(i-10) * time.Minute)))
		p.SetCount(uint64(120 * i)) // items
		p.SetSum(float64(i) * joules)
		p.BucketCounts().FromRaw([]uint64{uint64(120 * i)})
		store.push(t, md)
	}
	// The rule is evaluated every minute; any value within an hour represents it.
	for at := day; at.Before(day.Add(4 * time.Minute)); at = at.Add(time.Minute) {
		store.rules(t, "work.yaml", at)
	}
}

func (p *prometheusProgram) push(t *testing.T, md pmetric.Metrics) {
	t.Helper()
	b, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	require.NoError(t, err)
	r, err := http.Post("http://"+p.address+"/api/v1/otlp/v1/metrics", "application/x-protobuf", bytes.NewReader(b))
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusOK, r.StatusCode)
}

type ruleAnswer struct {
	Rule, Kind, Expr, Error string
	Results                 int
	Alerts                  []struct {
		Labels, Annotations map[string]string
		Value               float64
	}
}

func (p *prometheusProgram) rules(t *testing.T, name string, at time.Time) (out []ruleAnswer) {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("..", "config", "alerts", name))
	require.NoError(t, err)
	p.get("/rules?file="+url.QueryEscape(file)+"&time="+unixSeconds(at), &out)
	for _, r := range out {
		require.Empty(t, r.Error, "%s: %s", r.Rule, r.Expr)
	}
	return out
}

func unixSeconds(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)
}

func (p *prometheusProgram) scrape(job, target string) {
	p.t.Helper()
	r, err := http.Post("http://"+p.address+"/scrape?job="+job+"&target="+target, "", nil)
	require.NoError(p.t, err)
	require.NoError(p.t, r.Body.Close())
	require.Equal(p.t, http.StatusOK, r.StatusCode)
}

// runDemo returns the metrics of the README's first command: OTLP requests, oldest first.
func runDemo(t *testing.T, binary string) (requests []pmetric.Metrics) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	p, err := program.Start(t.Context(), binary, []string{"demo", "--duration", "8s", "--files", "--out", out}, nil)
	require.NoError(t, err)
	require.NoError(t, p.Wait(2*time.Minute))
	for line := range lines(t, filepath.Join(out, "metrics.json")) {
		md, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(line)
		require.NoError(t, err)
		requests = append(requests, md)
	}
	require.Greater(t, len(requests), 5)
	return requests
}

// alertFiles returns the names of the rule files.
func alertFiles(t *testing.T) (names []string) {
	t.Helper()
	all, err := os.ReadDir(filepath.Join("..", "config", "alerts"))
	require.NoError(t, err)
	for _, f := range all {
		names = append(names, f.Name())
	}
	require.True(t, slices.Contains(names, "work.yaml"))
	return names
}
