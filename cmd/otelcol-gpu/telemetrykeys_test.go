// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The Collector panics on these keys.
func TestUnknownKeysOfTheCollectorsTelemetryAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"metrics: {readers: [{pull: {exporter: {promxtheus: {port: 8888}}}}]}": "`service::telemetry::metrics::readers::0::pull::exporter` " +
			`has the unknown key "promxtheus" (use prometheus)`,
		"traces: {processors: [{simple: {exporter: {console: {}}}}, {bach: {}}]}": "`service::telemetry::traces::processors::1` " +
			`has the unknown key "bach" (use batch)`,
		"traces: {sampler: {parent_based: {root: {never: {}}}}}": "`service::telemetry::traces::sampler::parent_based::root` has the " +
			`unknown key "never" (the keys are always_off, always_on, jaeger_remote, parent_based, trace_id_ratio_based)`,
		"logs: {processors: [{batch: {exporter: {consol: {}, otlp: {}}}}]}": `unknown key "consol" (use console)`,
		"logs: {lvl: info}": "has invalid keys: lvl", // the Collector's own error
	} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(file, []byte(`
receivers: {otlp: {protocols: {grpc: }}}
exporters: {debug: }
service:
  telemetry: {`+text+`}
  pipelines: {traces: {receivers: [otlp], exporters: [debug]}}
`), 0o600))
		require.ErrorContains(t, run([]string{"validate", "--config", file}), want)
	}
}
