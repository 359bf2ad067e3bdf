// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"

	"github.com/otelgpu/otelgpu/internal/configtest"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
)

func load(t *testing.T, id string) (*Config, error) {
	t.Helper()
	return configtest.Load[Config](t, id, createDefaultConfig)
}

func TestConfigIsWellFormed(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
}

func TestConfigWithEverythingSet(t *testing.T) {
	cfg, err := load(t, "chrome_trace/full")
	require.NoError(t, err)
	assert.Equal(t, chrometrace.Gzip, cfg.Compression)
	assert.Equal(t, chrometrace.Replace, cfg.Existing)
	assert.Equal(t, Rotation{MaxMegabytes: 50, MaxAge: time.Hour, MaxFiles: 10}, *cfg.Rotation.Get())
	assert.Equal(t, []string{"hw.power"}, cfg.Counters)
	assert.Equal(t, "gpu_samples/node", cfg.Samples.String())
	assert.True(t, cfg.Queue.HasValue())
	assert.True(t, cfg.Retry.Enabled)
	f := cfg.files()
	assert.EqualValues(t, 50_000_000, f.MaxBytes)
}

func TestConfigDefaults(t *testing.T) {
	cfg, err := load(t, "chrome_trace")
	require.NoError(t, err)
	assert.False(t, cfg.Rotation.HasValue())
	assert.False(t, cfg.Queue.HasValue())
	assert.False(t, cfg.Retry.Enabled)
	assert.Equal(t, chrometrace.Files{Path: "traces/trace.json", Existing: chrometrace.Number}, cfg.files())
	cfg, err = load(t, "chrome_trace/rotated")
	require.NoError(t, err)
	assert.Equal(t, Rotation{MaxMegabytes: 200, MaxFiles: 100}, *cfg.Rotation.Get(),
		"the empty block turns its defaults on")
}

func TestConfigMistakesAreAllReported(t *testing.T) {
	_, err := load(t, "chrome_trace/wrong")
	for _, want := range []string{
		"`path` must name a file, such as traces/trace.json",
		"`compression` must be gzip or zstd, or absent, found \"lz4\"",
		"`existing` must be number or replace, found \"append\"",
		"`max_megabytes` must be non-negative and a size that a file can have, found -1",
		"`max_files` must be non-negative, found -2",
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.ErrorContains(t, (&Rotation{MaxMegabytes: 1e13}).Validate(), "found 10000000000000",
		"its bytes would be a negative number")
}
