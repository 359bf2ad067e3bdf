// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Imports go one way: rules read facts, facts are collected from timelines, and a timeline knows neither. Facts take the
// limits of the registry from semconv.
func TestAnalysisPackagesImportOneWay(t *testing.T) {
	const module = "github.com/otelgpu/otelgpu/"
	const analysis = module + "internal/profiletrace"
	forbidden := map[string][]string{
		"timeline": {analysis, module + "internal/finding", module + "semconv"},
		"facts":    {analysis + "/rules"},
		"rules":    {analysis + "/follow", analysis + "/profiletracetest"},
	}
	for dir, list := range forbidden {
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
				assert.NotEqual(t, analysis, path, file)
				for _, no := range list {
					assert.False(t, path == no || strings.HasPrefix(path, no+"/"), "%s imports %s", file, path)
				}
			}
		}
	}
}
