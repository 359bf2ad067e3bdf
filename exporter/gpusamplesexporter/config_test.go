// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/configtest"
)

func TestConfigIsReadAsWritten(t *testing.T) {
	cfg, err := configtest.Load[Config](t, "gpu_samples/all", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, "gpu_samples/node", cfg.Samples.String())
	assert.Equal(t, map[string]string{
		"GPU-00000000-0000-0000-0000-000000000001/7": "MIG-00000000-0000-0000-0000-000000000007",
	}, cfg.Instances)
	assert.Equal(t, map[string]string{"node-1/0": "GPU-0123456789abcdef"}, cfg.Devices)
	cfg, err = configtest.Load[Config](t, "gpu_samples", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, "gpu_samples", cfg.Samples.String())
	assert.Empty(t, cfg.Instances)
}

func TestConfigReportsEveryProblem(t *testing.T) {
	_, err := configtest.Load[Config](t, "gpu_samples/bad", createDefaultConfig)
	require.EqualError(t, err, "`instances` must have keys of the form GPU-<uuid>/<GPU_I_ID>, found \"GPU-1\"\n"+
		"`instances` must have values of the form MIG-<uuid>, found \"aaaa\" for \"GPU-1\"")
}
