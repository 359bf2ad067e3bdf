// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each package may import those before it; docs/layout.md describes them. "." is this package.
var layers = []string{
	"event", "timeline", "vocabulary", "facts", "rules", "criticalpath", "link", "emit", "jobs", "stacks", ".", "follow",
}

func TestImportsGoOneWay(t *testing.T) {
	const module = "github.com/otelgpu/otelgpu/"
	const here = module + "internal/profiletrace"
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			assert.Contains(t, append(layers, "profiletracetest"), e.Name(), "a new package needs a place in the order")
		}
	}
	for at, dir := range layers {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			require.NoError(t, err)
			for _, i := range f.Imports {
				path, err := strconv.Unquote(i.Path.Value)
				require.NoError(t, err)
				below, ours := strings.CutPrefix(path+"/", here+"/")
				if ours {
					below = strings.TrimSuffix(below, "/")
					if below == "" {
						below = "."
					}
					assert.Contains(t, layers[:at], below, "%s imports %s", file, path)
				}
				if slices.Contains([]string{"event", "timeline"}, dir) {
					assert.NotEqual(t, module+"semconv", path, "%s: what files and timelines state has no conventions", file)
				}
			}
		}
	}
}
