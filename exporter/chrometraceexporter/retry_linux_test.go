// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/gpuspan/chrometrace/chrometracetest"
)

// A limit on the size of files simulates a full disk: the file of one trace is full, the other's is not.
func TestRetryAfterAFullDiskWritesNothingTwice(t *testing.T) {
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	cfg := config(t, func(c *Config) {
		c.PerTrace = configoptional.Some(PerTrace{Idle: time.Hour, MaxOpen: 8})
		c.Retry.Enabled, c.Retry.InitialInterval = true, 20*time.Millisecond
	})
	set := exportertest.NewNopSettings(metadata.Type)
	core, logs := observer.New(zap.DebugLevel)
	set.Logger = zap.New(core)
	tr, _, stop := start(t, cfg, set)
	for range 20 {
		require.NoError(t, tr.ConsumeTraces(t.Context(), service(1)))
	}
	free := limit(10_000)
	retried := func() bool { return logs.FilterMessageSnippet("Will retry").Len() > 1 }
	go func() {
		for !retried() && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		free()
	}()
	both := service(1)
	service(2).ResourceSpans().MoveAndAppendTo(both.ResourceSpans())
	require.NoError(t, tr.ConsumeTraces(t.Context(), both), "it is tried again until there is room")
	assert.True(t, retried(), "there was none at first")
	require.NoError(t, stop())
	for name, n := range map[string]int{
		"trace-01000000000000000000000000000000.json": 21 * 4,
		"trace-02000000000000000000000000000000.json": 4,
	} {
		assert.Len(t, read(t, filepath.Join(filepath.Dir(cfg.Path), name)).Of("X"), n, name)
	}
}
