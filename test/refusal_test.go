// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/test/internal/otelcol"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// refusing is a user's own pipeline: processors behind gpu_join that change spans, and an exporter
// with a queue that rejects what does not fit. Arguments: address, settle, the queue of gpu_join,
// the store's address, the exporter's queue, other exporters, extensions.
const refusing = `
extensions: {gpu_samples: {}%[7]s}
receivers:
  otlp: {protocols: {grpc: {endpoint: %[1]s}}}
  gpu: {source: simulated, samples: gpu_samples}
processors:
  gpu_join: {samples: gpu_samples, settle: %[2]s, max_wait: 20m, queue: {%[3]s}}
  gpu_derive: {samples: gpu_samples}
  resource: {attributes: [{key: service.instance.id, action: hash}]}
connectors: {gpu_metrics: {}}
exporters:
  otlp_grpc:
    endpoint: %[4]s
    tls: {insecure: true}
    sending_queue: {%[5]s}
    retry_on_failure: {initial_interval: 100ms, max_interval: 200ms, max_elapsed_time: 0s}
  debug: {}
service:
  extensions: [gpu_samples%[8]s]
  telemetry: {metrics: {level: none, readers: []}}
  pipelines:
    traces: {receivers: [otlp], processors: [gpu_join, gpu_derive, resource], exporters: [otlp_grpc%[6]s]}
    metrics: {receivers: [gpu%[6]s], exporters: [debug]}
`

// sendOne sends n requests of one span, which declares FLOPs, and returns when they are accepted.
func sendOne(t *testing.T, address string, n int) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	for i := range n {
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "trainer")
		rs.Resource().Attributes().PutStr("service.instance.id", "a")
		s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		var id pcommon.SpanID
		binary.BigEndian.PutUint64(id[:], uint64(i+1))
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(id)
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(time.Now().Add(-time.Millisecond)))
		s.SetEndTimestamp(pcommon.NewTimestampFromTime(time.Now()))
		s.Attributes().PutStr("gpu.operation.type", "section")
		s.Attributes().PutStr("hw.id", "GPU-51a0c0de-0000-4000-8000-000000000000")
		s.Attributes().PutDouble("gpu.duration", 0.001)
		s.Attributes().PutDouble("gpu.flop.count", 1e9)
		_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(td))
		require.NoError(t, err)
	}
}

const rejects = "the next component rejects spans"

// The store is away until the exporter's queue is full, or the Collector is stopped while spans
// wait: each accepted span arrives once, and what changes spans behind gpu_join did so once.
func TestSpansThatAnExporterRejectsArriveOnceAndChangedOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	const sent = 60
	binary := otelcol.Build(t)
	start := func(t *testing.T, config string) *program.Program {
		p := otelcol.Run(t, binary, nil, config)
		require.NoError(t, p.WaitFor("GPU source opened", time.Minute))
		return p
	}
	arrived := func(t *testing.T, s *store, n int) {
		require.Eventually(t, func() bool { got, _ := s.count(); return got >= n }, 2*time.Minute, 50*time.Millisecond)
		got, again := s.count()
		assert.Equal(t, n, got)
		assert.Zero(t, again)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, v := range s.instances {
			assert.Equal(t, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb", v, "the hash of a")
		}
		assert.NotEmpty(t, s.instances)
	}
	for name, fanOut := range map[string]string{"one exporter": "", "a fan-out": ", gpu_metrics"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, address := newStore(t), freeAddress(t)
			p := start(t, fmt.Sprintf(refusing, address, "10ms", "", s.address, "queue_size: 5", fanOut, "", ""))
			sendOne(t, address, sent)
			require.NoError(t, p.WaitFor(rejects, time.Minute))
			s.open(t)
			arrived(t, s, sent)
			require.NoError(t, p.Stop(time.Minute))
		})
	}
	t.Run("restarts with storage", func(t *testing.T) {
		t.Parallel()
		s, address := newStore(t), freeAddress(t)
		config := fmt.Sprintf(refusing, address, "10ms", "storage: file_storage", s.address,
			"queue_size: 5, storage: file_storage", ", gpu_metrics",
			fmt.Sprintf(", file_storage: {directory: %s}", t.TempDir()), ", file_storage")
		p := start(t, config)
		sendOne(t, address, sent)
		for range 2 {
			require.NoError(t, p.WaitFor(rejects, time.Minute))
			require.NoError(t, p.Stop(time.Minute))
			p = start(t, config)
		}
		require.NoError(t, p.WaitFor(rejects, time.Minute))
		s.open(t)
		arrived(t, s, sent)
		require.NoError(t, p.Stop(time.Minute))
	})
	t.Run("kills on a full disk", func(t *testing.T) {
		t.Parallel()
		s, address, dir := newStore(t), freeAddress(t), t.TempDir()
		config := fmt.Sprintf(refusing, address, "10ms", "storage: file_storage", s.address,
			"storage: file_storage/full", ", gpu_metrics", fmt.Sprintf(`,
  file_storage: {directory: %[1]s/join, create_directory: true},
  file_storage/full: {directory: %[1]s/queue, create_directory: true, max_size: 131072}`, dir),
			", file_storage, file_storage/full")
		p := start(t, config)
		sendOne(t, address, 10*sent)
		for range 2 {
			require.NoError(t, p.WaitFor("the storage of a queue cannot be written", time.Minute))
			require.NoError(t, p.WaitFor(rejects, time.Minute))
			require.NoError(t, p.Kill())
			p = start(t, config)
		}
		s.open(t)
		require.Eventually(t, func() bool { got, _ := s.count(); return got >= 10*sent }, 2*time.Minute, 50*time.Millisecond)
		got, _ := s.count() // some arrive twice
		assert.Equal(t, 10*sent, got)
		require.NoError(t, p.Stop(time.Minute))
	})
	t.Run("SIGTERM with the default queue", func(t *testing.T) {
		t.Parallel()
		s, address := newStore(t), freeAddress(t)
		s.open(t)
		p := start(t, fmt.Sprintf(refusing, address, "10m", "", s.address, "", "", "", ""))
		sendOne(t, address, 1500) // the queue has space for 1,000 requests
		require.NoError(t, p.Stop(time.Minute))
		arrived(t, s, 1500)
	})
}
