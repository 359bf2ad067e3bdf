// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package recorded

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// skipper is a test that only records that it was skipped.
type skipper struct {
	testing.TB
	skipped bool
}

func (s *skipper) Skip(...any) { s.skipped = true }

func TestPathFindsTheDataByEnvironmentOrNextToTheRepository(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	data, inside := filepath.Join(root, "shared", "data"), filepath.Join(root, "repository", "deep", "inside")
	require.NoError(t, os.MkdirAll(data, 0o700))
	require.NoError(t, os.MkdirAll(inside, 0o700))
	t.Chdir(inside)
	t.Setenv("OTELGPU_TESTDATA", "")

	none := &skipper{TB: t}
	assert.Empty(t, Path(none, "kineto"))
	assert.True(t, none.skipped)

	require.NoError(t, os.WriteFile(filepath.Join(data, "MANIFEST.md"), nil, 0o600))
	assert.Equal(t, data, Path(t))
	assert.Equal(t, filepath.Join(data, "kineto", "missing.json"), Path(t, "kineto/missing.json"),
		"a missing file fails its test")

	t.Setenv("OTELGPU_TESTDATA", "elsewhere")
	assert.Equal(t, filepath.Join("elsewhere", "nsys", "a.sqlite"), Path(t, "nsys", "a.sqlite"))
}
