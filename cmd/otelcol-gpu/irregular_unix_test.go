// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConvertNeverWaitsForThePipesOfAFolder(t *testing.T) {
	dir := t.TempDir()
	names := []string{"a.json", "b.sqlite", "c_kernel_trace.csv", "d.pftrace", "e_results.db"}
	for _, name := range names {
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, name), 0o600))
	}
	for _, args := range [][]string{
		{"--out", filepath.Join(dir, "out"), dir},
		{"--out", filepath.Join(dir, "out"), "--captures", dir, filepath.Join(dir, "a.json")},
		{"--compare", filepath.Join(dir, "a.json"), filepath.Join(dir, "b.sqlite")},
	} {
		_, err := convertOutput(t, args...)
		require.Error(t, err)
		assert.NoFileExists(t, filepath.Join(dir, "out", "spans.json"))
	}
}
