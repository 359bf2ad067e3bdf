// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package readmetest holds the README of a component against its configuration and its telemetry.
package readmetest

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

// Check reads README.md and metadata.yaml of the working directory. The first YAML block of the README must configure the
// component (kind is "exporters" and so on) and load into cfg, a pointer to its default configuration; the README must name
// every key of the structs keys, and every metric that the component reports of itself.
func Check(t *testing.T, kind, component string, cfg any, keys ...reflect.Type) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(text), "```yaml\n")
	require.True(t, ok)
	block, _, _ := strings.Cut(after, "```")
	var all map[string]map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(block), &all))
	section, ok := all[kind][component].(map[string]any)
	require.True(t, ok)
	require.NoError(t, confmap.NewFromStringMap(section).Unmarshal(cfg))
	require.NoError(t, confmap.Validate(cfg))

	for _, c := range keys {
		for f := range c.Fields() {
			if key, _, _ := strings.Cut(f.Tag.Get("mapstructure"), ","); key != "" {
				assert.True(t, strings.Contains(string(text), "- `"+key+"`"), "key %s", key)
			}
		}
	}
	var meta struct {
		Telemetry struct{ Metrics map[string]any }
	}
	data, err := os.ReadFile("metadata.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, &meta))
	require.NotEmpty(t, meta.Telemetry.Metrics)
	for name := range meta.Telemetry.Metrics {
		assert.True(t, strings.Contains(string(text), "`otelcol_"+name+"`"), "metric %s", name)
	}
}
