// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding"
	"errors"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/config"
)

type manifest struct {
	Extensions []module
	Receivers  []module
	Processors []module
	Exporters  []module
	Connectors []module
	Converters []module
}

type module struct{ GoMod, Import string }

func (m manifest) sections() map[string][]module {
	return map[string][]module{
		"extensions": m.Extensions, "receivers": m.Receivers, "processors": m.Processors,
		"exporters": m.Exporters, "connectors": m.Connectors,
	}
}

func readManifest(t *testing.T, file string) manifest {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var m manifest
	require.NoError(t, yaml.Unmarshal(text, &m))
	return m
}

// packages are import paths; a manifest entry without "import" is imported by its module path.
func packages(modules []module) []string {
	var out []string
	for _, m := range modules {
		p, _, _ := strings.Cut(m.GoMod, " ")
		if m.Import != "" {
			p = m.Import
		}
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// imported parses the text of components.go, because its imports are what the binary actually
// contains.
func imported(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("components.go")
	require.NoError(t, err)
	_, block, _ := strings.Cut(string(text), "import (")
	block, _, _ = strings.Cut(block, "\n)")
	var out []string
	for line := range strings.Lines(block) {
		p := strings.Trim(strings.TrimSpace(line), "\"")
		if slices.Contains([]string{"extension", "receiver", "processor", "exporter", "connector"}, path.Base(path.Dir(p))) ||
			strings.Contains(p, "extension/storage/") {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

func TestComponentsEqualTheBuilderManifest(t *testing.T) {
	m := readManifest(t, "builder.yaml")
	var listed []string
	for _, s := range m.sections() {
		listed = append(listed, packages(s)...)
	}
	slices.Sort(listed)
	require.Equal(t, listed, imported(t))

	f, err := factories()
	require.NoError(t, err)
	for section, n := range map[string]int{
		"extensions": distinct(f.ExtensionModules), "receivers": distinct(f.ReceiverModules),
		"processors": distinct(f.ProcessorModules), "exporters": distinct(f.ExporterModules),
		"connectors": distinct(f.ConnectorModules),
	} {
		var modules []string
		for _, p := range m.sections()[section] {
			modules = append(modules, p.GoMod)
		}
		slices.Sort(modules)
		require.Len(t, slices.Compact(modules), n, section)
	}
}

func distinct(modules map[component.Type]string) int {
	var all []string
	for _, m := range modules {
		all = append(all, m)
	}
	slices.Sort(all)
	return len(slices.Compact(all))
}

func TestTheFullManifestHoldsTheCore(t *testing.T) {
	core, full := readManifest(t, "builder.yaml").sections(), readManifest(t, "builder-full.yaml").sections()
	for section := range core {
		require.Subset(t, packages(full[section]), packages(core[section]), section)
	}
	// Both set Go's memory limit, as the distribution does.
	for _, file := range []string{"builder.yaml", "builder-full.yaml"} {
		require.Equal(t, []string{"github.com/otelgpu/otelgpu/config/memorylimitconverter"},
			packages(readManifest(t, file).Converters), file)
	}
	for _, name := range []string{
		"k8sattributesprocessor", "prometheusreceiver", "kafkareceiver", "kafkaexporter",
		"loadbalancingexporter",
	} {
		var all []string
		for _, s := range full {
			all = append(all, packages(s)...)
		}
		require.True(t, slices.ContainsFunc(all, func(p string) bool { return path.Base(p) == name }), name)
	}
}

func TestOwnTypesAreSnakeCaseAndPresent(t *testing.T) {
	f, err := factories()
	require.NoError(t, err)
	for typ, m := range map[string]map[component.Type]string{
		"gpu_samples": f.ExtensionModules, "host_check": f.ExtensionModules, "gpu": f.ReceiverModules, "kineto": f.ReceiverModules, "nsys": f.ReceiverModules,
		"gpu_join": f.ProcessorModules, "gpu_derive": f.ProcessorModules, "gpu_metrics": f.ConnectorModules,
		"chrome_trace": f.ExporterModules, "step_csv": f.ExporterModules,
	} {
		require.Contains(t, m, component.MustNewType(typ))
	}
}

// Every component of the project rejects numbers that an option does not accept.
func TestNumbersThatNoOptionTakesAreRefused(t *testing.T) {
	f, err := factories()
	require.NoError(t, err)
	var all []component.Factory
	for _, x := range f.Extensions {
		all = append(all, x)
	}
	for _, x := range f.Receivers {
		all = append(all, x)
	}
	for _, x := range f.Processors {
		all = append(all, x)
	}
	for _, x := range f.Exporters {
		all = append(all, x)
	}
	for _, x := range f.Connectors {
		all = append(all, x)
	}
	own := 0
	for _, x := range all {
		cfg := x.CreateDefaultConfig()
		typ := reflect.TypeOf(cfg).Elem()
		key := firstNumber(typ)
		if !strings.Contains(typ.PkgPath(), "/otelgpu/") || key == "" {
			continue
		}
		own++
		for _, wrong := range []any{1e30, 2.5} {
			err := confmap.NewFromStringMap(map[string]any{key: wrong}).Unmarshal(cfg)
			require.ErrorContains(t, err, "`"+key+"` must be a whole number", x.Type())
		}
	}
	require.GreaterOrEqual(t, own, 9)
	for _, typ := range []string{"kineto", "nsys"} {
		cfg := f.Receivers[component.MustNewType(typ)].CreateDefaultConfig()
		for key, want := range map[string]string{
			"detail":     "`detail`: unknown detail \"1\" (one of auto, steps, annotations, operators, kernels)",
			"attributes": "`attributes`: must be lean or full, found \"1\"",
			"extent":     "`extent`: unknown extent \"1\" (one of all, steps, steps_but_last)",
		} {
			require.ErrorContains(t, confmap.NewFromStringMap(map[string]any{key: 1}).Unmarshal(cfg), want)
		}
		require.NoError(t, confmap.NewFromStringMap(map[string]any{"detail": "steps", "batch_spans": 0}).Unmarshal(cfg))
		require.EqualError(t, confmap.Validate(cfg),
			"`include` must name at least one pattern, found none\n`batch_spans` must be positive, found 0")
	}
}

// firstNumber returns the key of the first integer of a configuration.
func firstNumber(t reflect.Type) string {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		switch {
		case options == "squash" && f.Type.Kind() == reflect.Struct && !f.Anonymous:
			if key := firstNumber(f.Type); key != "" {
				return key
			}
		case f.Type.Kind() == reflect.Int || f.Type.Kind() == reflect.Int64:
			if name != "-" && !f.Type.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
				return name
			}
		}
	}
	return ""
}

// Every component of the Kubernetes pipelines must be in the full build. A component type is its
// package name without the kind, with underscores, except for the two renamed OTLP exporters.
func TestTheKubernetesPipelinesRunOnTheFullBuild(t *testing.T) {
	renamed := map[string]string{"otlpgrpcexporter": "otlpexporter"}
	full := readManifest(t, "builder-full.yaml").sections()
	for _, name := range []string{
		"dcgm-exporter", "kafka/agent", "kafka/gateway", "kubernetes/agent",
		"kubernetes/dcgm-exporter", "kubernetes/gateway",
	} {
		text, err := config.YAML(name)
		require.NoError(t, err)
		var tree map[string]map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &tree))
		for section, kind := range map[string]string{
			"extensions": "extension", "receivers": "receiver", "processors": "processor", "exporters": "exporter",
			"connectors": "connector",
		} {
			var known []string
			for _, p := range packages(full[section]) {
				known = append(known, path.Base(p))
			}
			for id := range tree[section] {
				typ, _, _ := strings.Cut(id, "/")
				pkg := strings.ReplaceAll(typ, "_", "") + kind
				if r, ok := renamed[pkg]; ok {
					pkg = r
				}
				require.Contains(t, known, pkg, "%s: %s", name, id)
			}
		}
	}
}

// A ready pipeline for the full build is rejected by name, with the remedy; a misspelling is not.
func TestPipelinesOfTheFullBuildAreRefusedWithTheRemedy(t *testing.T) {
	for _, name := range []string{
		"dcgm-exporter", "kafka/agent", "kafka/gateway", "kubernetes/agent",
		"kubernetes/dcgm-exporter", "kubernetes/gateway",
	} {
		require.ErrorContains(t, run([]string{"validate", "--config", name}),
			`part of the full build only: use otelcol-gpu-full of the release, or "make build-full"`, name)
	}
	require.NotContains(t, withHint(errors.New(`'exporters' unknown type: "kafak" for id: "kafak"`), nil).Error(), "full build")
	require.ErrorContains(t, withHint(errors.New(`'exporters' unknown type: "debgu" for id: "debgu"`), nil), `(did you mean "debug"?)`)
}

// The Collector reports one missing component per section; the hint names all of them, and a build
// that has them.
func TestEveryMissingComponentIsNamed(t *testing.T) {
	validate := func(receivers, processors string) string {
		yaml := "yaml:{receivers: {otlp: {protocols: {grpc: {}}}" + receivers + "}, processors: {gpu_derive: {}" + processors + "}, " +
			"exporters: {debug: {}}, service: {pipelines: {traces: {receivers: [otlp], exporters: [debug]}}}}"
		err := run([]string{"validate", "--config", yaml})
		require.Error(t, err)
		return err.Error()
	}
	require.Contains(t, validate(", kafka: {}, prometheus: {}", ", tail_sampling: {}"),
		`(the processor "tail_sampling", the receiver "kafka", the receiver "prometheus" are part of the full build only: use`)
	require.NotContains(t, validate(", kafka: {}", ", tail_sampling: {}"), "ottl", "a build without the receiver")
	require.Contains(t, validate("", ", tail_sampling: {}, transform: {}"), `"go build -tags ottl ./cmd/otelcol-gpu"`)
	require.Contains(t, validate(", ebpf: {}, kafka: {}", ""),
		`(the full build has the receiver "kafka", but no build of otelgpu has the receiver "ebpf": correct the names, or build`)
	require.Contains(t, validate(", ebpf: {}, jmx: {}", ""),
		`(no build of otelgpu has the receiver "ebpf", the receiver "jmx": correct the names, or build`)
	require.Contains(t, validate(", kinteo: {}, otpl/2: {}", ""), `(did you mean "kineto" and "otlp"?)`)
	require.NotContains(t, validate(", kinteo: {}, kafka: {}", ""), "did you mean", "the full build is needed, too")
}

// The core distribution accepts the configuration of the sidecar Collector in the manifest.
func TestTheSidecarsConfigurationIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/snippets/sidecar.yaml")
	require.NoError(t, err)
	var d struct {
		Spec struct {
			Template struct {
				Spec struct {
					InitContainers []struct {
						Name string
						Args []string
						Env  []struct{ Name, Value string }
					} `yaml:"initContainers"`
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &d))
	collector := d.Spec.Template.Spec.InitContainers[1]
	require.Equal(t, []string{"--config=env:COLLECTOR"}, collector.Args)
	t.Setenv("NODE_IP", "fd00::1")
	for _, e := range collector.Env {
		if e.Name == "COLLECTOR" {
			t.Setenv(e.Name, e.Value)
		}
	}
	require.NoError(t, run(append([]string{"validate"}, collector.Args...)))
}
