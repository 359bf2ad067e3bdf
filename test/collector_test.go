// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/test/internal/program"
)

// buildCollector compiles the distribution, as go run ./cmd/otelcol-gpu does, once for all tests of
// the package. The environment variable OTELGPU_BINARY names a binary to test instead, such as a
// released one. Options are go build's.
func buildCollector(t *testing.T, options ...string) string {
	t.Helper()
	if path := os.Getenv("OTELGPU_BINARY"); path != "" {
		return path
	}
	path, err := program.Build(filepath.Join("..", "cmd", "otelcol-gpu"), nil, options...)
	require.NoError(t, err)
	return path
}

// startCollector runs a Collector with configurations that are merged in order, waits until it is
// ready, and stops it after the test, when it must exit with status 0.
func startCollector(t *testing.T, path string, env []string, configs ...string) *program.Program {
	t.Helper()
	p := runCollector(t, path, env, configs...)
	t.Cleanup(func() { require.NoError(t, p.Stop(time.Minute)) })
	return p
}

// runCollector is like Start, but does not stop the program at the end of the test.
func runCollector(t *testing.T, path string, env []string, configs ...string) *program.Program {
	t.Helper()
	var args []string
	dir := t.TempDir()
	for i, text := range configs {
		file := filepath.Join(dir, string(rune('a'+i))+".yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		args = append(args, "--config", file)
	}
	// The test's context ends before its cleanups, and would kill the Collector.
	env = append([]string{"OTELGPU_LOG_LEVEL=info", "OTELGPU_PAGE=127.0.0.1:0"}, env...)
	p, err := program.Start(context.WithoutCancel(t.Context()), path, args, env)
	require.NoError(t, err)
	require.NoError(t, p.WaitFor("Everything is ready", time.Minute))
	return p
}
