// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/otel/semconv/v1.43.0/hwconv"

	"github.com/otelgpu/otelgpu/semconv"
)

const root = "../.."

var (
	whole  = regexp.MustCompile(`^(gpu|gpuspan|hw)(\.[a-z][a-z0-9_]*)+$`)
	quoted = regexp.MustCompile("`((?:gpu|gpuspan|hw)(?:\\.[a-z][a-z0-9_]*)+)`")
	// inYAML matches a name in a configuration: in quotes, in brackets, as a key or alone.
	inYAML = regexp.MustCompile(`(?:^|[\s"'\[{(,])((?:gpu|gpuspan|hw)(?:\.[a-z][a-z0-9_]*)+)(?:$|[\s"'\]}),:])`)
)

// registered reports whether a word is a name of the registry, or a file name, which looks similar.
func registered(word string) bool {
	if slices.Contains([]string{".json", ".jsonl", ".yaml", ".csv", ".gz", ".md", ".go", ".sqlite", ".txt"},
		filepath.Ext(word)) {
		return true
	}
	_, a := semconv.LookupAttribute(word)
	_, m := semconv.LookupMetric(word)
	_, e := semconv.LookupEvent(word)
	return a || m || e || slices.Contains(otherHardware, word) || slices.Contains(otherHardwareMetrics, word) ||
		slices.Contains(openLIT, word)
}

// openLIT are names of OpenLIT's collector, which the gpu_samples exporter reads.
var openLIT = []string{
	"hw.gpu.power.draw", "hw.gpu.energy.consumed", "hw.gpu.temperature", "gpu.parent.uuid", "gpu.pci_address",
}

// namespace reports whether names of the registry begin with word and a dot, because documents
// mention namespaces, too.
func namespace(word string) bool {
	for _, a := range semconv.Attributes() {
		if strings.HasPrefix(a.Name, word+".") {
			return true
		}
	}
	for _, m := range semconv.Metrics() {
		if strings.HasPrefix(m.Name, word+".") {
			return true
		}
	}
	return false
}

// walk calls f for the repository's files whose name matches a pattern.
func walk(t *testing.T, pattern string, f func(path string)) {
	n := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" ||
				name == "build") {
				return filepath.SkipDir
			}
			return nil
		}
		if ok, _ := filepath.Match(pattern, d.Name()); ok {
			n++
			f(path)
		}
		return nil
	}))
	require.NotZero(t, n, "no file %s was found under %s", pattern, root)
}

// String literals that are names must be in the registry. Test files are excluded, because tests
// also use unknown names.
func TestGoSourceUsesOnlyRegisteredNames(t *testing.T) {
	walk(t, "*.go", func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("cannot parse %s: %v", path, err)
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			s, err := strconv.Unquote(lit.Value)
			domain := strings.HasSuffix(s, ".com") // of a driver in Kubernetes, such as gpu.nvidia.com
			if err == nil && whole.MatchString(s) && !domain && !registered(s) {
				t.Errorf("%s: %q is not in semconv/registry", set.Position(lit.Pos()), s)
			}
			return true
		})
	})
}

func TestShippedConfigurationsUseOnlyRegisteredNames(t *testing.T) {
	walk(t, "*.yaml", func(path string) {
		if filepath.Base(path) == "metadata.yaml" || strings.HasPrefix(path, filepath.Join(root, "semconv")+"/") {
			return
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		for i, line := range strings.Split(string(b), "\n") {
			line, _, _ = strings.Cut(line, "#")
			for _, m := range inYAML.FindAllStringSubmatch(line, -1) {
				prose := filepath.Base(path) == "config.schema.yaml" // descriptions name attributes in groups, too
				if !registered(m[1]) && !(prose && namespace(m[1])) {
					t.Errorf("%s:%d: %q is not in semconv/registry", path, i+1, m[1])
				}
			}
		}
	})
}

func TestDocumentationQuotesOnlyRegisteredNames(t *testing.T) {
	walk(t, "*.md", func(path string) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		for i, line := range strings.Split(string(b), "\n") {
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				if !registered(m[1]) && !namespace(m[1]) {
					t.Errorf("%s:%d: `%s` is not in semconv/registry", path, i+1, m[1])
				}
			}
		}
	})
}

// metadata is the part of a component's metadata.yaml that lists its telemetry.
type metadata struct {
	Attributes         map[string]metadataAttribute `mapstructure:"attributes"`
	ResourceAttributes map[string]metadataAttribute `mapstructure:"resource_attributes"`
	Metrics            map[string]metadataMetric    `mapstructure:"metrics"`
	Events             map[string]map[string]any    `mapstructure:"events"`
}

type metadataAttribute struct {
	NameOverride string   `mapstructure:"name_override"`
	Type         string   `mapstructure:"type"`
	Enum         []string `mapstructure:"enum"`
}

type metadataMetric struct {
	Unit      string         `mapstructure:"unit"`
	Gauge     map[string]any `mapstructure:"gauge"`
	Sum       map[string]any `mapstructure:"sum"`
	Histogram map[string]any `mapstructure:"histogram"`
}

func (m metadataMetric) instrument() semconv.Instrument {
	switch {
	case m.Gauge != nil:
		return semconv.InstrumentGauge
	case m.Histogram != nil:
		return semconv.InstrumentHistogram
	case m.Sum["monotonic"] == true:
		return semconv.InstrumentCounter
	case m.Sum != nil:
		return semconv.InstrumentUpDownCounter
	}
	return ""
}

func TestComponentMetadataAgreesWithTheRegistry(t *testing.T) {
	walk(t, "metadata.yaml", func(path string) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		r, err := confmap.NewRetrievedFromYAML(b)
		require.NoError(t, err, path)
		raw, err := r.AsRaw()
		require.NoError(t, err, path)
		all, ok := raw.(map[string]any)
		require.True(t, ok, path)
		own := map[string]any{}
		for _, k := range []string{"attributes", "resource_attributes", "metrics", "events"} {
			if all[k] != nil {
				own[k] = all[k]
			}
		}
		var md metadata
		require.NoError(t, confmap.NewFromStringMap(own).Unmarshal(&md, confmap.WithIgnoreUnused()), path)
		for _, p := range md.problems() {
			t.Errorf("%s: %s", path, p)
		}
	})
}

func (md metadata) problems() []string {
	var out []string
	types := map[string]semconv.Type{
		"string": semconv.TypeString, "int": semconv.TypeInt, "double": semconv.TypeDouble, "bool": semconv.TypeBoolean,
	}
	for owner, attrs := range map[string]map[string]metadataAttribute{
		"metric":   md.Attributes,
		"resource": md.ResourceAttributes,
	} {
		for name, a := range attrs {
			if a.NameOverride != "" {
				name = a.NameOverride
			}
			if !ours(name) {
				continue
			}
			want, ok := semconv.LookupAttribute(name)
			switch {
			case !ok:
				out = append(out, "attribute "+name+" is not in semconv/registry")
				continue
			case want.Type != types[a.Type] && a.Type != "slice":
				out = append(out, "attribute "+name+" is "+a.Type+", want "+string(want.Type))
			case owner == "resource" && !slices.Contains(want.On, owner):
				out = append(out, "attribute "+name+" is on the resource")
			}
			for _, v := range a.Enum {
				if !want.Open && !slices.Contains(want.Members, v) {
					out = append(out, "attribute "+name+" has no member "+v)
				}
			}
		}
	}
	for name, m := range md.Metrics {
		if !ours(name) {
			continue
		}
		want, ok := semconv.LookupMetric(name)
		switch {
		case !ok:
			out = append(out, "metric "+name+" is not in semconv/registry")
		case m.Unit != want.Unit:
			out = append(out, "metric "+name+" has unit "+m.Unit+", want "+want.Unit)
		case m.instrument() != want.Instrument:
			out = append(out, "metric "+name+" is a "+string(m.instrument())+", want "+string(want.Instrument))
		}
	}
	for name := range md.Events {
		if _, ok := semconv.LookupEvent(name); ours(name) && !ok {
			out = append(out, "event "+name+" is not in semconv/registry")
		}
	}
	slices.Sort(out)
	return out
}

func TestMetadataThatDeviatesIsNamed(t *testing.T) {
	md := metadata{
		Attributes: map[string]metadataAttribute{
			"pipe": {NameOverride: "gpu.pipe", Type: "int"},
			"x":    {NameOverride: "gpu.x", Type: "int"},
		},
		ResourceAttributes: map[string]metadataAttribute{"hw.vendor": {Type: "string"}},
		Metrics: map[string]metadataMetric{
			"hw.energy":  {Unit: "J", Gauge: map[string]any{}},
			"hw.power":   {Unit: "mW", Gauge: map[string]any{}},
			"gpu.x":      {Unit: "1"},
			"otelcol_x":  {},
			"hw.unknown": {},
		},
	}
	require.Equal(t, []string{
		"attribute gpu.pipe is int, want string",
		"attribute gpu.x is not in semconv/registry",
		"attribute hw.vendor is on the resource",
		"metric gpu.x is not in semconv/registry",
		"metric hw.energy is a gauge, want counter",
		"metric hw.power has unit mW, want W",
		"metric hw.unknown is not in semconv/registry",
	}, md.problems())
}

// Compares names, units and instruments of hardware metrics with OpenTelemetry's own package, each
// of whose types embeds the instrument.
func TestHardwareMetricsAgreeWithOpenTelemetrysPackage(t *testing.T) {
	type measured interface {
		Name() string
		Unit() string
	}
	for _, want := range []measured{
		hwconv.Energy{},
		hwconv.Errors{},
		hwconv.GpuMemoryLimit{},
		hwconv.GpuMemoryUsage{},
		hwconv.GpuMemoryUtilization{},
		hwconv.GpuUtilization{},
		hwconv.Power{},
		hwconv.Status{},
		hwconv.Temperature{},
	} {
		got, ok := semconv.LookupMetric(want.Name())
		require.True(t, ok, want.Name())
		require.Equal(t, want.Unit(), got.Unit, want.Name())
		embedded := strings.ToLower(strings.TrimPrefix(reflect.TypeOf(want).Field(0).Type.Name(), "Int64"))
		require.Equal(t, embedded, string(got.Instrument), want.Name())
	}
}
