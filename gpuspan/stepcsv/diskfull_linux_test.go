// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv_test

import (
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/stepcsv"
)

// A full disk, which accepts a part of a write: the rows are taken back, and written once there is room.
func TestFullDiskLeavesNoHalfRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.csv")
	w, err := stepcsv.Open(stepcsv.Config{Path: path})
	require.NoError(t, err)
	require.NoError(t, w.Write(row(1)))
	before := content(t, path)

	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(len(before) + 100), Max: old.Max}))
	err = w.Write(row(2), row(3))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old))

	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "file too large")
	assert.Equal(t, before, content(t, path))
	assert.EqualValues(t, 1, w.Stats().Rows)
	require.NoError(t, w.Write(row(2), row(3)))
	require.NoError(t, w.Close())
	assert.Equal(t, 4, strings.Count(content(t, path), "\n"))
}
