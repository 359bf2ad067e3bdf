// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

func TestConfigurationsOfTheReadmeAreValid(t *testing.T) {
	b, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := strings.Split(string(b), "```yaml\n")[1:]
	assert.Len(t, blocks, 2)
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		var all map[string]map[string]map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &all), text)
		cfg := newDefaultConfig().(*Config)
		require.NoError(t, confmap.NewFromStringMap(all["processors"]["gpu_derive"]).Unmarshal(cfg), text)
		assert.NoError(t, confmap.Validate(cfg), text)
	}
}
