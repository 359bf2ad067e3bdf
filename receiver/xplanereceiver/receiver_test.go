// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

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
	"github.com/otelgpu/otelgpu/receiver/xplanereceiver/internal/metadata"
)

func TestTheReadmeMatchesThePage(t *testing.T) {
	configtest.README(t, "receivers", "xplane", createDefaultConfig)
}

func TestReceiverReadsFolderAndCounts(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Rename(write(t, profile()), filepath.Join(dir, "a.xplane.pb")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.xplane.pb"), []byte("no profile"), 0o600))
	tel := componenttest.NewTelemetry()
	defer func() { require.NoError(t, tel.Shutdown(t.Context())) }()
	set := receivertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	cfg := createDefaultConfig().(*Config)
	cfg.Files.Include = []string{filepath.Join(dir, "*.xplane.pb")}
	cfg.Files.StableFor, cfg.Files.PollInterval = 0, 10*time.Millisecond
	sink := &consumertest.TracesSink{}
	r, err := NewFactory().CreateTraces(t.Context(), set, cfg, sink)
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	require.Eventually(t, func() bool {
		m, err := tel.GetMetric("otelcol_receiver_xplane_files")
		return err == nil && len(m.Data.(metricdata.Sum[int64]).DataPoints) == 2
	}, time.Minute, time.Millisecond)
	assert.Equal(t, map[string]float64{"outcome=read": 1, "outcome=refused": 1},
		metrictest.Sum(t, tel, "otelcol_receiver_xplane_files"))
	require.NoError(t, r.Shutdown(t.Context()))
	assert.Equal(t, map[string]float64{"": 8}, metrictest.Sum(t, tel, "otelcol_receiver_xplane_events"))
	assert.Positive(t, sink.SpanCount())
}

func TestConfigIsReadAsWritten(t *testing.T) {
	cfg, err := configtest.Load[Config](t, "xplane/all", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, "file_storage/xplane", cfg.Files.Storage.String())
	assert.Equal(t, "NVIDIA L4", cfg.Spans.Device)
	assert.Equal(t, int64(500), int64(cfg.Spans.MaxSpans))
	_, err = configtest.Load[Config](t, "xplane/bad", createDefaultConfig)
	assert.ErrorContains(t, err, "`max_spans` must be at least 100, or 0 for the default, or negative for none, found 5")
}
