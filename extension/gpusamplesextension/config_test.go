// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/configtest"
)

func TestConfigIsReadAsWritten(t *testing.T) {
	cfg, err := configtest.Load[Config](t, "gpu_samples/all", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, &Config{MaxAge: 10 * time.Minute, MaxBytes: 128 << 20, MaxDevices: 16, Servers: []ServerConfig{{
		Endpoint: "http://127.0.0.1:8000/metrics", Service: "vllm", Devices: []string{"GPU-1"}, Pod: "serve/infer",
		Interval: 2 * time.Second,
	}}}, cfg)
	cfg, err = configtest.Load[Config](t, "gpu_samples", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, &Config{MaxAge: 5 * time.Minute, MaxBytes: 64 << 20, MaxDevices: 1024}, cfg)
}

func TestConfigReportsEveryProblem(t *testing.T) {
	_, err := configtest.Load[Config](t, "gpu_samples/bad", createDefaultConfig)
	require.EqualError(t, err,
		"`max_age` must be at least 1s, found 1ms\n`max_bytes` must be at least 1048576, found 0\n`max_devices` must be positive, found 0")
}
