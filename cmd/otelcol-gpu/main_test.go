// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/gpuspan"
)

func TestNamesOfReadyPipelinesAreConfigurations(t *testing.T) {
	llm, err := config.YAML("llm")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(".", "tempo"), nil, 0o600))
	for _, tt := range []struct{ in, want []string }{
		{[]string{"--config", "llm"}, []string{"--config", "yaml:" + llm}},
		{[]string{"--config=llm", "--config", "more.yaml"}, []string{"--config=yaml:" + llm, "--config", "more.yaml"}},
		{[]string{"validate", "--config", "llm"}, []string{"validate", "--config", "yaml:" + llm}},
		{[]string{"config", "llm"}, []string{"config", "llm"}},
		{[]string{"--config", "tempo"}, []string{"--config", "tempo"}}, // a file of that name
		{[]string{"--config", "loki"}, []string{"--config", "loki"}},
		{[]string{"--config"}, []string{"--config"}},
	} {
		require.Equal(t, tt.want, named(tt.in))
	}
	_, _, err = inProcess(t, named([]string{"validate", "--config", "llm"})...)
	require.NoError(t, err)
}

// TestSetOverridesTheDefaultPipeline changes one value of the pipeline that runs without --config.
func TestSetOverridesTheDefaultPipeline(t *testing.T) {
	for _, args := range [][]string{
		{"print-config", "--set=receivers.gpu.source=simulated"}, {"print-config", "--set", "receivers.gpu.source=simulated"},
	} {
		stdout, _, err := inProcess(t, named(args)...)
		require.NoError(t, err)
		require.Contains(t, stdout, "source: simulated")
		require.Contains(t, stdout, "gpu_join:")
	}
	require.Len(t, named([]string{"--set=a=b", "--config=c"}), 2)
	require.Len(t, named([]string{"convert", "--set=a=b"}), 2, "another command")
}

func TestTheVersionIsReportedInOneWay(t *testing.T) {
	require.Equal(t, gpuspan.Version, version)
	require.Equal(t, version, buildInfo().Version)
	stdout, _, err := inProcess(t, "--version")
	require.NoError(t, err)
	require.Equal(t, "otelcol-gpu version "+version+"\n", stdout)
	for file, text := range map[string]string{
		"builder.yaml": "\n  version: " + version + "\n", "builder-full.yaml": "\n  version: " + version + "\n",
		filepath.Join("..", "..", "CHANGELOG.md"): "\n## [" + version + "]",
	} {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(b), text, file)
	}
}

func TestConfigSaysWhatEachPipelineNeeds(t *testing.T) {
	for _, name := range config.Names() {
		about, needs := config.About(name)
		require.Contains(t, pipelines(), about)
		require.Regexp(t, `^[A-Z][^\n]{15,110}$`, about)
		text, err := config.YAML(name)
		require.NoError(t, err)
		args := []string{"validate", "--config=yaml:" + text}
		if gate, ok := strings.CutPrefix(needs, "--feature-gates "); ok {
			args = append(args, "--feature-gates", gate)
		}
		_, _, err = inProcess(t, args...)
		if needs == "full build" {
			require.ErrorContains(t, err, "unknown type", name)
			continue
		}
		require.NoError(t, err, "%s does not need more than the default build", name)
	}
}
