// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package configtest is for tests of a component's configuration: it reads the component's test data, and holds its
// README against configuration and telemetry.
package configtest

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.yaml.in/yaml/v3"
)

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// README reads README.md and metadata.yaml of the working directory and checks them against a component of that kind
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

const (
	module   = "github.com/otelgpu/otelgpu/"
	optional = "go.opentelemetry.io/collector/config/configoptional"
)

// keys are the keys that a configuration has, at any depth. Structs of the Collector's own, as of its queues, count as
// one key: their documentation is elsewhere.
func keys(cfg any) []string {
	var out []string
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(t.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if t.PkgPath() == optional {
			value, _ := t.FieldByName("value")
			walk(value.Type)
			return
		}
		if seen[t] || !strings.HasPrefix(t.PkgPath()+"/", module) {
			return
		}
		seen[t] = true
		for f := range t.Fields() {
			key, options, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
			if key != "" && key != "-" {
				out = append(out, key)
			}
			if key != "" || strings.Contains(options, "squash") {
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeOf(cfg))
	return out
}

// Load reads the entry id of testdata/config.yaml into a default configuration and validates it. The configuration is
// nil where a key could not be read at all.
func Load[C any](t *testing.T, id string, defaults func() component.Config) (*C, error) {
	t.Helper()
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	sub, err := all.Sub(id)
	require.NoError(t, err)
	cfg := defaults()
	if err := sub.Unmarshal(cfg); err != nil {
		return nil, err
	}
	return any(cfg).(*C), confmap.Validate(cfg)
}
