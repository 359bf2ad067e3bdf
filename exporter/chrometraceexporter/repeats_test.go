// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/metrictest"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/sinktest"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
)

func TestRepeatedSpansAreWrittenOnce(t *testing.T) {
	var feed []ptrace.Traces
	for trace := range byte(20) {
		feed = append(feed, service(trace+1))
	}
	sinktest.Repeats(t, feed, func(t *testing.T) (func(ptrace.Traces) error, func() any) {
		cfg := config(t)
		traces, _, shutdown := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
		return func(td ptrace.Traces) error { return traces.ConsumeTraces(t.Context(), td) }, func() any {
			require.NoError(t, shutdown())
			data, err := os.ReadFile(cfg.Path)
			require.NoError(t, err)
			_, faults := chrometracetest.Read(data)
			require.Empty(t, faults)
			return string(data)
		}
	})
}

func TestRepeatedSpansAreCounted(t *testing.T) {
	tel := componenttest.NewTelemetry()
	set := exportertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	traces, _, shutdown := start(t, config(t), set)
	for range 3 {
		require.NoError(t, traces.ConsumeTraces(t.Context(), service(1)))
	}
	require.NoError(t, shutdown())
	n := float64(service(1).SpanCount())
	assert.Equal(t, map[string]float64{"": n}, metrictest.Sum(t, tel, "otelcol_exporter_chrome_trace_spans"))
	assert.Equal(t, map[string]float64{"reason=repeated": 2 * n},
		metrictest.Sum(t, tel, "otelcol_exporter_chrome_trace_spans_dropped"))
	require.NoError(t, tel.Shutdown(t.Context()))
}

// A write to a disk that does not respond holds the lock.
func TestAShutdownDoesNotWaitForAHangingDisk(t *testing.T) {
	cfg := config(t)
	sink, err := newSink(cfg, exportertest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	s := &use{sink: sink}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.mu.Lock()
	require.ErrorIs(t, s.shutdown(ctx), sharedcomponent.ErrRunning)
	s.mu.Unlock()
}
