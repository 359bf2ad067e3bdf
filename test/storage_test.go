// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelgpu/otelgpu/internal/freeport"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// stored delays spans for a given time, in a storage.
const stored = `
extensions:
  gpu_samples: {}
  file_storage: {directory: %[2]s/storage, create_directory: true}
receivers:
  otlp: {protocols: {grpc: {endpoint: %[1]s}}}
  gpu: {source: simulated, samples: gpu_samples}
processors:
  gpu_join: {samples: gpu_samples, settle: %[3]s, max_wait: 10m, queue: {storage: file_storage}}
exporters:
  file: {path: %[2]s/traces.json, flush_interval: 50ms, append: true}
  debug: {}
service:
  extensions: [gpu_samples, file_storage]
  telemetry: {metrics: {level: none, readers: []}}
  pipelines:
    traces: {receivers: [otlp], processors: [gpu_join], exporters: [file]}
    metrics: {receivers: [gpu], exporters: [debug]}
`

// The real binary is killed while all spans are pending, and restarted: each span is released once,
// with the service's own wrappers of components, which track ownership of requests.
func TestQueuedSpansSurviveAKill(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	t.Parallel()
	binary, dir := buildCollector(t), t.TempDir()
	address, err := freeport.Address()
	require.NoError(t, err)
	start := func(settle time.Duration) *program.Program {
		file := filepath.Join(dir, "stored.yaml")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, stored, address, dir, settle), 0o600))
		p, err := program.Start(t.Context(), binary, []string{"--config", file}, nil)
		require.NoError(t, err)
		require.NoError(t, p.WaitFor("Everything is ready", time.Minute))
		require.NoError(t, p.WaitFor("GPU source opened", time.Minute))
		return p
	}
	p := start(10 * time.Minute) // longer than the rest of the test
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	const batches, spans = 20, 50
	for b := range batches {
		td := ptrace.NewTraces()
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
		for i := range spans {
			s := ss.Spans().AppendEmpty()
			s.SetTraceID(pcommon.TraceID{1})
			s.SetSpanID(pcommon.SpanID{1, byte(b), byte(i)})
			s.SetStartTimestamp(pcommon.NewTimestampFromTime(time.Now().Add(-time.Millisecond)))
			s.SetEndTimestamp(pcommon.NewTimestampFromTime(time.Now()))
			s.Attributes().PutStr("gpu.operation.type", "kernel")
			s.Attributes().PutStr("hw.id", "GPU-51a0c0de-0000-4000-8000-000000000000")
		}
		_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(td))
		require.NoError(t, err)
	}
	held, err := os.ReadFile(filepath.Join(dir, "traces.json"))
	require.True(t, err != nil || len(held) == 0, "nothing has left yet")
	process, err := os.FindProcess(p.PID())
	require.NoError(t, err)
	require.NoError(t, process.Kill())
	require.Error(t, p.Wait(time.Minute))

	p = start(100 * time.Millisecond)
	seen := map[pcommon.SpanID]int{}
	for deadline := time.Now().Add(time.Minute); len(seen) < batches*spans && time.Now().Before(deadline); {
		time.Sleep(200 * time.Millisecond)
		clear(seen)
		b, err := os.ReadFile(filepath.Join(dir, "traces.json"))
		if err != nil {
			continue
		}
		for line := range bytes.Lines(b) {
			td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
			if err != nil {
				break // still being written
			}
			for _, rs := range td.ResourceSpans().All() {
				for _, s := range rs.ScopeSpans().At(0).Spans().All() {
					seen[s.SpanID()]++
				}
			}
		}
	}
	require.NoError(t, p.Stop(time.Minute), "it ends by itself, with status 0")
	require.Len(t, seen, batches*spans)
	for id, n := range seen {
		require.Equal(t, 1, n, id.String())
	}
}
