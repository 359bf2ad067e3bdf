// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// As in convert … | head -1.
func TestConvertIntoAClosedPipeLeavesNothing(t *testing.T) {
	path, err := binary()
	require.NoError(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "a.pt.trace.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"schemaVersion": 1, "traceEvents": [
		{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"device": 0, "stream": 7}}]}`),
		0o600))
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	defer write.Close()
	cmd := exec.CommandContext(t.Context(), path, "convert", "--out", filepath.Join(dir, "out"), file)
	cmd.Stdout = write
	require.Error(t, cmd.Run())
	left, err := filepath.Glob(filepath.Join(dir, "out", ".*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
