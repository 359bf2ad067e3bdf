// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEarlierConfigurationsStartOrNameTheRemedy validates configurations that earlier commits
// shipped. A key that is renamed or removed needs an entry here, and one in the component's
// Unmarshal that names the replacement.
func TestEarlierConfigurationsStartOrNameTheRemedy(t *testing.T) {
	const full = "part of the full build only: use otelcol-gpu-full of the release, or \"make build-full\""
	const ottl = "or \"go build -tags ottl ./cmd/otelcol-gpu\""
	remedies := map[string][]string{ // by file that the core build does not accept
		"dcgm-exporter-1.yaml":      {`the receiver "prometheus" is ` + full},
		"dcgm-exporter-2.yaml":      {`the receiver "prometheus" is ` + full},
		"jaeger-2.yaml":             {`the processor "transform" is ` + full, ottl},
		"kafka-agent-1.yaml":        {`the exporter "kafka" is ` + full},
		"kafka-agent-2.yaml":        {`the exporter "kafka" is ` + full},
		"kafka-gateway-1.yaml":      {`the receiver "kafka" is ` + full},
		"kafka-gateway-2.yaml":      {`the receiver "kafka" is ` + full},
		"kubernetes-agent-1.yaml":   {`the exporter "load_balancing", the processor "k8s_attributes" are ` + full},
		"kubernetes-agent-2.yaml":   {`the exporter "load_balancing", the processor "filter", the processor "k8s_attributes" are ` + full},
		"kubernetes-gateway-1.yaml": {`the processor "tail_sampling" is ` + full, ottl},
		"kubernetes-gateway-2.yaml": {`the exporter "load_balancing", the processor "tail_sampling" are ` + full},
		"profiles-1.yaml":           {"start with --feature-gates service.profilesSupport"},
		"profiles-2.yaml":           {"start with --feature-gates service.profilesSupport"},
		"removed-chrome_trace.yaml": {"`per_trace` was removed (use `rotation`, or a query of the store of traces by trace ID)"},
		"removed-gpu_metrics.yaml": {
			"`regressions` was removed (use the rules in config/alerts/versions.yaml)",
			"`stragglers::max_ranks` was removed (use `stragglers::max_waiting`",
			"`stragglers::max_steps` was removed (use `stragglers::max_waiting`",
		},
		"removed-gpu_requests.yaml": {"`exponential` was removed (use `histogram::exponential`)"},
	}
	files, err := filepath.Glob(filepath.Join("testdata", "earlier", "*.yaml"))
	require.NoError(t, err)
	require.Greater(t, len(files), 20)
	for _, file := range files {
		name := filepath.Base(file)
		err := run([]string{"validate", "--config", file})
		want := remedies[name]
		delete(remedies, name)
		if want == nil {
			assert.NoError(t, err, name)
		}
		for _, text := range want {
			assert.ErrorContains(t, err, text, name)
		}
	}
	assert.Empty(t, remedies, "no such file")
}

// TestEarlierConfigurationsKeepTheirKeys compares all of them with the schema, which also describes
// the full build, and with the full build if it exists.
func TestEarlierConfigurationsKeepTheirKeys(t *testing.T) {
	s := compiledSchema(t)
	files, err := filepath.Glob(filepath.Join("testdata", "earlier", "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		err = s.Validate(decoded(t, string(text)))
		if strings.HasPrefix(filepath.Base(file), "removed-") {
			assert.ErrorContains(t, err, "additional properties", file)
			continue
		}
		assert.NoError(t, err, file)
		if fullBinary := os.Getenv("OTELGPU_FULL_BINARY"); fullBinary != "" {
			out, err := exec.Command(fullBinary, "validate", "--config", file).CombinedOutput()
			assert.NoError(t, err, "%s: %s", file, out)
		}
	}
}
