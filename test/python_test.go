// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/freeport"
)

// python returns an interpreter with the OpenTelemetry SDK: OTELGPU_PYTHON, else python/.venv.
// Without one the test is skipped.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("OTELGPU_PYTHON")
	if path == "" {
		path = filepath.Join("..", "python", ".venv", "bin", "python")
	}
	if err := exec.Command(path, "-c",
		"import opentelemetry.sdk, opentelemetry.exporter.otlp.proto.http").Run(); err != nil {
		t.Skip("no Python with the OpenTelemetry SDK: pip install ./python[test] into python/.venv, or set OTELGPU_PYTHON")
	}
	return path
}

func TestAPythonProgramsSpansComeThroughTheCollector(t *testing.T) {
	t.Parallel()
	path := python(t)
	dir := t.TempDir()
	spans := filepath.Join(dir, "spans.json")
	endpoint, err := freeport.Address()
	require.NoError(t, err)
	binary := buildCollector(t)
	startCollector(t, binary, nil, fmt.Sprintf(`
receivers:
  otlp:
    protocols:
      http:
        endpoint: %s
processors:
  gpu_derive:
exporters:
  file:
    path: %s
    flush_interval: 50ms
service:
  pipelines:
    traces:
      receivers: [otlp]
      processors: [gpu_derive]
      exporters: [file]
  telemetry:
    metrics:
      level: none
`, endpoint, spans))
	cmd := exec.Command(path, filepath.Join("testdata", "python_service.py"), filepath.Join("..", "python", "tests"))
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+endpoint,
		"PYTHONPATH="+filepath.Join("..", "python", "src"),
		"PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "{'spans': 14}")

	byName := map[string][]ptrace.Span{}
	require.Eventually(t, func() bool {
		byName = map[string][]ptrace.Span{}
		n := 0
		text, _ := os.ReadFile(spans)
		for line := range bytes.Lines(text) {
			td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
			if err != nil {
				return false // being written
			}
			for _, rs := range td.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						byName[s.Name()] = append(byName[s.Name()], s)
						n++
					}
				}
			}
		}
		return n == 16
	}, time.Minute, 20*time.Millisecond)
	checked, err := exec.Command(binary, "check", spans).CombinedOutput()
	require.NoError(t, err, string(checked))
	require.Len(t, byName["train"], 3)
	gemm := byName["gemm"][0]
	assert.Equal(t, byName["forward"][0].SpanID(), gemm.ParentSpanID())
	assert.Equal(t, byName["train"][0].SpanID(), byName["forward"][0].ParentSpanID())
	rate, ok := gemm.Attributes().Get("gpu.flop.rate")
	require.True(t, ok, "the Collector derives rates from what the program declared and the device timed")
	duration, _ := gemm.Attributes().Get("gpu.duration")
	assert.InEpsilon(t, 1e9/duration.Double(), rate.Double(), 1e-4)
	assert.Equal(t, 2, byName["decode"][0].Links().Len())
	_, timed := byName["compile"][0].Attributes().Get("gpu.duration")
	assert.False(t, timed, "work of the host has no GPU time")
}
