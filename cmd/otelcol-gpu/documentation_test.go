// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/featuregate"
	"go.opentelemetry.io/collector/otelcol"

	"github.com/otelgpu/otelgpu/config"
)

// documents returns the texts of all Markdown files by path.
func documents(t *testing.T) map[string][]byte {
	texts := map[string][]byte{}
	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		texts[path], err = os.ReadFile(path)
		return err
	}))
	return texts
}

// Every configuration with a service in a document runs as pasted, or merged into the ready
// pipeline that it names.
func TestConfigurationsOfTheDocumentationAreComplete(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	added := regexp.MustCompile(`^# added to the ready pipeline (\w+)\n`)
	found := 0
	gates := featuregate.GlobalRegistry()
	require.NoError(t, gates.Set("service.profilesSupport", true))
	defer func() { require.NoError(t, gates.Set("service.profilesSupport", false)) }()
	for path, text := range documents(t) {
		for _, m := range block.FindAllSubmatch(text, -1) {
			yaml := string(m[1])
			if !strings.Contains("\n"+yaml, "\nservice:") {
				continue
			}
			found++
			set := settings(yaml)
			if m := added.FindStringSubmatch(yaml); m != nil {
				ready, err := config.YAML(m[1])
				require.NoError(t, err, path)
				uris := &set.ConfigProviderSettings.ResolverSettings.URIs
				*uris = append([]string{"yaml:" + ready}, *uris...)
			}
			c, err := otelcol.NewCollector(set)
			require.NoError(t, err)
			err = c.DryRun(t.Context())
			if strings.Contains(yaml, "\n  prometheus:\n    config:") { // the receiver is only in the full build
				require.ErrorContains(t, err, `unknown type: "prometheus"`, path)
				continue
			}
			assert.NoError(t, err, path)
		}
	}
	assert.GreaterOrEqual(t, found, 8)
}

// Every command line of a document names commands and flags that exist.
func TestCommandsOfTheDocumentationExist(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```(?:sh|bash|console)?\n(.*?)^```")
	line := regexp.MustCompile(`(?m)^(?:\$ )?(?:go run \./cmd/otelcol-gpu|otelcol-gpu)((?: .*)?)$`)
	found := 0
	for path, text := range documents(t) {
		for _, b := range block.FindAllStringSubmatch(string(text), -1) {
			for _, m := range line.FindAllStringSubmatch(b[1], -1) {
				args, _, _ := strings.Cut(m[1], "#")
				args, _, _ = strings.Cut(args, "|")
				args, _, _ = strings.Cut(args, ">")
				found++
				root, _, err := command()
				require.NoError(t, err)
				cmd, rest, err := root.Find(strings.Fields(args))
				if assert.NoError(t, err, "%s: %s", path, m[0]) {
					assert.NoError(t, cmd.ParseFlags(rest), "%s: %s", path, m[0])
				}
			}
		}
	}
	assert.GreaterOrEqual(t, found, 8)
}

// The full build has no embedded pipelines: documents start it with files, which must exist.
func TestTheFullBuildIsStartedOnFiles(t *testing.T) {
	start := regexp.MustCompile("otelcol-gpu-full --config ([^\\s`]+)")
	found := 0
	for path, text := range documents(t) {
		for _, m := range start.FindAllSubmatch(text, -1) {
			found++
			assert.FileExists(t, filepath.Join("..", "..", string(m[1])), path)
		}
	}
	assert.GreaterOrEqual(t, found, 3)
}

func TestTheREADMEListsTheComponents(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "## Components of the core build")
	table, _, _ = strings.Cut(table, "\n## ")
	f, err := factories()
	require.NoError(t, err)
	for kind, names := range map[string][]string{
		"receivers": typesOf(f.Receivers), "processors": typesOf(f.Processors), "connectors": typesOf(f.Connectors),
		"exporters": typesOf(f.Exporters), "extensions": typesOf(f.Extensions),
	} {
		_, row, _ := strings.Cut(table, "| "+kind+" |")
		row, _, _ = strings.Cut(row, "\n")
		require.NotEmpty(t, names, kind)
		for _, name := range names {
			assert.Contains(t, row, "`"+name+"`", kind)
		}
	}
}

// The page that a visitor reads first lists the components of this repository, each with its
// stability level.
func TestTheFirstPageListsOurComponents(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	f, err := factories()
	require.NoError(t, err)
	var want []string
	add := func(modules map[component.Type]string, kind string, level func(component.Type) component.StabilityLevel) {
		for name, module := range modules {
			if strings.HasPrefix(module, ownModule+" ") {
				want = append(want, fmt.Sprintf("`%s` %s %s", name, kind, strings.ToLower(level(name).String())))
			}
		}
	}
	add(f.ReceiverModules, "receiver", func(c component.Type) component.StabilityLevel {
		r := f.Receivers[c]
		return max(r.TracesStability(), r.MetricsStability())
	})
	add(f.ProcessorModules, "processor", func(c component.Type) component.StabilityLevel {
		return f.Processors[c].TracesStability()
	})
	add(f.ConnectorModules, "connector", func(c component.Type) component.StabilityLevel {
		k := f.Connectors[c]
		if p, ok := k.(interface {
			TracesToProfilesStability() component.StabilityLevel
		}); ok {
			return max(k.TracesToMetricsStability(), p.TracesToProfilesStability())
		}
		return k.TracesToMetricsStability()
	})
	add(f.ExporterModules, "exporter", func(c component.Type) component.StabilityLevel {
		e := f.Exporters[c]
		return max(e.TracesStability(), e.MetricsStability())
	})
	add(f.ExtensionModules, "extension", func(c component.Type) component.StabilityLevel {
		return f.Extensions[c].Stability()
	})
	var got []string
	row := regexp.MustCompile("(?m)^\\| \\[(`[a-z_]+`)\\]\\([a-z/]+\\) \\| ([a-z]+) \\| .* \\| ([a-z]+) \\|$")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		got = append(got, m[1]+" "+m[2]+" "+m[3])
	}
	require.ElementsMatch(t, want, got)
}

func typesOf[F component.Factory](factories map[component.Type]F) (names []string) {
	for _, f := range factories {
		names = append(names, f.Type().String()) // not the deprecated alias
	}
	return names
}
