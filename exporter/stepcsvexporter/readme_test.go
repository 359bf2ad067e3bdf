// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsvexporter

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

// The README's configuration loads, and the README names every key and every metric of the component.
func TestReadmeIsTrue(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(text), "```yaml\n")
	require.True(t, ok)
	block, _, _ := strings.Cut(after, "```")
	var all map[string]map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(block), &all))
	section, ok := all["exporters"]["step_csv"].(map[string]any)
	require.True(t, ok)
	cfg := NewDefaultConfig().(*Config)
	require.NoError(t, confmap.NewFromStringMap(section).Unmarshal(cfg))
	require.NoError(t, confmap.Validate(cfg))

	for _, c := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[Rotation]()} {
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
