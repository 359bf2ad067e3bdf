// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/internal/freeport"
	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// outage returns how long a store is down: a fifteenth of 3 minutes, with all intervals of the
// pipelines shortened accordingly. The environment variable OTELGPU_OUTAGE sets another length,
// such as 3m, with the shipped intervals.
func outage(t *testing.T) (length time.Duration, full bool) {
	text, full := os.LookupEnv("OTELGPU_OUTAGE")
	if !full {
		return 12 * time.Second, false
	}
	length, err := time.ParseDuration(text)
	require.NoError(t, err, "OTELGPU_OUTAGE")
	return length, true
}

// device overrides a ready pipeline to add a device whose energy the test knows.
const device = `
exporters:
  gpu_samples: {}
processors:
  gpu_join: {queue: {size: 20000}}
service:
  pipelines:
    metrics/devices: {receivers: [otlp], exporters: [gpu_samples]}
`

// faster overrides the intervals of a ready pipeline.
const faster = `
processors:
  gpu_join:
    settle: 400ms
    max_wait: 700ms
    retry_on_failure: {initial_interval: 100ms, max_interval: 2s}
connectors:
  gpu_metrics: {flush_interval: 500ms}
`

// retrySoon complements it; %s is an exporter.
const retrySoon = `
exporters:
  %s: {retry_on_failure: {initial_interval: 100ms, max_interval: 500ms}}
`

// smallQueue overrides the queue to the trace store, %s, so that it becomes full during an outage.
const smallQueue = `
exporters:
  %s:
    sending_queue: {queue_size: 20}
`

// store is a trace store.
type store struct {
	ptraceotlp.UnimplementedGRPCServer
	address string
	refuse  func() bool

	mu    sync.Mutex
	spans map[pcommon.SpanID]ptrace.Span
	again int // spans that arrived more than once

	instances []string // service.instance.id of each resource, as often as it arrived
}

func newStore(t *testing.T) *store {
	address, err := freeport.Address()
	require.NoError(t, err)
	return &store{address: address, refuse: func() bool { return false }, spans: map[pcommon.SpanID]ptrace.Span{}}
}

// open starts listening.
func (s *store) open(t *testing.T) {
	l, err := net.Listen("tcp", s.address)
	if !assert.NoError(t, err) {
		return
	}
	server := grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(server, s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
}

func (s *store) Export(_ context.Context, r ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse() {
		return ptraceotlp.NewExportResponse(), status.Error(codes.Unavailable, "not now")
	}
	td := ptrace.NewTraces()
	r.Traces().CopyTo(td)
	for _, rs := range td.ResourceSpans().All() {
		if instance, ok := rs.Resource().Attributes().Get("service.instance.id"); ok {
			s.instances = append(s.instances, instance.AsString())
		}
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				if _, twice := s.spans[span.SpanID()]; twice {
					s.again++
				}
				s.spans[span.SpanID()] = span
			}
		}
	}
	return ptraceotlp.NewExportResponse(), nil
}

func (s *store) count() (spans, again int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spans), s.again
}

// energy returns the total self energy of the spans, without shares of requests, which repeat it.
func (s *store) energy() (joules float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.spans {
		if isShare(span) {
			continue
		}
		v, ok := span.Attributes().Get("gpu.self_energy")
		if !ok {
			v, ok = span.Attributes().Get("gpu.energy")
		}
		if ok {
			joules += v.Double()
		}
	}
	return joules
}

// shares returns the number of shares of requests and their energy.
func (s *store) shares() (n int, joules float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.spans {
		if v, ok := span.Attributes().Get("gpu.energy"); ok && isShare(span) {
			n++
			joules += v.Double()
		}
	}
	return n, joules
}

func isShare(s ptrace.Span) bool {
	v, ok := s.Attributes().Get("gpu.operation.type")
	return ok && v.Str() == "share"
}

// ports are the ports of a Collector, and the environment variables of the ready pipelines for
// them.
type ports struct {
	otlp, http, metrics, telemetry string
	env                            []string
}

func newPorts(t *testing.T) ports {
	p := ports{otlp: freeAddress(t), http: freeAddress(t), metrics: freeAddress(t), telemetry: freeAddress(t)}
	_, telemetry, err := net.SplitHostPort(p.telemetry)
	require.NoError(t, err)
	p.env = []string{
		"OTELGPU_OTLP_GRPC=" + p.otlp, "OTELGPU_OTLP_HTTP=" + p.http, "OTELGPU_METRICS=" + p.metrics,
		"OTELGPU_HEALTH=" + freeAddress(t), "OTELGPU_PAGE=127.0.0.1:0",
		"OTELGPU_TELEMETRY_PORT=" + telemetry, "OTELGPU_SOURCE=simulated",
	}
	return p
}

// worker is a service that keeps a device busy without gaps, in spans of spanTime, and the exporter
// of the device, which consumes workWatts.
type worker struct {
	t        *testing.T
	zero     time.Time
	conn     *grpc.ClientConn
	accepted int // spans
	gpu      int // spans on the device
	refused  int // rejected attempts
	next     uint64
	sampled  atomic.Int64        // number of sent points of the device
	served   bool                // its spans are an inference server's requests, one after the other
	others   int                 // services with the same work on the device, at the same time and in the same traces
	front    *worker             // sends the request spans of this worker's batches; nil: no requests
	mix      func(ptrace.Traces) // adds other spans to a request, which are not counted; nil: none
}

// servedShare is the request's share of a batch; the rest is unassigned.
const servedShare = 0.75

const (
	workWatts = 300.0
	spanTime  = 50 * time.Millisecond
	period    = 2 * spanTime // of the device's points, which come ten at a time
	points    = 10
	// The device is measured for this long before the first span, so that the energy of no span is
	// withheld.
	leadIn = 2 * time.Second

	tokensEach = 7
	workedGPU  = "GPU-77777777-0000-4000-8000-000000000000"
)

func newWorker(t *testing.T, address string) *worker {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	w := &worker{t: t, zero: time.Now().Truncate(time.Millisecond), conn: conn}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			at := w.zero.Add(time.Duration(n) * period)
			time.Sleep(time.Until(at))
			request := pmetricotlp.NewExportRequestFromMetrics(w.samples(at))
			for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				if _, err := pmetricotlp.NewGRPCClient(conn).Export(ctx, request); err == nil {
					w.sampled.Add(1)
					break
				}
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return w
}

func (w *worker) samples(at time.Time) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("hw.energy")
	m.SetUnit("J")
	m.SetEmptySum().SetIsMonotonic(true)
	m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	for i := range points {
		at := at.Add(time.Duration(i-points+1) * period / points)
		p := m.Sum().DataPoints().AppendEmpty()
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(w.zero.Add(-time.Hour)))
		p.SetTimestamp(pcommon.NewTimestampFromTime(at))
		p.SetDoubleValue(workWatts * at.Sub(w.zero.Add(-time.Minute)).Seconds())
		p.Attributes().PutStr("hw.id", workedGPU)
	}
	return md
}

// work sends the work of the given time in real time: requests of two device spans and one web
// server span. Rejected requests are sent again until they are accepted, and each fifth request is
// repeated after it was accepted.
func (w *worker) work(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "worker")
		rs.Resource().Attributes().PutInt("process.pid", 1)
		ss := rs.ScopeSpans().AppendEmpty()
		if w.served {
			ss.Scope().SetName("vllm.llm_engine")
		}
		spans := ss.Spans()
		begin := w.zero.Add(leadIn + time.Duration(w.gpu)*spanTime)
		for i := range 3 {
			w.next++
			s := spans.AppendEmpty()
			var id pcommon.SpanID
			binary.BigEndian.PutUint64(id[:], w.next)
			s.SetSpanID(id)
			s.SetTraceID(pcommon.TraceID{1, 2, 3, byte(w.next >> 8), byte(w.next)})
			s.SetName("POST /v1/completions")
			from, to := begin, begin.Add(2*spanTime)
			if i < 2 {
				from, to = begin.Add(time.Duration(i)*spanTime), begin.Add(time.Duration(i+1)*spanTime)
				s.Attributes().PutStr("hw.id", workedGPU)
				if w.served { // as engine v1 of vLLM sends them
					s.SetName("llm_request")
					s.SetKind(ptrace.SpanKindServer)
					s.Attributes().PutDouble("gen_ai.latency.e2e", spanTime.Seconds())
					s.Attributes().PutInt("gen_ai.usage.prompt_tokens", 100)
					s.Attributes().PutInt("gen_ai.usage.completion_tokens", tokensEach)
				} else {
					s.SetName("decode")
					s.Attributes().PutStr("gpu.operation.type", "section")
					s.Attributes().PutStr("gpu.timing.source", "cuda_event")
					s.Attributes().PutDouble("gpu.duration", spanTime.Seconds())
				}
				if w.front != nil {
					w.serve(s, begin)
				}
			}
			s.SetStartTimestamp(pcommon.NewTimestampFromTime(from))
			s.SetEndTimestamp(pcommon.NewTimestampFromTime(to))
		}
		for i := range w.others {
			other := td.ResourceSpans().AppendEmpty()
			td.ResourceSpans().At(0).CopyTo(other)
			other.Resource().Attributes().PutStr("service.name", fmt.Sprintf("other %d", i))
			for _, s := range other.ScopeSpans().At(0).Spans().All() {
				id := s.SpanID()
				id[0] = byte(1 + i)
				s.SetSpanID(id)
			}
		}
		// Spans whose energy samples arrive later than max_wait have no energy.
		for points := int64(begin.Add(2*spanTime).Sub(w.zero)/period) + 1; w.sampled.Load() < points; {
			time.Sleep(time.Millisecond)
		}
		mixed := td
		if w.mix != nil {
			mixed = ptrace.NewTraces()
			td.CopyTo(mixed)
			w.mix(mixed)
		}
		for w.send(mixed) != nil {
			w.refused++
			time.Sleep(100 * time.Millisecond)
		}
		w.accepted += td.SpanCount()
		if w.gpu += 2; w.gpu%10 == 0 {
			_ = w.send(td) // the response was lost
		}
	}
}

// serve turns a span into a batch of one request, whose own span another service sends to another
// Collector.
func (w *worker) serve(batch ptrace.Span, begin time.Time) {
	id := batch.SpanID()
	id[0] |= 0x80
	trace := pcommon.TraceID{7, 6, 5, id[3], id[4], id[5], id[6], id[7]}
	link := batch.Links().AppendEmpty()
	link.SetTraceID(trace)
	link.SetSpanID(id)
	link.Attributes().PutDouble("gpu.batch.share", servedShare)
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "front")
	s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetName("POST /generate")
	s.SetKind(ptrace.SpanKindServer)
	s.SetTraceID(trace)
	s.SetSpanID(id)
	s.SetStartTimestamp(pcommon.NewTimestampFromTime(begin))
	s.SetEndTimestamp(pcommon.NewTimestampFromTime(begin.Add(2 * spanTime)))
	for w.front.send(td) != nil {
		w.refused++
		time.Sleep(100 * time.Millisecond)
	}
	w.accepted++
}

func (w *worker) send(td ptrace.Traces) error {
	copied := ptrace.NewTraces()
	td.CopyTo(copied)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := ptraceotlp.NewGRPCClient(w.conn).Export(ctx, ptraceotlp.NewExportRequestFromTraces(copied))
	return err
}

// joules returns the energy of the device while the spans were active.
func (w *worker) joules() float64 { return workWatts * spanTime.Seconds() * float64(w.gpu) }

// scrape returns the sum of a metric's points, by its name in Prometheus.
func scrape(t *testing.T, address, name, label string) (sum float64) {
	r, err := http.Get("http://" + address + "/metrics")
	require.NoError(t, err)
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' || !strings.Contains(rest, label) {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		require.NoError(t, err)
		sum += v
	}
	return sum
}

// joinState returns what gpu_join reports about itself, for the message of a test that misses
// energy.
func joinState(t *testing.T, telemetry string) string {
	r, err := http.Get("http://" + telemetry + "/metrics")
	require.NoError(t, err)
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	var lines strings.Builder
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "otelcol_processor_gpu_join_") && !strings.Contains(line, "_bucket{") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// ownStore adds a trace store to a pipeline without one, with the queue of the ready pipelines; %s
// is its address.
const ownStore = `
exporters:
  otlp_grpc/store:
    endpoint: %s
    tls: {insecure: true}
    sending_queue: {block_on_overflow: true, batch: {sizer: bytes, min_size: 2000000, max_size: 4000000}}
    retry_on_failure: {max_elapsed_time: 0s}
service:
  pipelines:
    traces: {exporters: [gpu_metrics, gpu_requests, debug, otlp_grpc/store]}
`

// The ready pipelines, with only these overrides, and failing stores. In the end, the store has
// each accepted span once, and metrics and energy equal the totals of the spans and of the device.
func TestReadyPipelinesLoseAndRepeatNothingWhenTheStoreFails(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	t.Parallel()
	binary := buildCollector(t)
	length, full := outage(t)
	for _, tt := range []struct {
		pipeline, exporter, variable string
		dead                         bool // down for minutes; otherwise it rejects every second request
	}{
		{"jaeger", "otlp_grpc/jaeger", "OTELGPU_JAEGER_ENDPOINT=", true},
		{"tempo", "otlp_grpc/tempo", "OTELGPU_TEMPO_ENDPOINT=", false},
		{"all-in-one", "otlp_grpc/store", "", true},
		{"all-in-one", "otlp_grpc/store", "", false},
		{"llm", "otlp_grpc/store", "", true},
		{"llm", "otlp_grpc/store", "", false},
	} {
		name := tt.pipeline + " refused every second time"
		if tt.dead {
			name = tt.pipeline + " dead for minutes"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, p := newStore(t), newPorts(t)
			ready, err := config.YAML(tt.pipeline)
			require.NoError(t, err)
			overlays := []string{ready, device, fmt.Sprintf(smallQueue, tt.exporter)}
			if !full {
				overlays = append(overlays, faster, fmt.Sprintf(retrySoon, tt.exporter))
				if tt.pipeline == "llm" {
					overlays = append(overlays, "connectors: {gpu_requests: {settle: 1s, idle: 2s, flush_interval: 500ms}}")
				}
			}
			if tt.variable == "" {
				overlays = append(overlays, fmt.Sprintf(ownStore, store.address))
			}
			begin := store.fail(t, tt.dead, length)
			startCollector(t, binary, append(p.env, tt.variable+store.address), overlays...)
			w := newWorker(t, p.otlp)
			w.served = tt.pipeline == "llm"
			begin()
			w.work(length + 3*time.Second)
			w.check(t, store, tt.dead, p.metrics)
		})
	}
}

// fail makes the store reject every second request, or stops it for the given length.
func (s *store) fail(t *testing.T, dead bool, length time.Duration) (begin func()) {
	if !dead {
		n := 0
		s.refuse = func() bool { n++; return n%2 == 1 }
		s.open(t)
		return func() {}
	}
	return func() {
		alive := time.AfterFunc(length, func() { s.open(t) })
		t.Cleanup(func() { alive.Stop() })
	}
}

// check waits until all accepted spans are in the store, and compares them and the metrics with
// what the worker did.
func (w *worker) check(t *testing.T, store *store, full bool, metrics string) {
	if full {
		require.Positive(t, w.refused, "the queues are small enough to be full")
	}
	_, shipped := outage(t)
	patience, settled := 2*time.Minute, 2*time.Second
	if shipped { // llm waits for 75 s
		patience, settled = 5*time.Minute, time.Minute
	}
	require.Eventually(t, func() bool { n, _ := store.count(); return n >= w.accepted }, patience, 100*time.Millisecond)
	counted := "gpu_operation_energy_joules_total"
	if w.served {
		counted = "gpu_request_energy_joules_sum"
	}
	assert.Eventually(t, func() bool { // waits for the last flush
		return math.Abs(scrape(t, metrics, counted, "")/w.joules()-1) < 1e-9
	}, patience, 200*time.Millisecond)
	time.Sleep(settled) // so that duplicates arrive, too
	spans, again := store.count()
	t.Logf("%d spans accepted, %d requests refused; %d spans delivered, %d of them again", w.accepted, w.refused, spans,
		again)
	require.Equal(t, w.accepted, spans)
	require.Zero(t, again, "spans that came twice")
	require.InEpsilon(t, w.joules(), store.energy(), 1e-9)
	require.InEpsilon(t, w.joules(), scrape(t, metrics, counted, ""), 1e-9)
	if w.served {
		require.EqualValues(t, w.gpu, scrape(t, metrics, "gpu_request_energy_joules_count", ""))
		require.EqualValues(t, w.gpu*tokensEach, scrape(t, metrics, "gpu_request_items_sum", ""))
		require.Zero(t, scrape(t, metrics, "gpu_operation_count_total", ""), "a request is no work of the device")
		return
	}
	require.EqualValues(t, w.gpu, scrape(t, metrics, "gpu_operation_count_total", ""))
	require.EqualValues(t, w.gpu, scrape(t, metrics, "gpu_operation_duration_seconds_count", ""))
	require.InEpsilon(t, w.joules(), scrape(t, metrics, counted, workedGPU), 1e-9)
	requireExemplars(t, metrics)
}

// requireExemplars scrapes as Prometheus does when it stores exemplars: points of durations name
// spans.
func requireExemplars(t *testing.T, address string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	require.NoError(t, err)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Regexp(t, `gpu_operation_duration_seconds_bucket\{.*\} \S+ .*# \{.*trace_id="[0-9a-f]{32}"`, string(page))
}

// An agent and a gateway as deployed, on separate addresses. The default build lacks discovery of
// pods and gateways, so exporters to gateways become plain ones with the same queues; with a full
// build (OTELGPU_FULL_BINARY), only pods are missing. The gateway keeps all traces, and exposes its
// metrics to the test.
func TestIntegrationAgentsAndGatewaysLoseAndRepeatNothing(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("both listen on the same ports, on different addresses of the loopback interface, of which others have one")
	}
	binary, full := os.Getenv("OTELGPU_FULL_BINARY"), true
	if binary == "" {
		binary, full = buildCollector(t, "-tags", "ottl"), false
	}
	length, shipped := outage(t)
	for i, dead := range []bool{true, false} {
		t.Run(map[bool]string{true: "dead for minutes", false: "refuses every second request"}[dead], func(t *testing.T) {
			store, metrics := newStore(t), newPorts(t).metrics
			host := fmt.Sprintf("127.%d.%d.", 1+os.Getpid()/200%250, 1+os.Getpid()%200)
			agent, gateway := host+strconv.Itoa(10+2*i), host+strconv.Itoa(11+2*i)
			plain := func(at func(path ...string) map[string]any) {
				if full {
					return
				}
				exporters := at("exporters")
				for id := range exporters {
					name, ok := strings.CutPrefix(id, "load_balancing/")
					if !ok {
						continue
					}
					e := at("exporters", id)
					dns := at("exporters", id, "resolver", "dns")
					plain := map[string]any{"endpoint": gateway + ":" + dns["port"].(string), "tls": map[string]any{"insecure": true}}
					for _, key := range []string{"sending_queue", "retry_on_failure"} {
						plain[key] = e[key]
					}
					delete(exporters, id)
					exporters["otlp_grpc/balanced_"+name] = plain
				}
				for name := range at("service", "pipelines") {
					to := at("service", "pipelines", name)["exporters"].([]any)
					for i := range to {
						if name, ok := strings.CutPrefix(to[i].(string), "load_balancing/"); ok {
							to[i] = "otlp_grpc/balanced_" + name
						}
					}
				}
			}
			back := edited(t, "kubernetes/gateway", func(at func(path ...string) map[string]any) {
				plain(at)
				tail := at("processors", "tail_sampling")
				tail["policies"] = []any{map[string]any{"name": "all", "type": "always_sample"}}
				if !shipped {
					tail["decision_wait"] = "2s"
					at("exporters", "otlp_grpc/traces", "retry_on_failure")["initial_interval"] = "100ms"
					at("connectors", "gpu_metrics/operations")["flush_interval"] = "500ms"
				}
				at("exporters")["prometheus"] = map[string]any{"endpoint": metrics, "enable_open_metrics": true}
				delete(at("exporters"), "otlp_http/metrics")
				at("service", "pipelines", "metrics")["exporters"] = []any{"prometheus"}
			})
			front := edited(t, "kubernetes/agent", func(at func(path ...string) map[string]any) {
				plain(at)
				delete(at("processors"), "k8s_attributes")
				for name, p := range at("service", "pipelines") {
					p := p.(map[string]any)
					if of, ok := p["processors"].([]any); ok {
						p["processors"] = slices.DeleteFunc(of, func(id any) bool { return id == "k8s_attributes" })
						require.NotEmpty(t, p["processors"], name)
					}
				}
				join := at("processors", "gpu_join")
				if !shipped {
					join["settle"], join["max_wait"] = "400ms", "700ms"
					join["retry_on_failure"] = map[string]any{"initial_interval": "100ms", "max_interval": "2s"}
				}
				at("exporters")["gpu_samples"] = map[string]any{}
				at("service", "pipelines")["metrics/devices"] = map[string]any{
					"receivers": []any{"otlp"},
					"exporters": []any{"gpu_samples"},
				}
				join["queue"] = map[string]any{"size": 20000}
				for id, e := range at("exporters") {
					if strings.Contains(id, "balanc") { // the other exporters have defaults
						e := e.(map[string]any)
						e["sending_queue"].(map[string]any)["queue_size"] = 20
						if retry := e["retry_on_failure"].(map[string]any); !shipped {
							retry["initial_interval"], retry["max_interval"] = "100ms", "500ms"
						}
					}
				}
			})
			env := func(own string) []string {
				return []string{"OTELGPU_POD_IP=" + own, "OTELGPU_GATEWAY=" + gateway, "OTELGPU_TRACES_ENDPOINT=" + store.address}
			}
			// The agents' store is the gateway: while it is down, they wait.
			if dead {
				store.open(t)
				startCollector(t, binary, env(agent), front)
				w := newWorker(t, agent+":4317")
				late := make(chan struct{})
				go func() { defer close(late); w.work(length + 3*time.Second) }()
				time.Sleep(length)
				startCollector(t, binary, env(gateway), back)
				<-late
				w.check(t, store, true, metrics)
				return
			}
			store.fail(t, false, length)
			startCollector(t, binary, env(gateway), back)
			startCollector(t, binary, env(agent), front)
			w := newWorker(t, agent+":4317")
			w.work(10 * time.Second)
			w.check(t, store, false, metrics)
		})
	}
}

// With storages at both queues a kill loses nothing that was accepted. Duplicates that
// at-least-once delivery cannot avoid (delivered requests that are still in the queue) are counted.
func TestAReadyPipelineWithStorageSurvivesAKill(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	t.Parallel()
	binary, dir := buildCollector(t), t.TempDir()
	store, p := newStore(t), newPorts(t)
	ready, err := config.YAML("jaeger")
	require.NoError(t, err)
	storage := fmt.Sprintf(`
extensions:
  file_storage: {directory: %s, create_directory: true}
processors:
  gpu_join: {queue: {size: 2000000, storage: file_storage}}
exporters:
  otlp_grpc/jaeger: {sending_queue: {storage: file_storage}}
service:
  extensions: [gpu_samples, host_check, health_check, file_storage]
`, filepath.Join(dir, "storage"))
	length, full := outage(t)
	overlays := []string{ready, device, storage}
	if !full {
		length = 3 * time.Second
		overlays = append(overlays, faster, fmt.Sprintf(smallQueue, "otlp_grpc/jaeger"),
			fmt.Sprintf(retrySoon, "otlp_grpc/jaeger"))
	}
	run := func() *program.Program {
		return runCollector(t, binary, append(p.env, "OTELGPU_JAEGER_ENDPOINT="+store.address), overlays...)
	}
	collector := run()
	w := newWorker(t, p.otlp)
	alive := time.AfterFunc(length, func() { store.open(t) })
	defer alive.Stop()
	work := []time.Duration{length / 2, length / 2, 2 * time.Second, 2 * time.Second, 2 * time.Second}
	for _, d := range work { // the first kill is during the outage
		w.work(d)
		require.NoError(t, collector.Kill())
		collector = run()
	}
	w.work(2 * time.Second)
	patience := time.Minute
	if full {
		patience = 5 * time.Minute
	}
	require.Eventually(t, func() bool { n, _ := store.count(); return n >= w.accepted }, patience, 100*time.Millisecond)
	require.NoError(t, collector.Stop(time.Minute))
	spans, again := store.count()
	require.Equal(t, w.accepted, spans)
	require.Less(t, again, w.accepted/2)
	t.Logf("%.1f J on the spans, %.1f J of the device", store.energy(), w.joules())
	t.Logf("%d spans accepted, %d delivered, %d of them more than once", w.accepted, spans, again)
}

// prometheusProgram runs Prometheus' own write handler, database and query engine.
type prometheusProgram struct {
	t       *testing.T
	address string
	said    func() string
}

func buildPrometheus(t *testing.T) string {
	t.Helper()
	path, err := program.Build("prometheus", []string{"GOWORK=off"})
	require.NoError(t, err)
	return path
}

func runPrometheus(t *testing.T, path string, args ...string) *prometheusProgram {
	t.Helper()
	x, err := program.Start(context.WithoutCancel(t.Context()), path, args, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Stop(time.Minute)) })
	require.NoError(t, x.WaitFor("listening on ", time.Minute))
	_, address, _ := strings.Cut(x.Output(), "listening on ")
	address, _, _ = strings.Cut(address, "\n")
	return &prometheusProgram{t, address, x.Output}
}

func (p *prometheusProgram) get(path string, into any) {
	p.t.Helper()
	r, err := http.Get("http://" + p.address + path)
	require.NoError(p.t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, r.StatusCode, string(b))
	require.NoError(p.t, json.Unmarshal(b, into))
}

// query returns the value of an expression with a single result.
func (p *prometheusProgram) query(expression string, at time.Time) (float64, error) {
	p.t.Helper()
	var got []struct{ Samples [][2]float64 }
	p.get("/api/v1/query?time="+strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)+"&query="+
		url.QueryEscape(expression), &got)
	if len(got) != 1 {
		return 0, fmt.Errorf("%d results of %s", len(got), expression)
	}
	return got[0].Samples[0][1], nil
}

// The ready pipeline pushes to Prometheus. A rank dies, spans are late, a sender's clock is ahead,
// and a service works in bursts: no request is rejected, and Prometheus has the values of the
// spans.
func TestIntegrationPrometheusAcceptsEverythingFromTheReadyPipeline(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	store, p := runPrometheus(t, buildPrometheus(t)), newPorts(t)
	ready, err := config.YAML("prometheus")
	require.NoError(t, err)
	startCollector(t, buildCollector(t), append(p.env, "OTELGPU_PROMETHEUS_ENDPOINT=http://"+store.address+"/api/v1/otlp"),
		ready, device, faster)
	w := newWorker(t, p.otlp)

	sent := 0
	rank := func(rank, index int, end time.Time) {
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "trainer")
		rs.Resource().Attributes().PutInt("process.pid", int64(rank))
		if rank == 0 { // whose container restarts in the same pod
			rs.Resource().Attributes().PutStr("service.instance.id", "trainer-0")
			rs.Resource().Attributes().PutStr("container.id", strconv.Itoa(index/5))
		}
		rs.Resource().Attributes().PutStr("gpu.job.id", "j")
		rs.Resource().Attributes().PutInt("gpu.job.rank", int64(rank))
		rs.Resource().Attributes().PutInt("gpu.job.world_size", 4)
		ss := rs.ScopeSpans().AppendEmpty().Spans()
		for i, kind := range []string{"step", "section"} {
			w.next++
			s := ss.AppendEmpty()
			var id pcommon.SpanID
			binary.BigEndian.PutUint64(id[:], w.next|1<<40)
			s.SetSpanID(id)
			s.SetTraceID(pcommon.TraceID{9, byte(rank), byte(index), byte(i)})
			s.SetName("train")
			s.SetStartTimestamp(pcommon.NewTimestampFromTime(end.Add(-100 * time.Millisecond)))
			s.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
			s.Attributes().PutStr("gpu.operation.type", kind)
			s.Attributes().PutStr("gpu.operation.name", "train")
			if kind == "step" {
				s.Attributes().PutInt("gpu.step.index", int64(index))
			}
		}
		sent++
		require.NoError(t, w.send(td))
	}
	for index := range 10 {
		now := time.Now()
		for r := range 4 {
			switch {
			case r == 3 && index >= 4: // died
			case r == 2 && index%3 == 2: // a second late
				rank(r, index, now.Add(-time.Second))
			case r == 1: // this host's clock is ahead
				rank(r, index, now.Add(40*time.Second-time.Duration(index)*700*time.Millisecond))
			default:
				rank(r, index, now)
			}
		}
		w.work(700 * time.Millisecond)
	}
	time.Sleep(3 * time.Second) // no spans: series continue
	var answers map[string]int
	store.get("/answers", &answers)
	require.Len(t, answers, 1, "%v", answers)
	require.Greater(t, answers["200 "], 10, "%v", answers)

	end := time.Now().Add(50 * time.Second)
	count := func(filter, function string, at time.Time) (v float64) {
		expression := "gpu_operation_count_total{" + filter + "}"
		if function != "" {
			expression = function + "(" + expression + "[5m])"
		}
		require.Eventually(t, func() bool { v, err = store.query("sum("+expression+")", at); return err == nil }, time.Minute,
			100*time.Millisecond)
		return v
	}
	require.EqualValues(t, sent, count(`job="trainer"`, "", end))
	require.EqualValues(t, w.gpu, count(`job="worker"`, "", end))
	joules, err := store.query(`sum(gpu_operation_energy_joules_total{hw_id="`+workedGPU+`"})`, end)
	require.NoError(t, err)
	require.InEpsilon(t, w.joules(), joules, 1e-9)

	// Two bursts, the second after a pause without spans.
	require.Greater(t, count(`job="worker"`, "increase", end), 0.9*float64(w.gpu),
		"the first point is 0, so the first burst is seen")
	var found []struct {
		Labels    map[string]string
		Exemplars []any
	}
	store.get("/exemplars?match="+url.QueryEscape(`gpu_operation_duration_seconds_bucket{job="worker"}`), &found)
	require.NotEmpty(t, found, "exemplars are there by push")
	var all []struct{ Labels map[string]string }
	store.get("/samples?match="+url.QueryEscape(`{__name__!=""}`), &all)
	for _, s := range all { // a release does not rename the series
		require.NotContains(t, s.Labels, "otel_scope_version")
		require.NotContains(t, s.Labels, "otel_scope_schema_url")
	}
}
