// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

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
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver/internal/metadata"
)

func TestReceiverReadsFolderAndCounts(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Rename(export(t, strings0, strings1, kernel0, session0, session1,
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 1500, 0, 7, 9, 67108864, 1, 2, 3, 4, 32, 1, 1, 40, 100, 28, 5, 6)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, deviceId, streamId) VALUES (2000, 0, 7)"),
		filepath.Join(dir, "a.sqlite")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.sqlite"), []byte("not a database"), 0o600))
	tel := componenttest.NewTelemetry()
	defer func() { require.NoError(t, tel.Shutdown(t.Context())) }()
	set := receivertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings, set.BuildInfo.Version = tel.NewTelemetrySettings(), "1.2.3"
	cfg := createDefaultConfig().(*Config)
	cfg.Files.Include = []string{filepath.Join(dir, "*.sqlite")}
	cfg.Files.StableFor, cfg.Files.PollInterval = 0, 10*time.Millisecond
	cfg.Spans.Detail = emit.LevelKernels
	sink := &consumertest.TracesSink{}
	r, err := NewFactory().CreateTraces(t.Context(), set, cfg, sink)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	require.Eventually(t, func() bool {
		m, err := tel.GetMetric("otelcol_receiver_nsys_files")
		return err == nil && len(m.Data.(metricdata.Sum[int64]).DataPoints) == 2
	}, time.Minute, time.Millisecond)
	assert.Equal(t, map[string]float64{"outcome=read": 1, "outcome=refused": 1},
		metrictest.Sum(t, tel, "otelcol_receiver_nsys_files"))
	require.NoError(t, r.Shutdown(t.Context()))
	require.NoError(t, r.Shutdown(t.Context()))
	assert.Equal(t, map[string]float64{"": 2}, metrictest.Sum(t, tel, "otelcol_receiver_nsys_rows"))
	assert.Equal(t, 3, sink.SpanCount(), "the window, its device and the kernel with both times")
	assert.Equal(t, "1.2.3", sink.AllTraces()[0].ResourceSpans().At(0).ScopeSpans().At(0).Scope().Version())
}

func TestConfigIsReadAsWritten(t *testing.T) {
	cfg, err := configtest.Load[Config](t, "nsys/all", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, "file_storage/nsys", cfg.Files.Storage.String())
	assert.Equal(t, []any{time.Minute, 5 * time.Minute, 100},
		[]any{cfg.Files.PollInterval, cfg.Files.StableFor, cfg.Files.ReplayBatches})
	assert.Equal(t, Options{
		Detail: emit.LevelKernels, Attributes: spanfacts.Full, Extent: link.ExtentSteps, MaxSpans: 500, MaxBytes: 1_000_000,
		MaxEvents: 2_000_000, BatchSpans: 200, MemoryMiB: 128, TempDir: "/var/tmp",
		ServiceName: "trainer", JobID: "job-7", Device: "NVIDIA L4",
		Resource: map[string]string{"deployment.environment.name": "prod"},
	}, cfg.Spans)
	cfg, err = configtest.Load[Config](t, "nsys", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, Options{MaxEvents: 10_000_000, BatchSpans: 1000, MemoryMiB: 32, ServiceName: "nsys"}, cfg.Spans)
	_, err = configtest.Load[Config](t, "nsys/bad", createDefaultConfig)
	for _, want := range []string{
		"`include` must name at least one pattern, found none",
		"`max_spans` must be at least 100, or 0 for the default, or negative for none, found 5",
		"`service_name` must not be empty",
	} {
		assert.ErrorContains(t, err, want)
	}
}
