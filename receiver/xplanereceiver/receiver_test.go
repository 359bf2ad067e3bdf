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

// A folder that is followed: files of hosts that are there together are ranks of one job. A file
// that is read before another host's appears remains a separate profile, and none is read twice.
func TestHostsOfAFollowedRun(t *testing.T) {
	for name, rounds := range map[string][][]string{"together": {{"a", "b"}}, "one after another": {{"a"}, {"b"}}} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "plugins", "profile", "2026_08_21_10_00_00")
			require.NoError(t, os.MkdirAll(dir, 0o700))
			add := func(hosts []string) {
				for _, h := range hosts {
					require.NoError(t, os.Rename(write(t, profile()), filepath.Join(dir, h+".xplane.pb")))
				}
			}
			add(rounds[0])
			cfg := createDefaultConfig().(*Config)
			cfg.Files.Include = []string{filepath.Join(dir, "*.xplane.pb")}
			cfg.Files.StableFor, cfg.Files.PollInterval = 0, 10*time.Millisecond
			sink := &consumertest.TracesSink{}
			r, err := NewFactory().CreateTraces(t.Context(), receivertest.NewNopSettings(metadata.Type), cfg, sink)
			require.NoError(t, err)
			require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
			read := 0
			for i, hosts := range rounds {
				if i > 0 {
					add(hosts)
				}
				read += len(hosts)
				require.Eventually(t, func() bool { return len(sink.AllTraces()) == read }, time.Minute, time.Millisecond)
			}
			require.NoError(t, r.Shutdown(t.Context()))
			var ranks []any
			for _, td := range sink.AllTraces() {
				res := td.ResourceSpans().At(0).Resource().Attributes().AsRaw()
				ranks = append(ranks, res["gpu.job.rank"])
				assert.Equal(t, res["gpu.job.rank"] != nil, res["gpu.job.id"] == filepath.ToSlash(dir))
			}
			want := []any{int64(0), int64(1)}
			if len(rounds) > 1 {
				want[0] = nil
			}
			assert.Equal(t, want, ranks)
		})
	}
}

func TestConfigIsReadAsWritten(t *testing.T) {
	cfg, err := configtest.Load[Config](t, "xplane/all", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, "file_storage/xplane", cfg.Files.Storage.String())
	assert.Equal(t, "NVIDIA L4", cfg.Spans.Device)
	assert.Equal(t, int64(500), int64(cfg.Spans.MaxSpans))
	assert.Equal(t, int64(2_000_000), int64(cfg.Spans.MaxEvents))
	assert.Equal(t, []any{time.Minute, 5 * time.Minute, 100},
		[]any{cfg.Files.PollInterval, cfg.Files.StableFor, cfg.Files.ReplayBatches})
	_, err = configtest.Load[Config](t, "xplane/bad", createDefaultConfig)
	assert.ErrorContains(t, err, "`max_spans` must be at least 100, or 0 for the default, or negative for none, found 5")
}
