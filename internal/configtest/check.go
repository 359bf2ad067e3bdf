// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package configtest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// README reads README.md and metadata.yaml of the working directory and holds them against a component of that kind
// ("receivers" and so on) and type, whose default configuration defaults makes:
//
//   - the first YAML block of the README configures the component, and each block that does is valid;
//   - the section "Configuration" names every key of the configuration that is not the Collector's own;
//   - the README names every metric of the component by its full name, or links to documentation.md, which does.
func README(t *testing.T, kind, componentType string, defaults func() component.Config) {
	t.Helper()
	b, err := os.ReadFile("README.md")
	require.NoError(t, err)
	readme := string(b)

	for i, block := range yamlBlock.FindAllStringSubmatch(readme, -1) {
		var all map[string]map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(block[1]), &all), block[1])
		section, ok := all[kind][componentType]
		if !ok {
			require.Positive(t, i, "the first block must configure %s", componentType)
			continue
		}
		values, _ := section.(map[string]any) // an empty key is a component with its defaults
		cfg := defaults()
		require.NoError(t, confmap.NewFromStringMap(values).Unmarshal(cfg), block[1])
		require.NoError(t, confmap.Validate(cfg), block[1])
	}

	_, configuration, ok := strings.Cut(readme, "\n## Configuration\n")
	require.True(t, ok)
	configuration, _, _ = strings.Cut(configuration, "\n## ")
	all := keys(defaults())
	require.NotEmpty(t, all)
	for _, key := range all {
		named := strings.Contains(configuration, "`"+key+"`") || strings.Contains(configuration, "`"+key+": ")
		assert.True(t, named, "the README does not name the key %s", key)
	}

	var meta struct {
		Telemetry struct{ Metrics map[string]any }
	}
	data, err := os.ReadFile("metadata.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, &meta))
	require.NotEmpty(t, meta.Telemetry.Metrics)
	if strings.Contains(readme, "(documentation.md)") {
		return
	}
	for name := range meta.Telemetry.Metrics {
		assert.True(t, strings.Contains(readme, "`otelcol_"+name), "the README does not name the metric %s", name)
	}
}
