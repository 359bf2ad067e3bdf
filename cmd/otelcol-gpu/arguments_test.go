// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMisuseIsReportedWithItsRemedy(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"mine.yaml": "receivers: {}\n", "tabs.yaml": "a:\n\tb: 1\n", "worker0.json": "{"} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	const pipelines = "all-in-one, dcgm-exporter, jaeger, kafka/agent, kafka/gateway, kubernetes/agent, kubernetes/dcgm-exporter, kubernetes/gateway, " +
		"llm, profiles, prometheus, tempo, training"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"conver", "worker0.json"}, `unknown command "conver" (did you mean "convert"?)`},
		{[]string{"worker0.json"}, `unknown command "worker0.json" (otelcol-gpu convert --html worker0.json)`},
		{[]string{"mine.yaml"}, `unknown command "mine.yaml" (otelcol-gpu --config mine.yaml)`},
		{[]string{"llm"}, `unknown command "llm" (otelcol-gpu --config llm)`},
		{[]string{"nothing"}, `unknown command "nothing" ("otelcol-gpu --help" lists them)`},
		{[]string{"convert", "--htlm", "x"}, `unknown flag: --htlm ("otelcol-gpu convert --help" lists the flags)`},
		{[]string{"-c", "llm"}, `unknown shorthand flag: 'c' in -c ("otelcol-gpu --help" lists the flags)`},
		{[]string{"validate", "mine.yaml"}, `validate takes no arguments, found "mine.yaml" (otelcol-gpu validate --config mine.yaml)`},
		{[]string{"components", "gpu"}, `components takes no arguments, found "gpu" ("otelcol-gpu components --help" lists its flags)`},
		{[]string{"demo", "10s"}, `demo takes no arguments, found "10s" ("otelcol-gpu demo --help" lists its flags)`},
		{
			[]string{"convert", "--compare", "--out", "x", "worker0.json", "worker0.json"},
			"--out \"x\" cannot be used with --compare (add --html to write a page)",
		},
		{[]string{"config", "llm", "jaeger"}, "config takes one name, found 2"},
		{[]string{"record"}, "no output file (set --out FILE)"},
		{
			[]string{"record", "--out", "x", "--source", "simulted"},
			`--source must be one of auto, dcgm, nvml, replay, samples, simulated, found "simulted"`,
		},
		{[]string{"record", "--out", "x", "--interval", "1us"}, "--interval must be at least 1ms, found 1µs"},
		{[]string{"--config", "jager"}, `("jager" is not a ready pipeline either; they are: ` + pipelines + ")"},
		{
			[]string{"--config", "yaml:{receivers: {otlp: {protocols: {grpc: {endpoint: \"4317\"}}}}, exporters: {debug: {}}, " +
				"service: {telemetry: {metrics: {level: none}}, pipelines: {traces: {receivers: [otlp], exporters: [debug]}}}}"},
			"(write the address as host:port, such as 127.0.0.1:4317)",
		},
		{[]string{"validate", "--config", "tabs.yaml"}, "(indent YAML with spaces, not tabs)"},
	} {
		err := run(c.args)
		require.Error(t, err, c.args)
		assert.Contains(t, err.Error(), c.want)
	}
	// A name with an extension is a file, for which there is no further hint.
	err := run([]string{"--config", filepath.Join(t.TempDir(), "none.yaml")})
	require.ErrorContains(t, err, "none.yaml: no such file or directory")
	require.NotContains(t, err.Error(), "ready pipeline")
}
