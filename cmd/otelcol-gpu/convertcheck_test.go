// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// Validates the spans of every converted recorded profile against the registry, as a user would.
func TestConvertOfEveryRecordedProfilePassesTheCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("the recorded profiles are not converted with -short")
	}
	root := recorded.Path(t)
	profile := regexp.MustCompile(`^(kineto|nsys)/.*\.(json|json\.gz|sqlite)$`)
	// expected results of a profile, and an execution trace
	others := regexp.MustCompile(`\.ref\.json$|/truth\.json$|_et\.json\.gz$`)
	converted := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		if name = filepath.ToSlash(name); d.IsDir() || !profile.MatchString(name) || others.MatchString(name) {
			return nil
		}
		converted++
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, problems, err := inProcess(t, "convert", "--out", dir, path)
			require.NoError(t, err, problems)
			out, err := check(t, "", filepath.Join(dir, "spans.json"))
			require.NoError(t, err, out)
			assert.Regexp(t, `^[1-9]\d* spans .*: no violations\n$`, out)
			written, err := os.ReadDir(dir)
			require.NoError(t, err)
			for _, f := range written {
				assert.False(t, strings.HasSuffix(f.Name(), ".tmp"), f.Name())
			}
		})
		return nil
	}))
	assert.GreaterOrEqual(t, converted, 30, "profiles under %s", root)
}
