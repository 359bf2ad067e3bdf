// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each package in the list imports only earlier ones, and the sizes of packages and types are limited.
func TestImportsOfTheLayersGoOneWay(t *testing.T) {
	const prefix = "github.com/otelgpu/otelgpu/gpuspan/internal/"
	const mostLines, mostMethods = 2500, 20
	layers := []string{
		"spanattr", "hostclock", "errreport", "spanid", "elapsed", "work", "sink", "record", "timeline", "tree", "export", "engine", "access",
	}
	for rank, layer := range layers {
		methods := map[string]int{}
		files, err := filepath.Glob("../" + layer + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files, layer)
		lines := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, file, nil, 0)
			require.NoError(t, err)
			lines += set.File(f.Pos()).LineCount()
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && d.Recv != nil {
					methods[strings.TrimLeft(types.ExprString(d.Recv.List[0].Type), "*")]++
				}
			}
			for _, i := range f.Imports {
				name, own := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), prefix)
				if at := slices.Index(layers, name); own && at >= 0 {
					require.Less(t, at, rank, "%s imports %s", file, name)
				}
			}
		}
		require.LessOrEqual(t, lines, mostLines, layer)
		for name, n := range methods {
			require.LessOrEqual(t, n, mostMethods, "methods of %s.%s", layer, name)
		}
	}
}
