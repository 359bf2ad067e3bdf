// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
)

func TestAFullDiskLeavesNothingAndIsNamed(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "big.json", kernels("saxpy", 5000))
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	free := limit(100_000)
	stdout, stderr, err := inProcess(t, "convert", "--detail", "kernels", "--out", filepath.Join(dir, "out"), file)
	free()
	require.ErrorContains(t, err, `cannot write the results to "`)
	require.ErrorContains(t, err, "file too large")
	require.NotContains(t, stdout+stderr, "goroutine")
	require.NotContains(t, stderr, "cannot read")
	require.NoDirExists(t, filepath.Join(dir, "out"))
}
