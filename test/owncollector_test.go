// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/freeport"
	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// Builds the example manifest with the Collector's own builder and runs its configuration. The
// builder's own compiler call differs only in -trimpath, which would recompile everything.
func TestIntegrationOwnCollectorIsBuiltFromTheManifestAndStarts(t *testing.T) {
	integration.Need(t)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	dir := t.TempDir()
	builder := filepath.Join(dir, "builder")
	_, err = program.Go(t.Context(), filepath.Join(root, "internal", "tools"), []string{"GOWORK=off"},
		"build", "-o", builder, "go.opentelemetry.io/collector/cmd/builder")
	require.NoError(t, err)

	text, err := os.ReadFile(filepath.Join(root, "deploy", "own-collector", "builder.yaml"))
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "deploy", "own-collector", "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "cd deploy/own-collector", "both are seen from where the builder is started")
	output := filepath.Join(root, "deploy", "own-collector", "build")
	require.Equal(t, root, filepath.Join(output, "../../.."), "where the manifest looks for the modules")
	manifest := strings.ReplaceAll(string(text), "=> ../../..", "=> "+root)
	require.Equal(t, 4, strings.Count(manifest, "=> "+root), "the root module and three modules that it requires")
	manifest = strings.Replace(manifest, "output_path: ./build", "output_path: "+filepath.Join(dir, "build"), 1)
	file := filepath.Join(dir, "builder.yaml")
	require.NoError(t, os.WriteFile(file, []byte(manifest), 0o600))
	p, err := program.Start(t.Context(), builder, []string{"--config", file, "--skip-compilation"}, []string{"GOWORK=off"})
	require.NoError(t, err)
	require.NoError(t, p.Wait(5*time.Minute))
	binary := filepath.Join(dir, "my-collector")
	_, err = program.Go(t.Context(), filepath.Join(dir, "build"), []string{"GOWORK=off", "GOPROXY=off"}, "build", "-o",
		binary, ".")
	require.NoError(t, err)

	address, err := freeport.Address()
	require.NoError(t, err)
	p, err = program.Start(context.WithoutCancel(t.Context()), binary,
		[]string{"--config", filepath.Join(root, "deploy", "own-collector", "config.yaml")},
		[]string{"OTLP_GRPC=" + address, "OTELGPU_SOURCE=simulated"})
	require.NoError(t, err)
	require.NoError(t, p.WaitFor("Everything is ready", time.Minute))
	require.NoError(t, p.WaitFor("GPU source opened", time.Minute))
	// A Collector handles signals shortly after it has logged that it is ready.
	if err := p.Stop(time.Minute); err != nil {
		require.ErrorContains(t, err, "signal: terminated")
	}
}
