// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/otelgpu/otelgpu/config"
)

var (
	pinned   = regexp.MustCompile(`^docker\.io/[a-z0-9/]+:v?\d+\.\d+\.\d+$`)
	variable = regexp.MustCompile(`\bOTELGPU_[A-Z_]+\b`)
)

// Containers do not run here: what compose.yaml refers to must exist, and nothing in it may float or
// listen beyond this machine.
func TestTheComposeFileNamesWhatExists(t *testing.T) {
	folder := filepath.Join("..", "deploy", "compose")
	var file struct {
		Services map[string]struct {
			Image       string
			Build       struct{ Context, Dockerfile string }
			Command     []string
			Environment map[string]string
			Volumes     []string
			Ports       []string
			DependsOn   []string `yaml:"depends_on"`
		}
		Volumes map[string]any
	}
	read := func(name string, into any) {
		b, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		d := yaml.NewDecoder(strings.NewReader(string(b)))
		require.NoError(t, d.Decode(into), name)
	}
	read("compose.yaml", &file)
	require.Len(t, file.Services, 5)
	known := map[string]bool{}
	sources, err := filepath.Glob(filepath.Join("..", "config", "grafana", "provisioning", "*", "*.yaml"))
	require.NoError(t, err)
	tempo, err := config.YAML("tempo")
	require.NoError(t, err)
	text := tempo
	for _, path := range sources {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		text += string(b)
	}
	for _, v := range variable.FindAllString(text, -1) {
		known[v] = true
	}
	own := file.Services["otelgpu"].Image
	assert.Equal(t, own, file.Services["workload"].Image)
	for name, s := range file.Services {
		if s.Image != own {
			assert.Regexp(t, pinned, s.Image, name)
		}
		if s.Build.Context != "" {
			assert.FileExists(t, filepath.Join(folder, s.Build.Context, s.Build.Dockerfile))
		}
		for v := range s.Environment {
			assert.True(t, known[v] || strings.HasPrefix(v, "GF_"), "%s: nothing reads %s", name, v)
		}
		for _, p := range s.Ports {
			assert.True(t, strings.HasPrefix(p, "127.0.0.1:"), "%s is open to the network at %s", name, p)
		}
		for _, d := range s.DependsOn {
			assert.Contains(t, file.Services, d)
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(from, ".") {
				_, err := os.Stat(filepath.Join(folder, from))
				assert.NoError(t, err, name)
			} else {
				assert.Contains(t, file.Volumes, from)
			}
		}
	}

	var prometheus struct {
		Scrapes []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	read("prometheus.yml", &prometheus)
	for _, s := range prometheus.Scrapes {
		for _, target := range s.Static[0].Targets {
			host, _, _ := strings.Cut(target, ":")
			assert.Contains(t, file.Services, host)
		}
	}
}
