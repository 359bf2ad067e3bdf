// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/semconv"
)

func TestTheReadmeIsTrue(t *testing.T) {
	b, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(b), "```yaml\n")
	require.True(t, ok)
	text, _, _ := strings.Cut(rest, "```")
	var all struct {
		Connectors map[string]map[string]any `yaml:"connectors"`
		Service    map[string]any            `yaml:"service"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &all))
	conf, ok := all.Connectors["gpu_metrics"]
	require.True(t, ok)
	cfg := newDefaultConfig().(*Config)
	require.NoError(t, confmap.NewFromStringMap(conf).Unmarshal(cfg))
	assert.NoError(t, confmap.Validate(cfg))

	// Every metric that the connector may write is named, and every activity state.
	for _, d := range definitions {
		short := d.name[strings.LastIndex(d.name, "."):]
		assert.True(t, strings.Contains(string(b), "`"+d.name+"`") || strings.Contains(string(b), "`"+short+"`"), d.name)
	}
	states, _ := semconv.LookupAttribute(string(semconv.GPUActivityStateKey))
	assert.Len(t, activityStates, len(states.Members))
	for _, s := range activityStates {
		assert.Contains(t, states.Members, s)
	}
}
