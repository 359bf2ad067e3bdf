// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package configtest is for tests of a component's configuration: it reads the component's test data, and compares its
// README and config.schema.yaml with configuration and telemetry.
package configtest

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/internal/configschema"
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

	Schema(t, defaults)

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

// Schema compares config.schema.yaml of the working directory with the configuration that defaults makes, and writes it
// instead if OTELGPU_UPDATE_SCHEMA is set (go generate ./internal/configschema). It also checks, by the encoder of the
// Collector instead of the generator's reflection, that every key of the defaults is in the schema with its value, and
// that every enumerated word is accepted and no other.
func Schema(t *testing.T, defaults func() component.Config) {
	t.Helper()
	node, err := configschema.Of(defaults())
	require.NoError(t, err)
	want, err := node.YAML()
	require.NoError(t, err)
	if os.Getenv("OTELGPU_UPDATE_SCHEMA") != "" {
		require.NoError(t, os.WriteFile("config.schema.yaml", want, 0o644))
	}
	have, err := os.ReadFile("config.schema.yaml")
	require.NoError(t, err)
	require.Equal(t, string(want), string(have), "go generate ./internal/configschema")

	conf := confmap.New()
	require.NoError(t, conf.Marshal(defaults()))
	covered(t, node, conf.ToStringMap(), "")
	words(t, node, defaults, nil)
}

// covered checks that a schema has each key of an encoded configuration, with the same default.
func covered(t *testing.T, node *configschema.Node, values map[string]any, prefix string) {
	t.Helper()
	fields := node.Keys()
	for key, value := range values {
		field := fields[key]
		if !assert.NotNil(t, field, "the schema lacks %s", prefix+key) {
			continue
		}
		switch value := value.(type) {
		case nil:
			assert.Nil(t, field.Default, prefix+key)
		case map[string]any:
			if field.Kind == configschema.Object {
				covered(t, field, value, prefix+key+"::")
			}
		default:
			if field.Default == nil {
				assert.Empty(t, value, prefix+key)
			} else if !reflect.ValueOf(value).IsZero() {
				assert.Equal(t, fmt.Sprint(field.Default), short(value), prefix+key)
			}
		}
	}
}

// short formats durations without parts of 0, as people write them.
func short(value any) string {
	if list := reflect.ValueOf(value); list.Kind() == reflect.Slice {
		var out []string
		for i := range list.Len() {
			out = append(out, short(list.Index(i).Interface()))
		}
		return "[" + strings.Join(out, " ") + "]"
	}
	text := fmt.Sprint(value)
	if d, err := time.ParseDuration(text); err == nil && strings.HasSuffix(text, "0s") && d >= time.Minute {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "0s"), "0m")
	}
	return text
}

// words gives each enumerated key each of its words, and one that is none of them.
func words(t *testing.T, node *configschema.Node, defaults func() component.Config, path []string) {
	t.Helper()
	read := func(word string) string {
		var tree any = word
		for _, key := range slices.Backward(path) {
			tree = map[string]any{key: tree}
		}
		cfg := defaults()
		if err := confmap.NewFromStringMap(tree.(map[string]any)).Unmarshal(cfg); err != nil {
			return err.Error()
		}
		if err := confmap.Validate(cfg); err != nil {
			return err.Error()
		}
		return ""
	}
	for _, word := range node.Enum {
		assert.NotContains(t, read(word), `"`+word+`"`, "%v", path)
	}
	if node.Enum != nil {
		assert.Contains(t, read("not-a-word"), `"not-a-word"`, "%v", path)
	}
	for key, field := range node.Keys() {
		words(t, field, defaults, append(slices.Clip(path), key))
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
