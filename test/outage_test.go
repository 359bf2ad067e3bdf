// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/test/internal/integration"
)

// inFront is a proxy before Prometheus; until it is opened, nothing listens.
type inFront struct {
	address string
	to      *prometheusProgram
	refuse  bool // reject every second request
	n       atomic.Int64
}

func (f *inFront) open(t *testing.T) {
	l, err := net.Listen("tcp", f.address)
	if !assert.NoError(t, err) {
		return
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: f.to.address})
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if f.n.Add(1)%2 == 1 && f.refuse {
				http.Error(w, "not now", http.StatusServiceUnavailable)
				return
			}
			proxy.ServeHTTP(w, r)
		}),
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

// The ready pipeline pushes to a Prometheus that is down for minutes, or that rejects every second
// request. Afterwards, Prometheus has the values of all spans, including the time of the outage,
// and has rejected nothing itself.
func TestIntegrationPrometheusPipelineLosesNothingWhenPrometheusFails(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	binary, prometheus := buildCollector(t), buildPrometheus(t)
	length, full := outage(t)
	const flooded = "exporters: {otlp_http/prometheus: {sending_queue: {queue_size: 20}}}"
	for _, tt := range []struct {
		name    string
		dead    bool
		overlay string
	}{
		{"dead for minutes", true, "service: {pipelines: {metrics: {receivers: [gpu, gpu_metrics, gpu_requests]}}}"},
		{"dead for minutes, with a full queue", true, flooded},
		{"refused every second time", false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := runPrometheus(t, prometheus, "../deploy/prometheus/prometheus.yml")
			front, p := &inFront{address: freeAddress(t), to: store, refuse: !tt.dead}, newPorts(t)
			overlays := []string{ready(t, "prometheus"), device, tt.overlay}
			if !full {
				overlays = append(overlays, faster, `
exporters:
  otlp_http/prometheus: {retry_on_failure: {initial_interval: 100ms, max_interval: 500ms}}
`)
			}
			startCollector(t, binary, append(p.env, "OTELGPU_PROMETHEUS_ENDPOINT=http://"+front.address+"/api/v1/otlp"),
				overlays...)
			w := newWorker(t, p.otlp)
			begin := time.Now()
			if tt.dead {
				alive := time.AfterFunc(length, func() { front.open(t) })
				t.Cleanup(func() { alive.Stop() })
			} else {
				front.open(t)
			}
			w.work(length + 3*time.Second)

			query := func(expression string) float64 {
				v, err := store.query(expression, time.Now().Add(time.Minute))
				if err != nil {
					return math.NaN() // no value yet
				}
				return v
			}
			const count, energy = `sum(gpu_operation_count_total{job="worker"})`,
				`sum(gpu_operation_energy_joules_total{job="worker"})`
			require.Eventually(t, func() bool {
				return query(count) >= float64(w.gpu) && query(energy) > w.joules()*(1-1e-9)
			}, 3*time.Minute, 200*time.Millisecond, "%v of %d operations", query(count), w.gpu)
			require.EqualValues(t, w.gpu, query(count))
			require.InEpsilon(t, w.joules(), query(energy), 1e-9)
			var answers map[string]int
			store.get("/answers", &answers)
			require.Len(t, answers, 1, "%v", answers)
			require.Positive(t, answers["200 "], "%v", answers)

			var found []struct{ Samples [][2]float64 }
			store.get("/samples?match="+url.QueryEscape(`gpu_operation_count_total{job="worker"}`), &found)
			during, all := 0, 0
			for _, s := range found {
				for _, at := range s.Samples {
					all++
					if at[0] > float64(begin.UnixMilli()) && at[0] < float64(begin.Add(length).UnixMilli()) {
						during++
					}
				}
			}
			if tt.overlay != flooded { // whose points of that time were dropped
				require.Positive(t, during, "samples of the time when Prometheus was dead")
			}
			t.Logf("%d operations, %.1f J, %d samples of their count, %d of them of the outage; answers %v", w.gpu, w.joules(),
				all, during, answers)
		})
	}
}

// fat returns n spans of 1 kB each, the size of spans with stacks or prompts.
func fat(first uint64, n int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "fat")
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	spans.EnsureCapacity(n)
	now := time.Now()
	for i := range n {
		s := spans.AppendEmpty()
		var id pcommon.SpanID
		binary.BigEndian.PutUint64(id[:], first+uint64(i)+1)
		s.SetSpanID(id)
		s.SetTraceID(pcommon.TraceID{7, byte(first), id[5], id[6], id[7]})
		s.SetName("generate")
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Millisecond)))
		s.SetEndTimestamp(pcommon.NewTimestampFromTime(now))
		s.Attributes().PutStr("prompt", strings.Repeat("x", 1000))
	}
	return td
}

// A store's OTLP receiver accepts requests of up to 4 MiB, and rejects larger ones permanently.
// After an outage many requests are pending, and one received may be larger if the user raised the
// receiver's limit: they are sent in pieces that the store accepts.
func TestABacklogContinuesInRequestsThatTheStoreTakes(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	t.Parallel()
	binary := buildCollector(t)
	for pipeline, variable := range map[string]string{
		"jaeger": "OTELGPU_JAEGER_ENDPOINT=", "tempo": "OTELGPU_TEMPO_ENDPOINT=",
	} {
		t.Run(pipeline, func(t *testing.T) {
			t.Parallel()
			store, p := newStore(t), newPorts(t)
			collector := startCollector(t, binary, append(p.env, variable+store.address), ready(t, pipeline), faster,
				"receivers: {otlp: {protocols: {http: {max_request_body_size: 20971520}}}}",
				fmt.Sprintf(retrySoon, "otlp_grpc/"+pipeline))
			w := &worker{t: t}
			conn, err := grpc.NewClient(p.otlp, grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			defer conn.Close()
			w.conn = conn
			sent := 0
			for range 15 {
				require.NoError(t, w.send(fat(uint64(sent), 1000)))
				sent += 1000
			}
			large, err := ptraceotlp.NewExportRequestFromTraces(fat(uint64(sent), 15_000)).MarshalProto()
			require.NoError(t, err)
			answer, err := http.Post("http://"+p.http+"/v1/traces", "application/x-protobuf", bytes.NewReader(large))
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, http.StatusOK, answer.StatusCode)
			sent += 15_000
			store.open(t)
			if !waitUntil(time.Minute, func() bool { n, _ := store.count(); return n >= sent }) {
				n, _ := store.count()
				t.Fatalf("%d of %d spans have come: %s", n, sent, collector.Output())
			}
			spans, again := store.count()
			require.Equal(t, sent, spans)
			require.Zero(t, again)
		})
	}
}
