// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
	"github.com/otelgpu/otelgpu/gpuspan/chrometrace/chrometracetest"
)

func TestFullDiskLosesOnlyWhatItRefused(t *testing.T) {
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	path := filepath.Join(t.TempDir(), "trace.json")
	r, err := chrometrace.NewRotator(chrometrace.Files{Path: path})
	require.NoError(t, err)
	require.NoError(t, r.Write(batchOf(100, 0)))
	free := limit(20_000)
	err = r.Write(batchOf(1000, 100))
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "file too large")
	free()
	require.NoError(t, r.Write(batchOf(1000, 100)), "there is room again")
	require.NoError(t, r.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	f, faults := chrometracetest.Read(data)
	require.Empty(t, faults)
	assert.Len(t, f.Of("X"), 1100)
}

func TestFullDiskAtTheEndLeavesNoFileUnderTheFinalName(t *testing.T) {
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	for _, c := range []chrometrace.Compression{chrometrace.None, chrometrace.Gzip, chrometrace.Zstd} {
		dir := t.TempDir()
		r, err := chrometrace.NewRotator(chrometrace.Files{Path: filepath.Join(dir, "trace.json"), Compression: c})
		require.NoError(t, err)
		require.NoError(t, r.Write(batchOf(3, 0)))
		free := limit(150)
		err = r.Close()
		free()
		require.ErrorContains(t, err, "what was written stays in")
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		assert.Contains(t, entries[0].Name(), ".partial")
	}
}

func TestCompressedFileThatBreaksIsNotContinued(t *testing.T) {
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	dir := t.TempDir()
	r, err := chrometrace.NewRotator(chrometrace.Files{Path: filepath.Join(dir, "trace.json"), Compression: chrometrace.Zstd})
	require.NoError(t, err)
	free := limit(10_000)
	for i := range 200 {
		if err = r.Write(batchOf(1000, i*1000)); err != nil {
			break
		}
	}
	free()
	require.ErrorContains(t, err, "file too large")
	require.NoError(t, r.Write(batchOf(3, 0)), "a new file")
	require.NoError(t, r.Close())
	entries, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Len(t, entries, 2, "the broken one keeps its temporary name: %v", entries)
}
