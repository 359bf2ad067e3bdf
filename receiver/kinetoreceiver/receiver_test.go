// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelgpu/otelgpu/internal/configtest"
	"github.com/otelgpu/otelgpu/internal/metrictest"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/metadata"
)

func TestReceiverReadsFolderAndCounts(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	good := "[" + step(1, 1000) + `,{"ph":"C","name":"x"}]`
	write("a.pt.trace.json", good)
	write("b.pt.trace.json.gz", gz(t, "["+step(2, 1000)+"]"))
	write("c.pt.trace.json", "{}")
	tel := componenttest.NewTelemetry()
	defer func() { require.NoError(t, tel.Shutdown(t.Context())) }()
	set := receivertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings, set.BuildInfo.Version = tel.NewTelemetrySettings(), "1.2.3"
	cfg := createDefaultConfig().(*Config)
	cfg.Files.Include = []string{filepath.Join(dir, "*.pt.trace.json*")}
	cfg.Files.StableFor, cfg.Files.PollInterval = 0, 10*time.Millisecond
	cfg.Spans.Detail = DetailKernels
	sink := &consumertest.TracesSink{}
	r, err := NewFactory().CreateTraces(t.Context(), set, cfg, sink)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	require.Eventually(t, func() bool { return sink.SpanCount() == 12 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		m, err := tel.GetMetric("otelcol_receiver_kineto_files")
		return err == nil && len(m.Data.(metricdata.Sum[int64]).DataPoints) == 2
	}, time.Minute, time.Millisecond)
	assert.Equal(t, map[string]float64{"outcome=read": 2, "outcome=refused": 1},
		metrictest.Sum(t, tel, "otelcol_receiver_kineto_files"))
	assert.Equal(t, map[string]float64{"": 9}, metrictest.Sum(t, tel, "otelcol_receiver_kineto_events"))
	assert.Equal(t, map[string]float64{"reason=phase 'C'": 1},
		metrictest.Sum(t, tel, "otelcol_receiver_kineto_events_skipped"))
	require.NoError(t, r.Shutdown(t.Context()))
	require.NoError(t, r.Shutdown(t.Context()))
	assert.Equal(t, "1.2.3", sink.AllTraces()[0].ResourceSpans().At(0).ScopeSpans().At(0).Scope().Version())
}

func TestConfigLoads(t *testing.T) {
	load := func(id string) (*Config, error) { return configtest.Load[Config](t, id, createDefaultConfig) }
	cfg, err := load("kineto/all")
	require.NoError(t, err)
	assert.Equal(t, DetailOperators, cfg.Spans.Detail)
	assert.Equal(t, 5*time.Minute, cfg.Files.StableFor)
	assert.Equal(t, "file_storage/kineto", cfg.Files.Storage.String())
	assert.Equal(t, 100, cfg.Files.ReplayBatches)
	assert.True(t, cfg.FolderIsJob)
	assert.Equal(t, Options{
		Detail: DetailOperators, Attributes: spanfacts.Full, Extent: ExtentStepsButLast, MaxSpans: 500, MaxBytes: 1_000_000,
		MaxEvents: 2_000_000, BatchSpans: 200, MemoryMiB: 128, TempDir: "/var/tmp", Captures: []string{"/traces/captures"},
		ServiceName: "trainer", JobID: "job-7", Device: "NVIDIA L4",
		Resource: map[string]string{"deployment.environment.name": "prod"}, Partial: true, Shapes: true,
	}, cfg.optionsOf(cfg.Spans, ""))
	cfg, err = load("kineto")
	require.NoError(t, err)
	assert.Equal(t, profiletrace.DefaultOptions("pytorch").BatchSpans, cfg.Spans.BatchSpans)
	assert.Equal(t, DetailAuto, cfg.Spans.Detail)

	_, err = load("kineto/detail")
	assert.ErrorContains(t, err, `unknown detail "everything" (one of auto, steps, annotations, operators, kernels)`)
	_, err = load("kineto/bad")
	for _, want := range []string{
		"`include` must name at least one pattern, found none", "`batch_spans` must be positive, found -1",
		"`memory_limit_mib` must be from 1 to 2047, found 9999",
		"`max_spans` must be at least 100, or 0 for the default, or negative for none, found 5",
		"`service_name` must not be empty",
	} {
		assert.ErrorContains(t, err, want)
	}
}
