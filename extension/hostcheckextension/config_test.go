// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hostcheckextension

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/configtest"
)

func TestConfigIsReadAsWritten(t *testing.T) {
	cfg, err := configtest.Load[Config](t, "host_check/all", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, &Config{Hosts: []string{"gpu.example.com", "Collector.internal"}}, cfg)
	cfg, err = configtest.Load[Config](t, "host_check", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, &Config{}, cfg)
}

func TestConfigReportsEveryProblem(t *testing.T) {
	_, err := configtest.Load[Config](t, "host_check/bad", createDefaultConfig)
	require.EqualError(t, err,
		"`hosts::0` must be a host name such as gpu.example.com, without port or wildcard, found \"\"\n"+
			"`hosts::1` must be a host name such as gpu.example.com, without port or wildcard, found \"*.example.com\"\n"+
			"`hosts::2` must be a host name such as gpu.example.com, without port or wildcard, found \"gpu.example.com:4318\"")
}
