// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/test/internal/integration"
)

// Prometheus creates one target_info from gpu_metrics' and gpu_requests' metrics of a service, and
// rejects a whole request for one late point of it. Here it has no out-of-order window, spans are
// two seconds old on arrival, and new series start all the time.
func TestIntegrationPrometheusAcceptsOperationsAndRequestsInOrder(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	store, p := runPrometheus(t, buildPrometheus(t)), newPorts(t)
	ready, err := config.YAML("prometheus")
	require.NoError(t, err)
	startCollector(t, buildCollector(t), append(p.env, "OTELGPU_PROMETHEUS_ENDPOINT=http://"+store.address+"/api/v1/otlp"),
		ready, `
connectors:
  gpu_metrics: {flush_interval: 6s}
  gpu_requests: {flush_interval: 6s, settle: 200ms, idle: 500ms}
`)
	w := newWorker(t, p.otlp)
	sent := 0
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		sent++
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		for name, value := range map[string]string{"service.name": "chat", "host.name": "node1", "service.instance.id": "1"} {
			rs.Resource().Attributes().PutStr(name, value)
		}
		spans := rs.ScopeSpans().AppendEmpty().Spans()
		add := func(name string, id uint64) ptrace.Span {
			s := spans.AppendEmpty()
			s.SetName(name)
			var b pcommon.SpanID
			binary.BigEndian.PutUint64(b[:], id)
			s.SetSpanID(b)
			s.SetTraceID(pcommon.TraceID{byte(id % 2), 5, byte(sent >> 8), byte(sent)})
			s.SetEndTimestamp(pcommon.NewTimestampFromTime(time.Now().Add(-2 * time.Second)))
			s.SetStartTimestamp(pcommon.NewTimestampFromTime(time.Now().Add(-2100 * time.Millisecond)))
			return s
		}
		request := add("POST /chat", uint64(2*sent))
		batch := add("decode", uint64(2*sent+1))
		batch.Attributes().PutStr("gpu.operation.type", "section")
		batch.Attributes().PutStr("gpu.operation.name", fmt.Sprintf("decode%d", sent/20))
		batch.Attributes().PutDouble("gpu.duration", 0.1)
		link := batch.Links().AppendEmpty()
		link.SetTraceID(request.TraceID())
		link.SetSpanID(request.SpanID())
		require.NoError(t, w.send(td))
	}
	for _, name := range []string{"gpu_operation_count_total", "gpu_request_duration_seconds_count"} {
		require.Eventually(t, func() bool {
			n, err := store.query(`sum(`+name+`{job="chat"})`, time.Now())
			return err == nil && n == float64(sent)
		}, time.Minute, 100*time.Millisecond, "%s of %d", name, sent)
	}
	var infos []struct{ Samples [][2]float64 }
	store.get(`/samples?match=target_info%7Bjob%3D%22chat%22%7D`, &infos)
	require.Len(t, infos, 1, "both connectors write it")
	var answers map[string]int
	store.get("/answers", &answers)
	require.Len(t, answers, 1, "%v", answers)
}
