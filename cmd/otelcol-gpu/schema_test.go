// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !ottl

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/featuregate"
	"go.opentelemetry.io/collector/otelcol"
	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/internal/configschema"
)

const schemaURL = "https://raw.githubusercontent.com/otelgpu/otelgpu/main/config/otelcol-gpu.schema.json"

// fullBuildTypes are the components that only the full build has. The schema accepts any
// configuration of them.
var fullBuildTypes = map[string][]string{
	"receivers":  {"prometheus", "kafka", "host_metrics"},
	"processors": {"filter", "tail_sampling", "transform", "k8s_attributes", "resource_detection"},
	"exporters":  {"kafka", "load_balancing"},
}

func updateSchemas() bool { return os.Getenv("OTELGPU_UPDATE_SCHEMA") != "" }

// described reads the configurations of components. With OTELGPU_UPDATE_SCHEMA it also writes their
// config.schema.yaml.
func described[F component.Factory](t *testing.T, into map[string]*configschema.Node, factories map[component.Type]F) {
	t.Helper()
	for typ, f := range factories {
		node, err := configschema.Of(f.CreateDefaultConfig())
		require.NoError(t, err)
		into[typ.String()] = node
		dir := filepath.Join("..", "..", strings.TrimPrefix(reflect.TypeOf(f.CreateDefaultConfig()).Elem().PkgPath(), "github.com/otelgpu/otelgpu/"))
		if _, err := os.Stat(filepath.Join(dir, "config.schema.yaml")); err != nil || !updateSchemas() {
			continue // a component of the Collector's, or compared with the file in internal/configtest
		}
		b, err := node.YAML()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.schema.yaml"), b, 0o644))
	}
}

// TestSchemaIsCurrent generates the schema from the components' configuration structs and compares
// it with the file that the binary embeds.
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
	telemetry, err := configschema.Of(all.Telemetry.CreateDefaultConfig())
	require.NoError(t, err)
	want, err := configschema.Document(schemaURL, sections, telemetry)
	require.NoError(t, err)
	if updateSchemas() {
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

// configurations returns every ready pipeline and every other complete configuration of the
// repository, decoded as an editor does.
func configurations(t *testing.T) map[string]map[string]any {
	t.Helper()
	texts := map[string]string{}
	for _, name := range config.Names() {
		text, err := config.YAML(name)
		require.NoError(t, err)
		texts[name] = text
	}
	for _, file := range []string{
		"deploy/own-collector/config.yaml", "deploy/helm/otelgpu/files/config/direct.yaml",
		"deploy/helm/otelgpu/files/config/capture.yaml",
	} {
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

// fragments returns the YAML blocks of all documents that consist of sections of a configuration,
// decoded.
func fragments(t *testing.T) map[string]map[string]any {
	t.Helper()
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	sections := append(configschema.Sections(), "service")
	out := map[string]map[string]any{}
	for file, text := range documents(t) {
		for i, m := range block.FindAllSubmatch(text, -1) {
			var tree map[string]any
			if yaml.Unmarshal(m[1], &tree) != nil || len(tree) == 0 {
				continue // an excerpt with dots, a list
			}
			other := func(key string) bool { return !slices.Contains(sections, key) }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(tree)), other) {
				out[fmt.Sprintf("%s, block %d", file, i+1)] = decoded(t, string(m[1]))
			}
		}
	}
	return out
}

// accepts reports whether the Collector accepts a configuration, alone or added to a pipeline.
func accepts(t *testing.T, tree map[string]any) bool {
	t.Helper()
	text, err := json.Marshal(tree)
	require.NoError(t, err)
	set := settings(string(text))
	if service, _ := tree["service"].(map[string]any); service["pipelines"] == nil {
		const pipeline = `{receivers: {otlp: {protocols: {grpc: }}}, exporters: {debug: },
			service: {pipelines: {traces: {receivers: [otlp], exporters: [debug]}}}}`
		uris := &set.ConfigProviderSettings.ResolverSettings.URIs
		*uris = append([]string{"yaml:" + pipeline}, *uris...)
	}
	c, err := otelcol.NewCollector(set)
	require.NoError(t, err)
	return c.DryRun(t.Context()) == nil
}

// otherKeys has keys that no configuration of the repository has: of the Collector's own telemetry,
// with headers in both forms, and of exporters.
const otherKeys = `
receivers: {otlp: {protocols: {http: {cors: {allowed_origins: ["*"]}, response_headers: {a: b}}}}}
exporters:
  otlp_http: {endpoint: "https://localhost", headers: {api-key: x}, retry_on_failure: {max_interval: 1s}}
  otlp_http/list: {endpoint: "https://localhost", headers: [{name: api-key, value: x}], tls: {insecure_skip_verify: true}}
service:
  telemetry:
    resource: {service.name: x, service.instance.id: , schema_url: x}
    logs:
      level: info
      sampling: {enabled: true, tick: 10s, initial: 10, thereafter: 100}
      initial_fields: {a: b}
      processors:
        - batch:
            schedule_delay: 1
            exporter: {otlp: {protocol: http/protobuf, endpoint: x, headers: [{name: a, value: b}]}}
        - simple: {exporter: {console: {}}}
    metrics:
      level: detailed
      readers:
        - periodic: {interval: 1, exporter: {otlp: {protocol: grpc, endpoint: x, temporality_preference: delta}}}
        - pull: {exporter: {prometheus: {host: localhost, port: 8888, with_resource_constant_labels: {included: [a]}}}}
      views:
        - selector: {instrument_name: a, meter_name: b}
          stream: {name: c, aggregation: {explicit_bucket_histogram: {boundaries: [1]}}, attribute_keys: {excluded: [a]}}
    traces:
      propagators: [b3]
      limits: {attribute_count_limit: 1}
      sampler:
        parent_based: {root: {parent_based: {root: {trace_id_ratio_based: {ratio: 0.5}}}}, local_parent_sampled: {always_on: {}}}
      processors:
        - batch: {exporter: {otlp: {protocol: grpc, endpoint: x, timeout: 5}}}
        - simple: {exporter: {otlp: {protocol: grpc, endpoint: x, insecure: true}}}
  pipelines: {traces: {receivers: [otlp], exporters: [otlp_http, otlp_http/list]}}
`

// earlierHeaders is the form of the SDK's configuration before version 0.3.
const earlierHeaders = `
service: {telemetry: {traces: {processors: [{batch: {exporter: {otlp: {protocol: grpc, endpoint: x, headers: {a: b}}}}}]}}}
`

func TestSchemaAcceptsHeadersAsAMap(t *testing.T) {
	tree := decoded(t, earlierHeaders)
	require.True(t, accepts(t, tree))
	require.NoError(t, compiledSchema(t).Validate(tree))
}

// TestSchemaRejectsWhatTheCollectorRejects misspells each key of each configuration of the
// repository and of its documents, one at a time.
func TestSchemaRejectsWhatTheCollectorRejects(t *testing.T) {
	gates := featuregate.GlobalRegistry()
	require.NoError(t, gates.Set("service.profilesSupport", true))
	defer func() { require.NoError(t, gates.Set("service.profilesSupport", false)) }()
	s := compiledSchema(t)
	trees := configurations(t)
	for name, tree := range fragments(t) {
		assert.NoError(t, s.Validate(tree), name)
		trees[name] = tree
	}
	trees["other keys"] = decoded(t, otherKeys)
	checked := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(trees)) {
		tree := trees[name]
		core := accepts(t, tree) // others are for the full build, or an excerpt
		require.True(t, core || name != "other keys")
		var walk func(at any, where string)
		walk = func(at any, where string) {
			if list, ok := at.([]any); ok {
				for _, item := range list {
					walk(item, where+"/[]")
				}
			}
			object, _ := at.(map[string]any)
			for _, key := range slices.Sorted(maps.Keys(object)) {
				value := object[key]
				here := where + "/" + key
				if ofTheFullBuild(here) {
					continue
				}
				if !checked[here] {
					delete(object, key)
					object["x"+key] = value
					rejected := s.Validate(tree) != nil
					if core {
						assert.Equal(t, !accepts(t, tree), rejected, "%s: %s", name, here)
					} else {
						assert.True(t, rejected, "%s: %s", name, here)
					}
					checked[here] = core
					delete(object, "x"+key)
					object[key] = value
				}
				walk(value, here)
			}
		}
		walk(tree, "")
	}
	require.Greater(t, len(checked), 350)
}

// ofTheFullBuild reports whether a key belongs to a component of the full build, which the schema
// does not describe.
func ofTheFullBuild(at string) bool {
	parts := strings.Split(at, "/")
	if len(parts) < 4 {
		return false
	}
	typ, _, _ := strings.Cut(parts[2], "/")
	return slices.Contains(fullBuildTypes[parts[1]], typ)
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
