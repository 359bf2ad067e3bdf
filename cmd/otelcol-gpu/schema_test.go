// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !ottl

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/internal/configschema"
)

const schemaURL = "https://raw.githubusercontent.com/otelgpu/otelgpu/main/config/otelcol-gpu.schema.json"

// fullBuildTypes are the components that only the full build has. The schema accepts any configuration of them.
var fullBuildTypes = map[string][]string{
	"receivers":  {"prometheus", "kafka", "host_metrics"},
	"processors": {"filter", "tail_sampling", "transform", "k8s_attributes", "resource_detection"},
	"exporters":  {"kafka", "load_balancing"},
}

func described[F component.Factory](t *testing.T, into map[string]*configschema.Node, factories map[component.Type]F) {
	t.Helper()
	for typ, f := range factories {
		node, err := configschema.Of(f.CreateDefaultConfig())
		require.NoError(t, err)
		into[typ.String()] = node
	}
}

// TestSchemaIsCurrent generates the schema from the components' configuration structs and compares it with the file that
// the binary embeds.
func TestSchemaIsCurrent(t *testing.T) {
	all, err := factories()
	require.NoError(t, err)
	sections := map[string]map[string]*configschema.Node{}
	for _, section := range configschema.Sections() {
		sections[section] = map[string]*configschema.Node{}
	}
	described(t, sections["receivers"], all.Receivers)
	described(t, sections["processors"], all.Processors)
	described(t, sections["exporters"], all.Exporters)
	described(t, sections["connectors"], all.Connectors)
	described(t, sections["extensions"], all.Extensions)

	full := readManifest(t, "builder-full.yaml").sections()
	for section, types := range fullBuildTypes {
		for _, typ := range types {
			pkg := strings.ReplaceAll(typ, "_", "") + strings.TrimSuffix(section, "s")
			assert.True(t, slices.ContainsFunc(packages(full[section]), func(p string) bool { return path.Base(p) == pkg }),
				"the full build has no %s", pkg)
			require.NotContains(t, sections[section], typ, "the core build has it")
			sections[section][typ] = nil
		}
	}
	want, err := configschema.Document(schemaURL, sections)
	require.NoError(t, err)
	if os.Getenv("OTELGPU_UPDATE_SCHEMA") != "" {
		require.NoError(t, os.WriteFile(filepath.Join("..", "..", "config", "otelcol-gpu.schema.json"), want, 0o644))
		return
	}
	require.Equal(t, string(want), string(config.Schema()), "go generate ./internal/configschema")
}

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "config", "otelcol-gpu.schema.json"))
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource(schemaURL, doc))
	s, err := c.Compile(schemaURL)
	require.NoError(t, err)
	return s
}

// configurations returns every ready pipeline and every other complete configuration of the repository, decoded as an
// editor does.
func configurations(t *testing.T) map[string]map[string]any {
	t.Helper()
	texts := map[string]string{}
	for _, name := range config.Names() {
		text, err := config.YAML(name)
		require.NoError(t, err)
		texts[name] = text
	}
	for _, file := range []string{"deploy/own-collector/config.yaml", "deploy/helm/otelgpu/files/config/direct.yaml"} {
		b, err := os.ReadFile(filepath.Join("..", "..", file))
		require.NoError(t, err)
		texts[file] = string(b)
	}
	out := map[string]map[string]any{}
	for name, text := range texts {
		out[name] = decoded(t, text)
	}
	return out
}

// decoded reads YAML into the types of JSON.
func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var tree any
	require.NoError(t, yaml.Unmarshal([]byte(text), &tree))
	b, err := json.Marshal(tree)
	require.NoError(t, err)
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	require.NoError(t, err)
	return out.(map[string]any)
}

func TestSchemaAcceptsTheReadyPipelines(t *testing.T) {
	s := compiledSchema(t)
	for name, tree := range configurations(t) {
		assert.NoError(t, s.Validate(tree), name)
	}
}

// TestSchemaRejectsEveryMisspelledKey misspells each key of each ready pipeline, one at a time.
func TestSchemaRejectsEveryMisspelledKey(t *testing.T) {
	s := compiledSchema(t)
	checked := 0
	for name, tree := range configurations(t) {
		var walk func(at map[string]any, where string)
		walk = func(at map[string]any, where string) {
			for key, value := range at {
				here := path.Join(where, key)
				if free(here) {
					continue
				}
				delete(at, key)
				wrong := "x" + key
				at[wrong] = value
				assert.Error(t, s.Validate(tree), "%s: %s", name, here)
				checked++
				delete(at, wrong)
				at[key] = value
				if inner, ok := value.(map[string]any); ok {
					walk(inner, here)
				}
			}
		}
		walk(tree, "")
	}
	require.Greater(t, checked, 500)
}

// free reports whether the schema does not describe the keys at a path: below components that only the full build has,
// and in the declarative configuration of the SDK.
func free(at string) bool {
	parts := strings.Split(at, "/")
	if len(parts) > 3 && parts[0] == "service" && parts[1] == "telemetry" {
		return true
	}
	if len(parts) < 3 {
		return false
	}
	return slices.Contains(fullBuildTypes[parts[0]], parts[1])
}

func TestSchemaRejectsValuesOfAnotherKind(t *testing.T) {
	s := compiledSchema(t)
	for text, accepted := range map[string]bool{
		"processors: {gpu_join: {settle: 8s}}":                                  true,
		"processors: {gpu_join: {settle: '${env:SETTLE}'}}":                     true,
		"processors: {gpu_join: {settle: 8 seconds}}":                           false,
		"processors: {gpu_join: {settle: 8}}":                                   false,
		"processors: {gpu_join: {max_spans: many}}":                             false,
		"processors: {gpu_join: {attributes: lean}}":                            true,
		"processors: {gpu_join: {attributes: fat}}":                             false,
		"processors: {gpu_join/other: {}}":                                      true,
		"processors: {gpu_joint: {}}":                                           false,
		"processors: {gpu_join: }":                                              true,
		"processors: {gpu_join: {retry_on_failure: {max_elapsed: 0}}}":          false,
		"receivers: {gpu: {kubernetes: {enabled: false}}}":                      true,
		"receivers: {gpu: {metrics: {gpu.utilization: {enabled: 1}}}}":          false,
		"service: {pipelines: {trace: {receivers: [otlp], exporters: [otlp]}}}": false,
	} {
		err := s.Validate(decoded(t, text))
		assert.Equal(t, accepted, err == nil, "%s: %v", text, err)
	}
}

func TestConfigPrintsTheSchema(t *testing.T) {
	root, _, err := command()
	require.NoError(t, err)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"config", "--schema"})
	require.NoError(t, root.Execute())
	assert.JSONEq(t, string(config.Schema()), out.String())
	require.ErrorContains(t, run([]string{"config", "--schema", "tempo"}), "remove one of the two")
}
