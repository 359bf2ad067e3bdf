// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	recordings "github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// A request runs concurrently with seven others of its server, which have spans, are aborted, or
// are unsampled: with spans and metrics of a real vLLM, the shipped pipeline attributes an eighth
// to it in each case.
func TestRequestsAmongUnseenOnesOfARealVLLM(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	template := recordedRequest(t)
	metrics, err := os.ReadFile(recordings.Path(t, "vllm", "vllm-0.32.0.metrics.after.txt"))
	require.NoError(t, err)
	t.Parallel()
	binary := buildCollector(t)
	const watts, length, others = 400., 6 * time.Second, 7
	const fair = 1. / (1 + others)
	cases := []struct {
		name    string
		seen    int     // of the seven others
		state   string  // trace state of the spans
		scraped bool    // the Collector reads the server's metrics
		want    float64 // share of the device's energy
		upper   bool
	}{
		{name: "all-seen", seen: others, scraped: true, want: fair},
		{name: "aborted", scraped: true, want: fair},
		{name: "aborted-unscraped", want: 1, upper: true},
		{name: "unsampled", scraped: true, state: "ot=th:e", want: fair},
		{name: "unsampled-unscraped", state: "ot=th:e", want: fair, upper: true},
	}

	// The server's metrics as recorded, but with the number of running requests of the case.
	running := regexp.MustCompile(`(?m)^(vllm:num_requests_running\{[^}]*\}) \S+$`)
	require.True(t, running.Match(metrics))
	var reads readings
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := 0
		if reads.add() {
			n = 1 + others
		}
		_, _ = w.Write(running.ReplaceAll(metrics, fmt.Appendf(nil, "${1} %d.0", n)))
	}))
	defer server.Close()

	dir := t.TempDir()
	draw := make([]float64, len(cases))
	for i := range draw {
		draw[i] = watts
	}
	ids := recordDevices(t, filepath.Join(dir, "devices.gpurec"), draw)
	var servers strings.Builder
	for i, c := range cases {
		if c.scraped {
			fmt.Fprintf(&servers, "\n      - {endpoint: %q, service: %s, devices: [%s]}", server.URL+"/metrics", c.name, ids[i])
		}
	}
	otlp, exposed := freeAddress(t), freeAddress(t)
	_, telemetry, _ := strings.Cut(freeAddress(t), ":")
	overlay := filepath.Join(dir, "overlay.yaml")
	require.NoError(t, os.WriteFile(overlay, fmt.Appendf(nil, `
extensions:
  gpu_samples:
    servers: %s
receivers:
  gpu: {source: replay, replay: {file: %q}}
exporters:
  file: {path: %q, flush_interval: 100ms}
service:
  pipelines:
    traces: {exporters: [gpu_metrics, gpu_requests, file]}
`, servers.String(), filepath.Join(dir, "devices.gpurec"), filepath.Join(dir, "spans.json")), 0o600))
	collector, err := program.Start(t.Context(), binary, []string{"--config", "llm", "--config", overlay}, []string{
		"OTELGPU_OTLP_GRPC=" + otlp, "OTELGPU_OTLP_HTTP=" + freeAddress(t), "OTELGPU_METRICS=" + exposed,
		"OTELGPU_HEALTH=" + freeAddress(t), "OTELGPU_PAGE=127.0.0.1:0",
		"OTELGPU_LOG_LEVEL=info", "OTELGPU_TELEMETRY_PORT=" + telemetry, "OTELGPU_SETTLE=10s", "OTELGPU_MAX_WAIT=14s",
	})
	require.NoError(t, err)
	defer func() { _ = collector.Stop(time.Minute) }()
	require.NoError(t, collector.WaitFor("Everything is ready", time.Minute), collector.Output())
	require.NoError(t, collector.WaitFor("GPU source opened", time.Minute))
	time.Sleep(2 * time.Second) // the count is known before the requests start

	start := reads.turn()
	time.Sleep(length)
	end := reads.turn()
	whole := watts * end.Sub(start).Seconds()
	want := map[string]float64{}
	var all []*sender
	for i, c := range cases {
		td := ptrace.NewTraces()
		for k := range 1 + c.seen {
			template.ResourceSpans().At(0).CopyTo(td.ResourceSpans().AppendEmpty())
			rs := td.ResourceSpans().At(k)
			rs.Resource().Attributes().PutStr("service.name", c.name)
			rs.Resource().Attributes().PutStr("hw.id", ids[i])
			s := rs.ScopeSpans().At(0).Spans().At(0)
			s.SetTraceID(pcommon.TraceID{1, byte(i), byte(k)})
			s.SetSpanID(spanID(i, k))
			s.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
			s.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
			s.Attributes().PutDouble("gen_ai.latency.time_in_queue", 0)
			s.TraceState().FromRaw(c.state)
			want[s.SpanID().String()] = c.want
		}
		all = append(all, &sender{td: td})
	}
	export(t, otlp, all)
	got := map[string]ptrace.Span{}
	require.Eventually(t, func() bool {
		for _, s := range writtenSpans(t, filepath.Join(dir, "spans.json")) {
			if _, ours := want[s.SpanID().String()]; ours {
				got[s.SpanID().String()] = s
			}
		}
		return len(got) == len(want)
	}, time.Minute, 100*time.Millisecond, collector.Output())

	attributed := 0.
	for i, c := range cases {
		first := got[spanID(i, 0).String()]
		joules, sum := value(first, "gpu.energy"), 0.
		for k := range 1 + c.seen {
			sum += value(got[spanID(i, k).String()], "gpu.energy")
		}
		attributed += sum
		t.Logf("%s: %.1f J, fair share %.1f J, all spans %.1f J of %.1f J", c.name, joules, fair*whole, sum, whole)
		assert.InEpsilon(t, c.want*whole, joules, 0.05, c.name)
		assert.LessOrEqual(t, sum, whole*1.001, c.name)
		_, upper := first.Attributes().Get("gpu.energy_bound")
		assert.Equal(t, c.upper, upper, c.name)
	}
	states := func(state string) (sum float64) {
		page := metricsPage(t, "127.0.0.1:"+telemetry)
		for _, line := range regexp.MustCompile(`(?m)^otelcol_processor_gpu_join_energy.*$`).FindAllString(page, -1) {
			if strings.Contains(line, `state="`+state+`"`) {
				sum += sample(line, "otelcol_processor_gpu_join_energy")
			}
		}
		return sum
	}
	require.Eventually(t, func() bool { // the counters have reached the end of the spans, too
		return math.Abs(states("attributed")+states("late")-attributed) < 0.001*attributed
	}, time.Minute, 100*time.Millisecond)
	require.Eventually(t, func() bool { // the servers' metrics alone, within a minute
		page := metricsPage(t, exposed)
		active := regexp.MustCompile(`(?m)^gpu_server_energy_joules_total.*gpu_server_state="active".*$`).FindAllString(page, -1)
		return sample(strings.Join(active, "\n"), "gpu_server_energy_joules_total") > watts*4 &&
			strings.Contains(page, "gpu_server_tokens_total{")
	}, time.Minute, 200*time.Millisecond)
	// Requests without a span have seven eighths of three devices, known from the count or the
	// threshold.
	assert.InEpsilon(t, 3*others*fair*whole, states("unseen"), 0.05)
}

// readings are when the Collector has read how many requests a server runs.
type readings struct {
	mu   sync.Mutex
	last time.Time
	runs bool
}

// add adds a reading, and reports whether the requests run.
func (r *readings) add() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
	return r.runs
}

// apart is how far a reading must be from the start and the end of the requests. The Collector knows
// its time only as well as the answer is fast, and a reading of the other side of it contradicts the
// spans.
const apart = 150 * time.Millisecond

// turn starts the requests, or ends them, at a time without a reading nearby, which it returns.
func (r *readings) turn() time.Time {
	for {
		at := time.Now()
		time.Sleep(apart)
		r.mu.Lock()
		quiet := at.Sub(r.last) >= apart
		if quiet {
			r.runs = !r.runs
		}
		r.mu.Unlock()
		if quiet {
			return at
		}
	}
}

func spanID(i, k int) (id pcommon.SpanID) {
	binary.BigEndian.PutUint64(id[:], uint64(1+100*i+k))
	return id
}

// recordedRequest returns one request sent by a real vLLM, with its resource and scope.
func recordedRequest(t *testing.T) ptrace.Traces {
	t.Helper()
	text, err := os.ReadFile(recordings.Path(t, "vllm", "vllm-0.32.0.otlp.jsonl"))
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(lines.Bytes())
		require.NoError(t, err)
		rs := td.ResourceSpans().At(0)
		spans := rs.ScopeSpans().At(0).Spans()
		spans.RemoveIf(func(s ptrace.Span) bool { return s.Name() != "llm_request" })
		if spans.Len() > 0 {
			kept := false
			spans.RemoveIf(func(ptrace.Span) bool {
				removed := kept
				kept = true
				return removed
			})
			return td
		}
	}
	t.Fatal("the recording has no request")
	return ptrace.Traces{}
}
