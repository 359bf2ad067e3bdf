// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
	"github.com/otelgpu/otelgpu/internal/spanfiles/stepcsv"
)

// A full disk accepts part of a write: the partial rows are removed, and written again once there
// is space.
func TestFullDiskLeavesNoHalfRow(t *testing.T) {
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	path := filepath.Join(t.TempDir(), "steps.csv")
	w, err := stepcsv.Open(stepcsv.Config{Path: path})
	require.NoError(t, err)
	require.NoError(t, w.Write(row(1)))
	before := content(t, path)

	free := limit(uint64(len(before) + 100))
	err = w.Write(row(2), row(3))
	free()

	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "file too large")
	require.Equal(t, before, content(t, path))
	require.EqualValues(t, 1, w.Stats().Rows)
	require.NoError(t, w.Write(row(2), row(3)))
	require.NoError(t, w.Close())
	require.Equal(t, 4, strings.Count(content(t, path), "\n"))
}
